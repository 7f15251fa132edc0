"""File formats: translation memories, XLIFF, Parquet, JSON lines, CSV.

- `.tmx`: a unit without a text in both languages is skipped and counted in `dropped`.
  `en` also stands for `en-US`, which alone is `en_US`;
- `.xlf`, `.xliff`: source and target as the file has them, or swapped if it has the
  languages in the other order. Units without a target are skipped and counted;
- `.parquet`: a column `translation` with a field for each language, as WMT's data are
  published on the Hugging Face Hub, or a column for each language;
- `.jsonl`, `.ndjson`: in each line an object with such fields;
- `.csv`: a column for each language, which the first line names.
"""

from t2t_keras.data.sources import Format

from .csv_table import csv_languages, read_csv
from .json_lines import jsonl_languages, read_jsonl
from .parquet_table import parquet_languages, read_parquet
from .tmx import read_tmx, tmx_languages
from .xliff import read_xliff

TMX = Format(read_tmx, "a translation memory (TMX)", languages=tmx_languages)
XLIFF = Format(read_xliff, "a file of translations (XLIFF)", needs_languages=False)
PARQUET = Format(
    read_parquet, "a table (Parquet)", magic=b"PAR1", languages=parquet_languages
)
JSONL = Format(read_jsonl, "a file of JSON lines", languages=jsonl_languages)
CSV = Format(read_csv, "a table (CSV)", languages=csv_languages)

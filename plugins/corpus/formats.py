"""File formats: translation memories, XLIFF, Parquet, JSON lines, CSV.

- `.tmx`: a unit without a text in both languages is skipped and counted in `dropped`.
  `en` also stands for `en-US`, which alone is `en_US`;
- `.xlf`, `.xliff`: source and target as the file has them, or swapped if it has the
  languages in the other order. Units without a target are skipped and counted;
- `.parquet`: a column `translation` with a field for each language, as WMT's data are
  published on the Hugging Face Hub, or a column for each language;
- `.jsonl`: in each line an object with such fields;
- `.csv`: a column for each language, which the first line names.
"""

from t2t_keras.data.pair_files import Format

from .csv_table import csv_languages, matches_csv, read_csv
from .json_lines import jsonl_languages, matches_jsonl, read_jsonl
from .parquet_table import matches_parquet, parquet_languages, read_parquet
from .tmx import matches_tmx, read_tmx, tmx_languages
from .xliff import matches_xliff, read_xliff

TMX = Format(read_tmx, True, "a translation memory (TMX)", matches_tmx, tmx_languages)
XLIFF = Format(read_xliff, False, "a file of translations (XLIFF)", matches_xliff)
PARQUET = Format(
    read_parquet, True, "a table (Parquet)", matches_parquet, parquet_languages
)
JSONL = Format(read_jsonl, True, "a file of JSON lines", matches_jsonl, jsonl_languages)
CSV = Format(read_csv, True, "a table (CSV)", matches_csv, csv_languages)

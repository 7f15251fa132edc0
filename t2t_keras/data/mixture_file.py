"""Mixtures that a TOML file describes."""

from pathlib import Path
from typing import Any, get_args

from t2t_keras.data.languages import parse_languages
from t2t_keras.data.mixture import Corpus, Mixture
from t2t_keras.data.pair_files import PairFile
from t2t_keras.data.parallel_files import ParallelFiles
from t2t_keras.data.text_files import read_text
from t2t_keras.data.toml_text import parse_toml
from t2t_keras.errors import UserError
from t2t_keras.problem import Source, Split

_FILES = ("source", "target", "pairs", "alignment")
_FIELDS = {*_FILES, "name", "languages", "weight", "tag"}


def read_mixture(path: str | Path) -> dict[Split, Source]:
    """Reads the sources of each split from a TOML file.

        temperature = 5            # or a weight for each corpus of [[train]]

        [[train]]
        name = "captions"          # default: the name of the file
        source = "train.en.gz"     # relative to this file
        target = "train.de.gz"
        tag = "<2de>"

        [[train]]
        pairs = "memory.tmx"       # or .tsv, .csv, .jsonl, .xlf, .parquet
        languages = "en-de"

        [[dev]]
        source = "dev.en"
        target = "dev.de"

    Raises:
        UserError: the file cannot be read, or is not as described.
    """
    path = Path(path)
    values = parse_toml(read_text(path), str(path))
    temperature = values.pop("temperature", None)
    try:
        if temperature is None:
            temperature = 0.0
        elif not isinstance(temperature, int | float) or not temperature:
            raise UserError("temperature must be a number of at least 1")
        sources: dict[Split, Source] = {}
        splits: tuple[Split, ...] = get_args(Split)
        for name, tables in values.items():
            split = next((split for split in splits if split == name), None)
            if split is None or not isinstance(tables, list):
                raise UserError(
                    f"there is '{name}', not temperature, [[train]], [[dev]] or "
                    "[[test]]"
                )
            corpora = tuple(_corpus(table, path.parent) for table in tables)
            if split != "train" and any(corpus.weight for corpus in corpora):
                raise UserError(f"a weight in [[{split}]]: only training has weights")
            sources[split] = Mixture(corpora, temperature if split == "train" else 0.0)
        if not sources:
            raise UserError("there is no [[train]], [[dev]] or [[test]]")
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return sources


def _corpus(table: Any, directory: Path) -> Corpus:
    """Returns the corpus that a table of the file describes."""
    if not isinstance(table, dict):
        raise UserError("a corpus is a table with source and target, or pairs")
    if unknown := sorted(table.keys() - _FIELDS):
        raise UserError(
            f"a corpus has no '{unknown[0]}'; it has {', '.join(sorted(_FIELDS))}"
        )
    for key, value in table.items():
        kinds = (int, float) if key == "weight" else (str,)
        if not isinstance(value, kinds) or isinstance(value, bool):
            expected = "number" if key == "weight" else "text"
            raise UserError(f"{key} is a {expected}, not {value!r}")
    files = {key: directory / table[key] for key in _FILES if key in table}
    source: Source
    if files.keys() == {"pairs"}:
        languages = table.get("languages")
        source = PairFile(files["pairs"], languages and parse_languages(languages))
    elif {"source", "target"} == files.keys() - {"alignment"} and (
        "languages" not in table
    ):
        source = ParallelFiles(files["source"], files["target"], files.get("alignment"))
    else:
        raise UserError("a corpus needs source and target, or pairs (and languages)")
    file = next(iter(files.values()))
    name = table.get("name", file.name)
    if table.get("weight") == 0:
        raise UserError(f"corpus '{name}': its weight must be positive; leave it out")
    return Corpus(name, source, float(table.get("weight", 0.0)), table.get("tag", ""))

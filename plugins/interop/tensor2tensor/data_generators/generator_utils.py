"""tensor2tensor's `generator_utils`: downloads, archives, and vocabularies."""

import glob
import gzip
import os
import shutil
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from t2t_keras.data.archive_format import ArchiveFormat
from t2t_keras.data.atomic_files import atomic
from t2t_keras.data.console import say
from t2t_keras.data.lines import read_lines
from t2t_keras.data.parallel_files import ParallelFiles
from t2t_keras.entry_points import load_plugins
from t2t_keras.errors import UserError
from t2t_keras.problem import Pair

from ...subword_training import train_subwords
from ..missing import missing_name
from . import text_encoder

_BUDGET = 1e6  # bytes of each file


def maybe_download(directory: str, filename: str, uri: str) -> str:
    """Downloads or copies a file unless it is there, and returns its path.

    Raises:
        UserError: it cannot be downloaded.
    """
    path = Path(directory) / filename
    if path.exists():
        return str(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    say(f"downloading {uri} to {path}")
    try:
        with atomic(path) as incomplete:
            if os.path.exists(uri):
                shutil.copyfile(uri, incomplete)
            else:
                with (
                    urllib.request.urlopen(uri, timeout=60) as response,
                    incomplete.open("wb") as file,
                ):
                    shutil.copyfileobj(response, file)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise UserError(
            f"cannot download {uri}: {reason}; download it by other means to {path}"
        ) from None
    return str(path)


def maybe_download_from_drive(directory: str, filename: str, url: str) -> str:
    """Returns the path of a file of Google Drive, which must be there already."""
    path = Path(directory) / filename
    if not path.exists():
        raise UserError(f"there is no {path}; download it from {url}")
    return str(path)


def gunzip_file(gz_path: str, new_path: str) -> None:
    """Decompresses a file unless it is there."""
    if not os.path.exists(new_path):
        with (
            atomic(Path(new_path)) as incomplete,
            gzip.open(gz_path) as compressed,
            incomplete.open("wb") as file,
        ):
            shutil.copyfileobj(compressed, file)


def archived_pairs(
    tmp_dir: str, address: str, source: str, target: str
) -> Iterator[Pair]:
    """Yields the pairs of two files in a directory, or of an archive.

    Args:
        tmp_dir: the directory with the files, or with the archive; the archive is
            downloaded if it is absent.
        address: where the archive is published, or its path.
        source: the name of the file with the inputs.
        target: the name of the file with the targets.

    Raises:
        UserError: the archive cannot be downloaded or read.
    """
    files = Path(tmp_dir) / source, Path(tmp_dir) / target
    if all(file.exists() for file in files) and files[0].suffix != ".sgm":
        yield from ParallelFiles(*files)()
        return
    path = Path(tmp_dir) / os.path.basename(address)
    if os.path.exists(address):
        path = Path(address)
    reader = _archive_format(path)
    pairs = reader.pairs(path.parent, path.name, source, target)
    if not path.exists():
        if "://" not in address:
            raise UserError(
                f"source_data_files: there is no {files[0]}, and no archive {path}"
            )
        reader.download(reader.pairs(path.parent, address, source, target))
    yield from pairs()


def _archive_format(path: Path) -> ArchiveFormat:
    """Returns the format of an archive by its name.

    Raises:
        UserError: there is none.
    """
    formats: dict[str, ArchiveFormat] = load_plugins("archives")
    suffixes = [suffix for known in formats.values() for suffix in known.suffixes]
    for known in formats.values():
        if path.name.lower().endswith(known.suffixes):
            return known
    raise UserError(
        f"source_data_files: {path.name} is not an archive ({', '.join(suffixes)}); "
        f"unpack it into {path.parent}"
    )


def generate_lines_for_vocab(
    tmp_dir: str, sources: Iterable[Sequence[Any]], file_byte_budget: float = _BUDGET
) -> Iterator[str]:
    """Yields lines of archives, evenly spread, of about so many bytes for each file."""
    from .translate import dataset_pairs

    for dataset in sources:
        total = 0
        for pair in dataset_pairs(tmp_dir, dataset):
            total += len(pair[0].encode("utf-8", "surrogatepass"))
        step = int(total / file_byte_budget / 2) + 1
        for number, pair in enumerate(dataset_pairs(tmp_dir, dataset)):
            if number % step == step - 1:
                yield from (text.strip() for text in pair)


def get_or_generate_vocab_inner(
    data_dir: str,
    vocab_filename: str,
    vocab_size: int,
    generator: Iterable[str],
    max_subtoken_length: int | None = None,
    reserved_tokens: Sequence[str] | None = None,
) -> text_encoder.SubwordTextEncoder:
    """Returns the vocabulary of a file, which is trained and written if it is absent.

    `max_subtoken_length` has no effect.
    """
    path = Path(data_dir) / vocab_filename
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        say(f"training the vocabulary {path}")
        reserved = tuple(reserved_tokens or text_encoder.RESERVED_TOKENS)
        texts = map(text_encoder.to_unicode, generator)
        symbols = reserved[text_encoder.NUM_RESERVED_TOKENS :]
        train_subwords(texts, path, vocab_size, symbols)
    return text_encoder.SubwordTextEncoder(str(path))


def get_or_generate_vocab(
    data_dir: str,
    tmp_dir: str,
    vocab_filename: str,
    vocab_size: int,
    sources: Iterable[Sequence[Any]],
    file_byte_budget: float = _BUDGET,
    max_subtoken_length: int | None = None,
) -> text_encoder.SubwordTextEncoder:
    """Returns a vocabulary, which is trained on archives if it is absent."""
    texts = generate_lines_for_vocab(tmp_dir, sources, file_byte_budget)
    return get_or_generate_vocab_inner(data_dir, vocab_filename, vocab_size, texts)


def get_or_generate_txt_vocab(
    data_dir: str, vocab_filename: str, vocab_size: int, filepatterns: Any
) -> text_encoder.SubwordTextEncoder:
    """Returns a vocabulary, which is trained on text files if it is absent."""
    patterns = [filepatterns] if isinstance(filepatterns, str) else filepatterns
    texts = (
        line.strip()
        for pattern in patterns
        for path in sorted(glob.glob(pattern))
        for line in read_lines(path)
    )
    return get_or_generate_vocab_inner(data_dir, vocab_filename, vocab_size, texts)


def get_or_generate_tabbed_vocab(
    data_dir: str,
    tmp_dir: str,
    source_filename: str,
    index: int,
    vocab_filename: str,
    vocab_size: int,
) -> text_encoder.SubwordTextEncoder:
    """Returns a vocabulary, which is trained on a column of a file if it is absent."""
    from .text_problems import txt_line_iterator

    lines = txt_line_iterator(os.path.join(tmp_dir, source_filename))
    texts = (line.split("\t", 1)[index].strip() for line in lines if "\t" in line)
    return get_or_generate_vocab_inner(data_dir, vocab_filename, vocab_size, texts)


def __getattr__(name: str) -> Any:
    return missing_name(__name__, name)

"""tensor2tensor's `generator_utils`: downloads, archives, and vocabularies."""

import glob
import gzip
import itertools
import os
import shutil
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from t2t_keras.console import say
from t2t_keras.errors import UserError
from t2t_keras.files.atomic import atomic
from t2t_keras.files.text_files import read_lines

from ..dataset_pairs import Dataset, dataset_files
from ..missing import missing_name
from ..text_lines import txt_line_iterator
from . import text_encoder

# Vocabularies are trained on about this many bytes of each file.
_FILE_BYTE_BUDGET = 1e6


def maybe_download(directory: str, filename: str, uri: str) -> str:
    """Downloads or copies a file unless it exists, and returns its path.

    Raises:
        UserError: the file cannot be downloaded.
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
    """Returns the path of a file of Google Drive, which must exist already."""
    path = Path(directory) / filename
    if not path.exists():
        raise UserError(f"there is no {path}; download it from {url}")
    return str(path)


def gunzip_file(gz_path: str, new_path: str) -> None:
    """Decompresses a file unless the result exists."""
    if not os.path.exists(new_path):
        with (
            atomic(Path(new_path)) as incomplete,
            gzip.open(gz_path) as compressed,
            incomplete.open("wb") as file,
        ):
            shutil.copyfileobj(compressed, file)


def generate_lines_for_vocab(
    tmp_dir: str,
    sources: Iterable[Dataset],
    file_byte_budget: float = _FILE_BYTE_BUDGET,
) -> Iterator[str]:
    """Yields the lines of each file that tensor2tensor takes, as it counts them.

    Raises:
        UserError: a file cannot be downloaded or read.
    """
    for dataset in sources:
        for size, lines in dataset_files(tmp_dir, dataset):
            interval = int(size / file_byte_budget / 2) + 1
            budget = file_byte_budget
            for line in itertools.islice(lines, interval - 1, None, interval):
                if budget <= 0:
                    break
                text = line.strip()
                budget -= len(text)
                yield text


def get_or_generate_vocab_inner(
    data_dir: str | None,
    vocab_filename: str | None,
    vocab_size: int,
    generator: Iterable[str],
    max_subtoken_length: int | None = None,
    reserved_tokens: Sequence[str] | None = None,
) -> text_encoder.SubwordTextEncoder:
    """Returns the vocabulary in a file, which is trained and written if it is missing.

    Without a directory or a name, it is trained and not written.
    """
    if not (data_dir and vocab_filename):
        return text_encoder.SubwordTextEncoder.build_from_generator(
            generator, vocab_size, max_subtoken_length, reserved_tokens
        )
    path = Path(data_dir) / vocab_filename
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        text_encoder.train_vocab(
            generator, path, vocab_size, max_subtoken_length, reserved_tokens
        )
    return text_encoder.SubwordTextEncoder(str(path))


def get_or_generate_vocab(
    data_dir: str,
    tmp_dir: str,
    vocab_filename: str,
    vocab_size: int,
    sources: Iterable[Dataset],
    file_byte_budget: float = _FILE_BYTE_BUDGET,
    max_subtoken_length: int | None = None,
) -> text_encoder.SubwordTextEncoder:
    """Returns a vocabulary, which is trained on archives if it is missing."""
    texts = generate_lines_for_vocab(tmp_dir, sources, file_byte_budget)
    return get_or_generate_vocab_inner(
        data_dir, vocab_filename, vocab_size, texts, max_subtoken_length
    )


def get_or_generate_txt_vocab(
    data_dir: str,
    vocab_filename: str,
    vocab_size: int,
    filepatterns: str | Iterable[str],
) -> text_encoder.SubwordTextEncoder:
    """Returns a vocabulary, which is trained on text files if it is missing."""
    patterns = [filepatterns] if isinstance(filepatterns, str) else filepatterns
    texts = _lines_of_files(patterns)
    return get_or_generate_vocab_inner(data_dir, vocab_filename, vocab_size, texts)


def _lines_of_files(patterns: Iterable[str]) -> Iterator[str]:
    for pattern in patterns:
        for path in sorted(glob.glob(pattern)):
            for line in read_lines(path):
                yield line.strip()


def get_or_generate_tabbed_vocab(
    data_dir: str,
    tmp_dir: str,
    source_filename: str,
    index: int,
    vocab_filename: str,
    vocab_size: int,
) -> text_encoder.SubwordTextEncoder:
    """Returns a vocabulary, which is trained on a column of a file if it is missing."""
    lines = txt_line_iterator(os.path.join(tmp_dir, source_filename))
    texts = (line.split("\t", 1)[index].strip() for line in lines if "\t" in line)
    return get_or_generate_vocab_inner(data_dir, vocab_filename, vocab_size, texts)


def __getattr__(name: str) -> object:
    return missing_name(__name__, name)

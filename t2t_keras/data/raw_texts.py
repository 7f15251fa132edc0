"""Raw texts of dev and test, `{data_name}-{split}.sources` and `.targets`.

Metrics compare with them, because decoding ids does not restore the text if the
vocabulary normalizes.
"""

import contextlib
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from t2t_keras.data.record_index import RecordIndex
from t2t_keras.data.sources import changed_source
from t2t_keras.errors import UserError
from t2t_keras.files.atomic import atomic
from t2t_keras.problem import SIDES, Pair, Problem, Split


def text_paths(data_dir: Path, data_name: str, split: str) -> list[Path]:
    """Returns the files with the sources and with the targets of a split."""
    return [Path(data_dir) / f"{data_name}-{split}.{side}s" for side in SIDES]


def write_raw_texts(
    problem: Problem, split: Split, num_pairs: int, data_dir: Path
) -> None:
    """Writes the texts of a split, unless the files exist.

    Args:
        problem: the problem with the source of the split.
        split: the split.
        num_pairs: the number of pairs when they were counted.
        data_dir: the directory to write to.

    Raises:
        UserError: the source now has another number of pairs.
    """
    paths = text_paths(data_dir, problem.data_name, split)
    if all(path.exists() for path in paths):
        return
    count = write_texts(paths, problem.sources[split]())
    if count != num_pairs:
        for path in paths:
            path.unlink()
        raise changed_source(split, num_pairs, count)


def write_texts(paths: Sequence[Path], pairs: Iterable[Pair]) -> int:
    r"""Writes the texts of pairs, one a line, atomically; returns their number.

    A "\n" within a text is written as a space.

    Args:
        paths: the files of the sources and of the targets.
        pairs: the pairs of the split, in the order of the records.
    """
    count = 0
    with contextlib.ExitStack() as stack:
        # A user's source may yield lone surrogates.
        files = []
        for path in paths:
            incomplete = stack.enter_context(atomic(path))
            file = incomplete.open("w", -1, "utf-8", "surrogatepass", "\n")
            files.append(stack.enter_context(file))
        for pair in pairs:
            for file, text in zip(files, pair, strict=True):
                file.write(text.replace("\n", " ") + "\n")
            count += 1
    return count


def read_texts(
    data_dir: Path,
    data_name: str,
    split: str,
    index: RecordIndex,
    checksums: Sequence[str] | None,
) -> tuple[list[str], list[str]] | None:
    """Returns the raw sources and targets of a split, in the order of the records.

    Args:
        data_dir: the data directory.
        data_name: `Problem.data_name`.
        split: "train", "dev" or "test".
        index: the index of the split, whose sides may be swapped.
        checksums: the SHA-256 of both files, from the manifest; None: there are no such
            files, because tensor2tensor wrote the data, or the split is train.

    Returns:
        None if there are no such files.

    Raises:
        UserError: a file is missing or damaged.
    """
    paths = text_paths(data_dir, data_name, split)
    if checksums is None:
        return None
    texts = list(map(_read_lines, paths, checksums))
    source, target = texts[::-1] if index.swapped else texts
    return source, target


def _read_lines(path: Path, checksum: str) -> list[str]:
    """Returns the lines of a file; raises `UserError` if it has been changed."""
    advice = "copy the file again, or generate the data in another --data_dir"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot use {path}: {error.strerror}; {advice}") from None
    if checksum != hashlib.sha256(content).hexdigest():
        raise UserError(f"cannot use {path}: it has been changed; {advice}")
    return content.decode("utf-8", "surrogatepass").split("\n")[:-1]

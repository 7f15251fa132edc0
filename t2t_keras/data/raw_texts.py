"""Raw texts of dev and test, `{data_name}-{split}.sources` and `.targets`.

Metrics compare with them, because decoding ids does not restore the text if the
vocabulary normalizes.
"""

import contextlib
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from t2t_keras.data.atomic_files import atomic
from t2t_keras.data.record_index import RecordIndex
from t2t_keras.errors import UserError
from t2t_keras.problem import Pair


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
        incomplete = [stack.enter_context(atomic(path)) for path in paths]
        files = [
            stack.enter_context(path.open("w", -1, "utf-8", "surrogatepass", "\n"))
            for path in incomplete
        ]
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
    checksums: Sequence[str] | None = None,
) -> tuple[list[str], list[str]] | None:
    """Returns the raw sources and targets of a split, in the order of the records.

    Args:
        data_dir: the data directory.
        data_name: `Problem.data_name`.
        split: "train", "dev" or "test".
        index: the index of the split, whose sides may be swapped.
        checksums: the SHA-256 of both files, from the manifest; None: unknown.

    Returns:
        None if the directory has none: it is of tensor2tensor or of an earlier
        version, or the split is train.

    Raises:
        UserError: a file is missing or damaged.
    """
    stem = f"{data_name}-{split}"
    paths = [Path(data_dir) / f"{stem}.{name}" for name in ("sources", "targets")]
    if not (checksums or any(path.exists() for path in paths)):
        return None
    texts = []
    for path, checksum in zip(paths, checksums or (None, None), strict=True):
        lines = list[str]()
        try:
            content = path.read_bytes()
            lines = content.decode("utf-8", "surrogatepass").split("\n")[:-1]
            wrong = f"it has {len(lines):,} lines for {len(index):,} records"
            if len(lines) == len(index):
                is_whole = checksum in (None, hashlib.sha256(content).hexdigest())
                wrong = "" if is_whole else "it has been changed"
        except UnicodeDecodeError:
            wrong = "it is not valid UTF-8"
        except OSError as error:
            wrong = str(error.strerror)
        if wrong:
            raise UserError(
                f"cannot use {path}: {wrong}; copy the file again, or generate the "
                "data in another --data_dir"
            )
        texts.append(lines)
    source, target = texts[::-1] if index.swapped else texts
    return source, target

"""The files of commands on a cluster: which they are, and how any node reads them."""

import glob
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from t2t_keras.cli.translation import MAX_CHARACTERS, MAX_LINES
from t2t_keras.errors import UserError
from t2t_keras.files.text_files import (
    COMPRESSED,
    LONGEST_LINE,
    open_binary,
    readable,
    require_text,
)

# What a command itself writes into the folder of the outputs.
LOG = "cluster.jsonl"
FAULTS = "cluster.faults.jsonl"
LOCK = "cluster.lock"


def matching_files(flag: str, pattern: str) -> list[Path]:
    """Returns the files that match a pattern such as `crawl-*.gz`, sorted by name.

    Raises:
        UserError: there is none.
    """
    names = glob.glob(pattern, recursive=True) or glob.glob(glob.escape(pattern))
    files = sorted(Path(name) for name in names if os.path.isfile(name))
    if not files:
        raise UserError(f"--{flag}: no file matches {pattern}")
    return files


def matching_pairs(
    source_pattern: str, target_pattern: str
) -> tuple[list[Path], list[Path]]:
    """Returns the files of sources and of targets, pairs at the same place.

    Files are a pair if the wildcards stand for the same text in both patterns.

    Raises:
        UserError: a file has no partner.
    """
    targets = {}
    for path in matching_files("target", target_pattern):
        targets[_wildcard_text(path, target_pattern)] = path
    sources = matching_files("input", source_pattern)
    partners = []
    for path in sources:
        partner = targets.pop(_wildcard_text(path, source_pattern), None)
        if partner is None:
            raise UserError(
                f"--target: no file that matches {target_pattern} belongs to {path}; "
                "the wildcards must stand for the same in both names"
            )
        partners.append(partner)
    for path in targets.values():
        raise UserError(
            f"--input: no file that matches {source_pattern} belongs to {path}; the "
            "wildcards must stand for the same in both names"
        )
    return sources, partners


# The wildcards of `glob`, and what a regular expression has in their place.
_WILDCARDS = {
    r"\*\*/": "(?:(.*)/)?",  # any number of folders, or none
    r"\*+": "(.*)",
    r"\?": "(.)",
    r"\[[^]]*\]": "(.)",
}


def _wildcard_text(path: Path, pattern: str) -> tuple[str | None, ...]:
    """Returns what each wildcard of a pattern stands for in a path."""
    parts = re.split(f"({'|'.join(_WILDCARDS)})", os.path.normpath(pattern))
    expression = ""
    for part in parts:
        groups = [
            x for wildcard, x in _WILDCARDS.items() if re.fullmatch(wildcard, part)
        ]
        expression += groups[0] if groups else re.escape(part)
    match = re.fullmatch(expression, os.path.normpath(path), re.DOTALL)
    return match.groups() if match else (str(path),)


def output_paths(inputs: Sequence[Path], folder: Path) -> list[Path]:
    """Returns the output of each file: its name without the suffix of a compression.

    Raises:
        UserError: the folder is a file, two outputs have the same name, or one is an
            input or has the name of a file that the command itself writes.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(
            f"--output: {folder} is a file; with --cluster the output is a folder"
        )
    owners: dict[Path, Path] = {}
    real_inputs = {os.path.realpath(path) for path in inputs}
    for path in inputs:
        name = path.stem if path.suffix.lower() in COMPRESSED else path.name
        output = folder / name
        if name in (LOG, FAULTS, LOCK):
            raise UserError(
                f"--output: {path} would be written to {output}, which is a file of "
                "the command itself; rename the input"
            )
        if output in owners:
            raise UserError(
                f"--output: {owners[output]} and {path} would both be written to "
                f"{output}; rename one of them"
            )
        if os.path.realpath(output) in real_inputs:
            raise UserError(
                f"--output: {output} is an input; name another folder for the outputs"
            )
        owners[output] = path
    return list(owners)


class Chunk(NamedTuple):
    """Lines of a file, or of a pair of files, that are computed together.

    Attributes:
        file: the index of the file.
        name: the path of the file, or of both, for messages.
        start: the number of lines before them.
        texts: the text of each line, or source and target.
        faults: what is wrong with a line, by its index in the chunk.
        mistake: why the rest of the file cannot be read; "": there is no mistake.
        is_last: whether the file has no further lines.
    """

    file: int
    name: str
    start: int
    texts: list[tuple[str, ...]]
    faults: dict[int, str]
    mistake: str = ""
    is_last: bool = False


def read_chunks(file: int, paths: Sequence[str]) -> Iterator[Chunk]:
    """Yields the lines of a file, in the chunks of `t2t translate`.

    The last one may be empty.

    Args:
        file: the index of the file.
        paths: the file, or those of sources and of targets.
    """
    name = " and ".join(paths)
    chunk = Chunk(file, name, 0, [], {})
    characters = 0
    mistake = ""
    try:
        for rows in itertools.zip_longest(*map(checked_lines, paths)):
            if None in rows:
                raise UserError(f"{name} differ in their number of lines")
            texts, faults = zip(*rows, strict=True)
            if fault := next(filter(None, faults), ""):
                chunk.faults[len(chunk.texts)] = fault
            chunk.texts.append(texts)
            characters += sum(map(len, texts))
            if len(chunk.texts) == MAX_LINES or characters >= MAX_CHARACTERS:
                yield chunk
                chunk = Chunk(file, name, chunk.start + len(chunk.texts), [], {})
                characters = 0
    except UserError as error:
        mistake = str(error)
    yield chunk._replace(mistake=mistake, is_last=True)


def checked_lines(path: str) -> Iterator[tuple[str, str]]:
    """Yields each line as `read_lines` does, and what is wrong with it; "": nothing.

    The text of a faulty line is empty.

    Raises:
        UserError: the file cannot be read, is damaged, or is not a text.
    """
    with readable(path), open_binary(path) as file:
        require_text(file, path)
        for index, line in enumerate(iter(lambda: _read_line(file), b"")):
            if len(line) > LONGEST_LINE:
                yield "", f"more than {LONGEST_LINE:,} bytes"
                continue
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                yield "", f"byte {line[error.start]:#04x} is not valid UTF-8"
                continue
            if index == 0:
                text = text.removeprefix("\ufeff")
            yield text.removesuffix("\n").removesuffix("\r"), ""


def _read_line(file: BinaryIO) -> bytes:
    """Returns a line with its end; of one that is too long, only the beginning."""
    line = file.readline(LONGEST_LINE + 1)
    part = line
    while len(part) > LONGEST_LINE and not part.endswith(b"\n"):
        part = file.readline(LONGEST_LINE + 1)
    return line

"""The files that a command on a cluster reads, and the names of its outputs."""

import glob
import os
import re
from collections.abc import Sequence
from pathlib import Path

from t2t_keras.errors import UserError
from t2t_keras.files.text_files import COMPRESSED

from .output_files import RESERVED_NAMES


def absolute(path: str | Path) -> str:
    """Returns a path that means the same on nodes with other working directories."""
    return str(Path(path).absolute())


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
        UserError: two outputs have the same name, or one is an input or has the name of
            a file that the command itself writes.
    """
    owners: dict[Path, Path] = {}
    real_inputs = {os.path.realpath(path) for path in inputs}
    for path in inputs:
        name = path.stem if path.suffix.lower() in COMPRESSED else path.name
        output = folder / name
        if name in RESERVED_NAMES:
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

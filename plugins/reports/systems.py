"""The systems that `compare` compares: files of outputs, runs, checkpoints, exports."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from t2t_keras import load
from t2t_keras.cli.checks import (
    require_directory,
    require_lines,
    require_outputs,
    require_readable,
)
from t2t_keras.cli.decoding import given_decoding
from t2t_keras.cli.evaluation import chosen_split
from t2t_keras.cli.lines import read_lines
from t2t_keras.errors import UserError
from t2t_keras.export.formats import find_loader
from t2t_keras.run.config import is_run, require_run

if TYPE_CHECKING:
    from t2t_keras.evaluation.evaluator import Decoded
    from t2t_keras.run.directory import RunDirectory

    from .significance import System


class Texts(NamedTuple):
    """Sentences and the outputs of systems for them; None: the sources are unknown."""

    sources: list[str] | None
    references: list[str]
    systems: "list[System]"


def _is_checkpoint(system: str) -> bool:
    """Returns whether a path names a checkpoint in a run directory."""
    return Path(f"{system}.index").exists() and is_run(Path(system).parent)


def _is_export(system: str) -> bool:
    """Returns whether a path names an export that this package can run."""
    return find_loader(Path(system)) is not None


def needs_model(system: str) -> bool:
    """Returns whether a system is a run, a checkpoint or an export."""
    return Path(system).is_dir() or _is_checkpoint(system)


def check_files(args: argparse.Namespace) -> None:
    """Raises UserError if a file cannot be used, or a system is not a run."""
    for system in args.systems:
        if not needs_model(system):
            require_readable(system)
        elif not (_is_checkpoint(system) or _is_export(system)):
            require_run(system)
    if all(_is_export(s) for s in args.systems if needs_model(s)):
        for system in filter(_is_export, args.systems):
            raise UserError(
                f"{system} is an export, which has no data; compare it with a run, or "
                "compare files that `t2t translate --export_dir` wrote"
            )
    require_readable(args.references)
    require_readable(args.sources)
    require_directory("data_dir", args.data_dir)
    require_outputs(args, {"page": [args.page] if args.page else []})


def open_runs(systems: Sequence[str]) -> "dict[str, RunDirectory]":
    """Returns the run directory of each system that is a run or a checkpoint.

    Raises:
        UserError: two runs have different problems.
    """
    if not any(map(needs_model, systems)):
        return {}
    from t2t_keras.run.directory import RunDirectory

    runs = {
        system: RunDirectory(
            Path(system).parent if _is_checkpoint(system) else Path(system)
        )
        for system in systems
        if needs_model(system) and not _is_export(system)
    }
    first, *others = ((system, run.config.problem) for system, run in runs.items())
    for other in others:
        if other[1] != first[1]:
            raise UserError(
                f"{other[0]} is a run of problem '{other[1]}' and {first[0]} one of "
                f"'{first[1]}'; compare runs of one problem"
            )
    return runs


def read_texts(args: argparse.Namespace, runs: "dict[str, RunDirectory]") -> Texts:
    """Reads the outputs of files, and decodes with runs.

    Raises:
        UserError: runs decoded different sentences, or a file and the references
            differ in their number of lines.
    """
    from .significance import System

    models = {*filter(needs_model, args.systems)}
    files = {s: list(read_lines(s)) for s in args.systems if s not in models}
    outputs = dict(files)
    sources, references = None, []
    if not runs:
        references = list(read_lines(args.references))
        if args.sources:
            files[args.sources] = sources = list(read_lines(args.sources))
        require_lines(files, args.references, references)
    for system, run in runs.items():
        decoded = _decoded(args, system, run)
        outputs[system] = decoded.outputs
        if sources is None:
            sources, references = decoded.sources, decoded.references
            first = system
            require_lines(files, first, references)
        elif (decoded.sources, decoded.references) != (sources, references):
            raise UserError(
                f"{system} and {first} have data with different sentences; give a "
                "--data_dir that has the vocabularies of both, or compare files that "
                "`t2t evaluate --output` wrote"
            )
    for system in filter(_is_export, args.systems):
        outputs[system] = load(system).translate(sources or [], **given_decoding(args))
    systems = [System(system, outputs[system]) for system in args.systems]
    return Texts(sources, references, systems)


def _decoded(args: argparse.Namespace, system: str, run: "RunDirectory") -> "Decoded":
    """Decodes a split with a run's model."""
    from t2t_keras.data.files import progress
    from t2t_keras.run.evaluation import open_split

    checkpoint = system if _is_checkpoint(system) else args.checkpoint
    split = chosen_split(run, args.split, args.data_dir)
    evaluator = open_split(run, run.translator(checkpoint), split, args.data_dir)
    options = given_decoding(args)
    return evaluator.decode(args.eval_sentences, progress, **options)

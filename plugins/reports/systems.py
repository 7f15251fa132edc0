"""The systems that `t2t compare` takes: output files, runs, checkpoints and exports."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from t2t_keras import load
from t2t_keras.cli.evaluation import load_engine, select_split
from t2t_keras.cli.lines import (
    read_lines,
    require_directory,
    require_lines,
    require_outputs,
    require_readable,
)
from t2t_keras.console import progress, say
from t2t_keras.errors import UserError
from t2t_keras.exporting.formats import find_loader
from t2t_keras.problem import Split
from t2t_keras.run.config import is_run, require_run

if TYPE_CHECKING:
    from t2t_keras.run.directory import RunDirectory

    from .compare import Compare


class System(NamedTuple):
    """A system and its output for each sentence.

    Attributes:
        name: its name.
        outputs: the outputs.
        engine: the library that decoded them; "": it is unknown.
    """

    name: str
    outputs: Sequence[str]
    engine: str = ""


class Texts(NamedTuple):
    """A test set and the systems' outputs for it.

    Attributes:
        sources: the source texts; None: they are unknown.
        references: the correct outputs.
        systems: the systems in the order of the command line.
    """

    sources: list[str] | None
    references: list[str]
    systems: list[System]


def _is_checkpoint(system: str) -> bool:
    """Returns whether a path is that of a checkpoint in a run directory."""
    return Path(f"{system}.index").exists() and is_run(Path(system).parent)


def _is_export(system: str) -> bool:
    """Returns whether a path is that of an export that this package can run."""
    return find_loader(Path(system)) is not None


def needs_model(system: str) -> bool:
    """Returns whether a system is a run, a checkpoint or an export."""
    return Path(system).is_dir() or _is_checkpoint(system)


def check_files(command: "Compare") -> None:
    """Refuses a file or a system that cannot be used.

    Raises:
        UserError: there is one.
    """
    exports = []
    has_run = False
    for system in command.systems:
        if not needs_model(system):
            require_readable(system)
        elif _is_export(system):
            exports.append(system)
        else:
            has_run = True
            if not _is_checkpoint(system):
                require_run(system)
    if exports and not has_run:
        raise UserError(
            f"{exports[0]} is an export, which has no data; compare it with a run, or "
            "compare files that `t2t translate` wrote"
        )
    require_readable(command.references)
    require_readable(command.input)
    require_directory("data_dir", command.data_dir)
    require_outputs(command, {"page": [command.page] if command.page else []})


def open_runs(systems: Sequence[str]) -> "dict[str, RunDirectory]":
    """Returns the run directory of each system that is a run or a checkpoint.

    Raises:
        UserError: two runs have different problems.
    """
    if not any(map(needs_model, systems)):
        return {}
    from t2t_keras.run.directory import RunDirectory

    runs = {}
    for system in systems:
        if needs_model(system) and not _is_export(system):
            path = Path(system)
            runs[system] = RunDirectory(path.parent if _is_checkpoint(system) else path)
    baseline = next(iter(runs))
    baseline_problem = runs[baseline].config.problem
    for system, run in runs.items():
        if run.config.problem != baseline_problem:
            raise UserError(
                f"{system} is a run of problem '{run.config.problem}' but {baseline} "
                f"is a run of '{baseline_problem}'; compare runs of the same problem"
            )
    return runs


def read_texts(command: "Compare", runs: "dict[str, RunDirectory]") -> Texts:
    """Reads the output files, and decodes with the runs and exports.

    Raises:
        UserError: the data of two runs have different sentences, or a file has more or
            fewer lines than the references.
    """
    sources: list[str] | None
    systems: dict[str, System] = {}
    for name in command.systems:
        if not needs_model(name):
            systems[name] = System(name, list(read_lines(name)))
    files = {name: system.outputs for name, system in systems.items()}
    if runs:
        sources, references = _decode_runs(command, runs, files, systems)
    else:
        sources, references = _read_references(command, files)
    for name in command.systems:
        if _is_export(name):
            systems[name] = _decode_export(command, name, sources or [])
    return Texts(sources, references, [systems[name] for name in command.systems])


def _read_references(
    command: "Compare", outputs: Mapping[str, Sequence[str]]
) -> tuple[list[str] | None, list[str]]:
    """Returns the sources, if there is a file, and the references."""
    assert command.references is not None  # without runs it is required
    references = list(read_lines(command.references))
    files = dict(outputs)
    sources = None
    if command.input:
        sources = list(read_lines(command.input))
        files[command.input] = sources
    require_lines(files, command.references, references)
    return sources, references


def _decode_runs(
    command: "Compare",
    runs: "dict[str, RunDirectory]",
    files: Mapping[str, Sequence[str]],
    systems: dict[str, System],
) -> tuple[list[str], list[str]]:
    """Adds the runs to the systems; returns sources and references.

    Data that cannot be compared are refused before anything is decoded.
    """
    from t2t_keras.run.evaluation import split_texts

    baseline, first_run = next(iter(runs.items()))
    data_dirs = [command.data_dir or run.config.data_dir for run in runs.values()]
    split = select_split(command.split, first_run.problem, data_dirs)
    texts = split_texts(first_run, split, command.data_dir, command.eval_sentences)
    for name, run in runs.items():
        if split_texts(run, split, command.data_dir, command.eval_sentences) != texts:
            raise UserError(
                f"{name} and {baseline} have data with different {split} sentences; "
                "give a --data_dir that has the vocabularies of both, or compare files "
                "that `t2t evaluate --output` wrote"
            )
    require_lines(files, baseline, texts[1])
    for name, run in runs.items():
        systems[name] = _decode_run(command, name, run, split)
    return texts


def _decode_run(
    command: "Compare", name: str, run: "RunDirectory", split: Split
) -> System:
    """Decodes the sources of a split with a run's model."""
    from t2t_keras.run.evaluation import open_split

    checkpoint = name if _is_checkpoint(name) else command.checkpoint
    say(f"decoding with {name}")
    engine = load_engine(run, checkpoint, command.decoding, command.engine)
    translator = run.translator(checkpoint)
    evaluator = open_split(run, translator, split, command.data_dir)
    decoded = evaluator.decode(
        command.eval_sentences, progress, engine, **command.decoding
    )
    return System(name, decoded.outputs, (engine or translator).engine_name)


def _decode_export(command: "Compare", name: str, sources: list[str]) -> System:
    """Decodes the sources with an export."""
    say(f"decoding with {name}")
    model = load(name)
    with progress("decoding", "sentences", len(sources)) as advance:
        n_best = model.n_best(sources, 1, advance=advance, **command.decoding)
    outputs = [hypotheses[0].text for hypotheses in n_best]
    return System(name, outputs, model.engine_name)

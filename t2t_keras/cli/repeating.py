"""The command that prints the file of flags that repeats a run: `config`."""

import contextlib
import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_keras import registry
from t2t_keras.cli.command import Command, CommandResult, RunFlags
from t2t_keras.cli.lines import require_outputs
from t2t_keras.errors import UserError
from t2t_keras.files.atomic import write_lines
from t2t_keras.options import option
from t2t_keras.problem import Problem
from t2t_keras.run.config import RunConfig, require_run
from t2t_keras.usr_dir import load_usr_dir

if TYPE_CHECKING:
    from t2t_keras.data.manifest import Manifest

# The flags that stand in the table [train], besides the options of the training.
# `datagen` has a seed too, which is that of the data; the others are of `train` alone.
_TRAIN_FLAGS = ("seed", "init_from", "accumulate")


@dataclasses.dataclass(kw_only=True)
class Config(RunFlags, Command):
    """Prints or writes the file of flags that repeats a run."""

    summary = "print the file of flags that repeats a run, for --config"
    heading = "data and training"

    output: str | None = option(
        None, "the file, in TOML (default: standard output)", metavar="FILE"
    )

    def check(self) -> None:
        """Refuses a run without a training, and a file that cannot be written."""
        require_run(self.output_dir)
        RunConfig.read(Path(self.output_dir)).require_training(self.output_dir)
        require_outputs(self, {"output": [self.output] if self.output else []})

    def run(self) -> CommandResult:
        """Returns the flags, and the text of the file unless it is written."""
        run = Path(self.output_dir)
        config = RunConfig.read(run)
        if config.usr_dir:
            load_usr_dir(config.usr_dir)
        changes = config.changed_hparams(config.read_hparams(run / "hparams.json"))
        manifest = None
        with contextlib.suppress(UserError):  # the data may be gone
            manifest = config.manifest()
        flags = _repeating_flags(run, config, changes, manifest)
        text = _toml(flags, _comments(run, config, manifest))
        if self.output:
            write_lines(self.output, text.splitlines())
        return {"config": flags, "text": "" if self.output else text}

    def show(self, result: CommandResult) -> str:
        """Returns the text of the file."""
        return str(result["text"])

    def next_command(self) -> str:
        """Returns the command that takes the file."""
        return "t2t train --config FILE"


def training_flags(
    config: RunConfig, changes: Mapping[str, object]
) -> dict[str, object]:
    """Returns the flags of `t2t train` that repeat a run, but for `--output_dir`.

    A dict in the result has the pairs of one flag.

    Args:
        config: the configuration of the run.
        changes: the hyper-parameters that differ from those of the set, see
            `RunConfig.changed_hparams`.
    """
    # Without a set, the hyper-parameters are those of the run in `init_from`.
    is_imported = config.init_from and config.hparams_set not in registry.list_hparams()
    flags: dict[str, object] = {
        "problem": config.problem,
        "hparams_set": None if is_imported else config.hparams_set,
        "hparams": dict(changes),
        "data_dir": config.data_dir,
        "usr_dir": config.usr_dir,
        "seed": config.seed,
        "init_from": config.init_from,
        "accumulate": config.accumulate if config.accumulate != 1 else None,
        **config.train_options,
    }
    return {name: value for name, value in flags.items() if value not in (None, {})}


def _repeating_flags(
    run: Path,
    config: RunConfig,
    changes: Mapping[str, object],
    manifest: "Manifest | None",
) -> dict[str, object]:
    """Returns the flags of `datagen` and `train` that repeat a run, by name.

    A table of the result has the flags of one command, or the pairs of one flag.

    Args:
        run: the run directory.
        config: its configuration.
        changes: see `training_flags`.
        manifest: the manifest of its data; None: the data are no longer there.
    """
    flags: dict[str, object] = {}
    train: dict[str, object] = {}
    for name, value in training_flags(config, changes).items():
        is_of_train = name in _TRAIN_FLAGS or name in config.train_options
        (train if is_of_train else flags)[name] = value
    flags["output_dir"] = str(run)
    if manifest is not None:
        is_reversed = registry.problem(config.problem).reverse
        flags["datagen"] = _datagen_flags(manifest, is_reversed)
    return flags | {"train": train}


def _datagen_flags(manifest: "Manifest", is_reversed: bool) -> dict[str, object]:
    """Returns the flags of `t2t datagen`, as far as the data tell them.

    Args:
        manifest: the manifest of the data.
        is_reversed: whether the problem has source and target swapped.
    """
    rules = []
    for rule, value in manifest.cleaning.items():
        rules.append(rule if value is True else f"{rule}={value}")
    flags: dict[str, object] = {"seed": manifest.seed}
    flags["max_length"] = manifest.max_length
    for split, size in manifest.held_out.items():
        flags[f"{split}_size"] = size
    if not manifest.given_vocabularies:
        flags["vocab_size"] = manifest.vocab_size
    if languages := manifest.languages:
        flags["languages"] = "-".join(languages[::-1] if is_reversed else languages)
    return flags | {"clean": ",".join(rules) or "none"}


def _source_flags(problem: Problem, manifest: "Manifest") -> list[str]:
    """Returns some flags of `t2t datagen` that the data need; none: they need none."""
    if problem.flags is not None:
        return [flag.name for flag in dataclasses.fields(problem.flags)][:2]
    has_files = any(source.startswith("files") for source in manifest.sources.values())
    return ["train_source", "train_target"] if has_files else []


def _comments(run: Path, config: RunConfig, manifest: "Manifest | None") -> list[str]:
    """Returns what the file cannot say, as sentences."""
    comments = [f"Repeats {run}: `t2t train --config FILE --output_dir NEW`."]
    if manifest is None:
        comments.append(f"The data are not in {config.data_dir} any more.")
    elif names := _source_flags(registry.problem(config.problem), manifest):
        comments.append(
            f"For `t2t datagen`, add what names the data: {', '.join(names)}, ..."
        )
    if manifest is not None and manifest.given_vocabularies:
        comments.append(f'The vocabulary was given: vocab = ["{run}"] for datagen.')
    return comments


def _toml(flags: Mapping[str, Any], comments: list[str]) -> str:
    """Formats flags as TOML, whose tables come last."""
    lines = [f"# {comment}" for comment in comments]
    tables = {}
    for name, value in flags.items():
        if isinstance(value, dict):
            tables[name] = value
        else:
            lines.append(f"{name} = {_toml_value(value)}")
    for name, table in tables.items():
        lines += ["", f"[{name}]"]
        lines += [f"{key} = {_toml_value(value)}" for key, value in table.items()]
    return "\n".join(lines)


def _toml_value(value: object) -> str:
    """Formats a value; strings of JSON are strings of TOML."""
    if isinstance(value, dict):
        pairs = (f"{key} = {_toml_value(item)}" for key, item in value.items())
        return f"{{ {', '.join(pairs)} }}"
    return json.dumps(value, ensure_ascii=False)


COMMANDS = {"config": Config}

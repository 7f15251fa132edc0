"""Entry points: the plugins of installed packages, by name."""

import functools
import sys
from collections.abc import Iterable
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Any

from t2t_keras.errors import (
    UserError,
    did_you_mean,
    first_line,
    misspelt_names,
    printable,
)


def load_plugins(group: str) -> dict[str, Any]:
    """Returns the plugins of a group by name.

    Entry points of these groups are loaded when they are first needed:

    - `t2t_keras.problems`, `.models`, `.hparams`, `.scorers`,
      `.schedule_factors`: modules that register definitions;
    - `t2t_keras.commands`: a subclass of `cli.command.Command` for each command;
    - `t2t_keras.extensions`: a subclass of a command for each `COMMAND.FLAG`;
    - `t2t_keras.formats`: a `data.sources.Format` for each suffix of files of pairs;
    - `t2t_keras.archives`: a `data.sources.ArchiveFormat`;
    - `t2t_keras.tokenizers`: a `text.tokenizer.Tokenizer` class for each
      `Problem.tokenizer`;
    - `t2t_keras.exports`: an `exporting.formats.ExportFormat` for each `--format`;
    - `t2t_keras.counterparts`: a function for `counterpart`;
    - `t2t_keras.remarks`: a function for `hparams_remarks`;
    - `t2t_keras.hooks`: a `training.hooks.HookPlugin` for each flag that
      `t2t train` gets;
    - `t2t_keras.generators`: for each backend of Keras, what makes the function
      `Transformer.generate` of a model;
    - `t2t_keras.optimizers`: a `training.optimizer.Optimizer` for each value of the
      hyper-parameter `optimizer`, made of the weights by name and the `HParams`.

    A plugin that cannot be imported is left out with a warning.

    Args:
        group: the group, without `t2t_keras.`.
    """
    return _load(_entries(group))


def load_plugin(group: str, name: str) -> Any:
    """Returns one plugin; None if there is none of this name, see `load_plugins`."""
    return _load(_entries(group).select(name=name)).get(name)


def _entries(group: str) -> EntryPoints:
    """Returns the entry points of a group."""
    return _all_entries(tuple(sys.path)).get(f"t2t_keras.{group}", EntryPoints())


@functools.lru_cache(maxsize=1)
def _all_entries(path: tuple[str, ...]) -> dict[str, EntryPoints]:
    """Returns the entry points of all packages on a search path by their groups.

    Reading them opens a file of each package; a command asks for a dozen groups.
    """
    del path
    installed = entry_points()
    groups = [name for name in installed.groups if name.startswith("t2t_keras.")]
    return {name: installed.select(group=name) for name in groups}


def _load(entries: Iterable[EntryPoint]) -> dict[str, Any]:
    """Returns the plugins of entry points by name, except those that are absent."""
    plugins = {}
    for entry in entries:
        try:
            plugins[entry.name] = entry.load()
        except UserError:
            raise
        except Exception as error:
            if _is_absent(error, entry.module):
                continue
            reason = f"{type(error).__name__}: {first_line(error)}"
            message = (
                f"t2t_keras: the plugin {entry.value} cannot be imported: {reason}"
            )
            print(printable(message), file=sys.stderr)
    return plugins


def plugin_names(group: str) -> list[str]:
    """Returns the names of a group's plugins without importing them."""
    return sorted(_entries(group).names)


def _is_absent(error: Exception, module: str) -> bool:
    """Returns whether the plugin's own module is missing, as after its deletion."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    return name is not None and f"{module}.".startswith(f"{name}.")


def counterpart(context: str, name: str, value: str = "") -> str:
    """Returns what to use here instead of another toolkit's flag, command or key.

    Args:
        context: where the user gave the name: a command of `t2t` for a flag, or
            another toolkit's program in the place of one; "t2t" for a command;
            "hparams" or "decode_hparams" for a key.
        name: the name, of a flag with its hyphens.
        value: the value that the user gave, if any.

    Returns:
        A sentence; "" if no plugin knows the name.
    """
    for explain in load_plugins("counterparts").values():
        if sentence := explain(context, name, value):
            return sentence
    return ""


def hparams_remarks(hparams_set: str, changes: Iterable[str]) -> list[str]:
    """Returns the remarks of plugins about changes to an hparam set.

    Args:
        hparams_set: the name of the set.
        changes: the names of the hyper-parameters that the user changes.
    """
    names = list(changes)
    sentences: list[str] = []
    for remark in load_plugins("remarks").values():
        sentences += remark(hparams_set, names)
    return sentences


def unknown_name(
    context: str, name: str, names: Iterable[str], value: str = "", noun: str = "option"
) -> str:
    """Returns the message for an unknown name: its counterpart or the nearest name.

    A misspelt name of this project takes precedence over another toolkit's name.

    Args:
        context: see `counterpart`.
        name: the name that the user gave, of a flag with its hyphens.
        names: the names that there are, without hyphens.
        value: the value that the user gave.
        noun: what a name is, for the message.
    """
    names = list(names)
    stem = name.lstrip("-")
    if not misspelt_names(stem, names) and (
        sentence := counterpart(context, name, value)
    ):
        return sentence
    if stem == name:
        return f"there is no {noun} '{name}'{did_you_mean(name, names)}"
    return f"there is no {noun} {name}{did_you_mean(stem, names, '--{}')}"

"""Entry points: what installed packages add to t2t_keras, by name."""

import sys
from collections.abc import Callable, Iterable
from importlib.metadata import entry_points
from typing import Any

from t2t_keras.errors import UserError, did_you_mean, first_line


def load_plugins(group: str) -> dict[str, Any]:
    """Returns what installed packages add to t2t_keras, by name.

    Entry points of these groups are loaded when they are first needed:

    - `t2t_keras.problems`, `.models`, `.hparams`, `.scorers`: modules that register
      definitions;
    - `t2t_keras.commands`: a `cli.command.Command` for each command of `t2t`;
    - `t2t_keras.formats`: a `data.pair_files.Format` for each suffix of files of pairs;
    - `t2t_keras.archives`: a `data.sources.ArchiveFormat`;
    - `t2t_keras.tokenizers`: a `text.tokenizer.Tokenizer` class for each
      `Problem.tokenizer`;
    - `t2t_keras.exports`: an `export.formats.ExportFormat` for each `--format`;
    - `t2t_keras.counterparts`: a function that `counterpart` calls;
    - `t2t_keras.remarks`: a function that `remarks` calls;
    - `t2t_keras.optimizers`: a `training.optimizer.Optimizer` for each value of the
      hyper-parameter `optimizer`, made of the weights by name and the `HParams`.

    A plugin that cannot be imported is left out with a warning.

    Args:
        group: the group, without `t2t_keras.`.
    """
    plugins = {}
    for entry in entry_points(group=f"t2t_keras.{group}"):
        try:
            plugins[entry.name] = entry.load()
        except UserError:
            raise
        except Exception as error:
            if _is_absent(error, entry.module):
                continue
            print(
                f"t2t_keras: the plugin {entry.value} cannot be imported: "
                f"{type(error).__name__}: {first_line(error)}",
                file=sys.stderr,
            )
    return plugins


def plugin_names(group: str) -> list[str]:
    """Returns the names of `plugins` without importing them."""
    return sorted(entry.name for entry in entry_points(group=f"t2t_keras.{group}"))


def _is_absent(error: Exception, module: str) -> bool:
    """Returns whether the plugin's own module is missing, as after its deletion."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    return name is not None and f"{module}.".startswith(f"{name}.")


def counterpart(context: str, name: str, value: str = "") -> str:
    """Returns what plugins say of a name that is not ours but another toolkit's.

    Args:
        context: where the user has given it: a command of `t2t` for a flag, "t2t" for a
            command; "hparams", "decode_hparams" or "train_options" for a key.
        name: the name, of a flag with its hyphens.
        value: the value that the user has given, if there is one.

    Returns:
        A sentence that says what to use here; "" if no plugin knows the name.
    """
    explained = (
        explain(context, name, value) for explain in _load_functions("counterparts")
    )
    return next(filter(None, explained), "")


def hparams_remarks(hparams_set: str, changes: Iterable[str]) -> list[str]:
    """Returns what plugins say of changes to an hparam set, before a training.

    Args:
        hparams_set: the name of the set.
        changes: the names of the hyper-parameters that the user changes.
    """
    names = list(changes)
    return [
        sentence
        for remark in _load_functions("remarks")
        for sentence in remark(hparams_set, names)
    ]


def _load_functions(group: str) -> list[Callable[..., Any]]:
    return list(load_plugins(group).values())


def unknown_name(
    context: str, name: str, names: Iterable[str], value: str = "", noun: str = ""
) -> str:
    """Returns the message for an unknown option: its counterpart or the nearest name.

    Args:
        context: see `counterpart`.
        name: the option that the user gave.
        names: the options that there are.
        value: the value that the user gave.
        noun: what the name is, with a space after it, for the message.
    """
    explained = counterpart(context, name, value)
    return explained or f"there is no {noun}'{name}'{did_you_mean(name, names)}"

"""Hooks of plugins: each has a flag of `t2t train` that turns it on."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from t2t_keras.entry_points import load_plugins
from t2t_keras.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from t2t_keras.evaluation.evaluator import Evaluator
    from t2t_keras.run.directory import RunDirectory
    from t2t_keras.training.hooks import Hook


@dataclasses.dataclass(frozen=True)
class HookPlugin:
    """An entry point of `t2t_keras.hooks`, whose name is that of the flag.

    Attributes:
        help: the help of the flag.
        make: makes the hook of a training, given the run directory and the evaluator
            of dev; None: the data have no dev split.
    """

    help: str
    make: "Callable[[RunDirectory, Evaluator | None], Hook]"


def hook_plugins(hooks: Sequence[str | HookPlugin]) -> list[HookPlugin]:
    """Returns hook plugins, each given by its name or as an object.

    Raises:
        UserError: there is no plugin of a name.
    """
    plugins: dict[str, HookPlugin] = load_plugins("hooks") if hooks else {}
    resolved = []
    for hook in dict.fromkeys(hooks):
        if isinstance(hook, HookPlugin):
            resolved.append(hook)
        elif hook in plugins:
            resolved.append(plugins[hook])
        else:
            raise UserError(f"there is no hook '{hook}'{did_you_mean(hook, plugins)}")
    return resolved

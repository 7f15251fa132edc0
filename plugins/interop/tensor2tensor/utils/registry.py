"""tensor2tensor's `registry`: its problems and hparam sets are registered with ours."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from t2t_keras import registry
from t2t_keras.errors import UserError
from t2t_keras.hparam import HParams as OurHParams
from t2t_keras.problem import Problem as OurProblem
from t2t_keras.registry import list_hparams, list_models, list_problems

from ..missing import Missing, absence, missing_name
from ..models.transformer import named_set
from ..notes import say_once
from .hparam import HParams

__all__ = [
    "hparams",
    "list_hparams",
    "list_models",
    "list_problems",
    "problem",
    "register_hparams",
    "register_model",
    "register_problem",
]

_problems: dict[str, Callable[..., Any]] = {}
_hparams: dict[str, Callable[..., Any]] = {}


def _named(register: Callable[[Any, str], Any]) -> Callable[..., Any]:
    """Returns a decorator that may be written as `@f`, `@f()` and `@f("name")`."""

    def decorator(definition: Any = None) -> Any:
        if callable(definition):
            return register(definition, "")
        return lambda actual: register(actual, definition or "")

    return decorator


def _register_problem(definition: Any, name: str) -> Any:
    """Registers a problem, in snake_case if no name is given."""
    name = name or registry.snake_case(definition.__name__)

    @functools.wraps(definition, updated=())
    def made() -> OurProblem:
        if isinstance(definition, Missing):
            raise UserError(
                f"it derives from tensor2tensor's {definition.tensor2tensor_name}, "
                "which does not exist here; derive it from translate.TranslateProblem "
                "or text_problems.Text2TextProblem"
            )
        original = definition()
        if not hasattr(original, "to_problem"):
            raise UserError("it must derive from text_problems.Text2TextProblem")
        return original.to_problem()

    made.__name__ = name
    alias = ""
    if inspect.isclass(definition):
        setattr(definition, "name", name)  # noqa: B010  as tensor2tensor does
        alias = registry.earlier_snake_case(definition.__name__)
    registry.register_problem(made, alias=alias)
    _problems[name] = definition
    return definition


def _register_hparams(definition: Any, name: str) -> Any:
    """Registers a function that returns hyper-parameters."""
    name = name or registry.snake_case(definition.__name__)

    @functools.wraps(definition)
    def made() -> OurHParams:
        found = definition()
        if isinstance(found, HParams):
            return found.converted(name)
        if isinstance(found, OurHParams):
            return found
        if isinstance(found, Missing):
            raise UserError(absence(found))
        raise UserError(
            f"it must return hyper-parameters, not {type(found).__name__}; end it "
            "with `return hparams`"
        )

    made.__name__ = name
    registry.register_hparams(made)
    _hparams[name] = definition
    return definition


def _register_model(definition: Any, name: str) -> Any:
    """Registers the name of a model, which cannot be built."""
    registry.register_unusable_model(
        definition,
        name or registry.snake_case(definition.__name__),
        "a model of tensor2tensor consists of layers of TensorFlow 1, which do not run "
        "here; derive a class from t2t_keras's Transformer "
        "(docs/guides/own-model.md) and register that",
    )
    return definition


def _without_counterpart(kind: str) -> Callable[..., Any]:
    """Returns a decorator for a kind of definitions that has no meaning here."""

    def register(definition: Any, name: str) -> Any:
        name = name or definition.__name__
        say_once(f"'{name}' is left out: {kind} of tensor2tensor do not exist here")
        return definition

    return _named(register)


register_problem = register_base_problem = _named(_register_problem)
register_hparams = _named(_register_hparams)
register_model = _named(_register_model)
register_ranged_hparams = _without_counterpart("ranges of hyper-parameters")
register_optimizer = _without_counterpart("optimizers")
register_env_problem = _without_counterpart("environments")
register_attack = _without_counterpart("attacks")
register_attack_params = _without_counterpart("attacks")
register_pruning_params = _without_counterpart("prunings")
register_pruning_strategy = _without_counterpart("prunings")


def problem(name: str) -> Any:
    """Returns a problem that was registered here, as its user has defined it.

    Raises:
        UserError: there is none of that name.
    """
    if name not in _problems:
        raise UserError(f"tensor2tensor's problem '{name}' does not exist here")
    return _problems[name]()


def hparams(name: str) -> Any:
    """Returns a set of tensor2tensor or of a user, which can be changed.

    Raises:
        UserError: there is none of that name.
    """
    if name in _hparams:
        return _hparams[name]()
    return named_set(name)


def __getattr__(name: str) -> Any:
    return missing_name(__name__, name)

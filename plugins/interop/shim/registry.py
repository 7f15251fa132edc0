"""tensor2tensor's `registry`: users' problems and hparam sets are registered here."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from t2t_keras import registry
from t2t_keras.errors import UserError
from t2t_keras.hparam import HParams as OurHParams
from t2t_keras.problem import Problem as OurProblem
from t2t_keras.ranged_hparams import RangedHParams as OurRangedHParams
from t2t_keras.registry import list_hparams, list_models, list_problems

from .hparams import HParams, RangedHParams, named_set
from .missing import Missing, absence
from .ported_problem import port_problem
from .problems import Problem

__all__ = [
    "hparams",
    "list_hparams",
    "list_models",
    "list_problems",
    "problem",
    "register_hparams",
    "register_model",
    "register_problem",
    "register_ranged_hparams",
]

_problems: dict[str, Callable[[], Problem]] = {}
_hparams: dict[str, Callable[[], HParams]] = {}


def _decorator(register: Callable[[Any, str], Any]) -> Callable[..., Any]:
    """Returns a decorator that can be written as `@f`, `@f()` and `@f("name")`.

    Without a name, a definition is registered under its own in snake_case.
    """

    def named(definition: Any, name: str | None = None) -> Any:
        return register(definition, name or registry.snake_case(definition.__name__))

    def decorator(definition: Callable[..., object] | str | None = None) -> Any:
        if callable(definition):
            return named(definition)
        return functools.partial(named, name=definition)

    return decorator


def _register_problem(definition: Any, name: str) -> Any:
    """Registers a problem."""

    @functools.wraps(definition, updated=())
    def make_problem() -> OurProblem:
        if isinstance(definition, Missing):
            raise UserError(
                f"it derives from tensor2tensor's {definition.tensor2tensor_name}, "
                "which does not exist here; derive it from translate.TranslateProblem "
                "or text_problems.Text2TextProblem"
            )
        original = definition()
        if not isinstance(original, Problem):
            raise UserError("it must derive from text_problems.Text2TextProblem")
        return port_problem(original)

    make_problem.__name__ = name
    if inspect.isclass(definition):
        # Users' methods read the name, which tensor2tensor sets too.
        setattr(definition, "name", name)  # noqa: B010
    registry.register_problem(make_problem)
    _problems[name] = definition
    return definition


def _register_hparams(definition: Any, name: str) -> Any:
    """Registers a function that returns hyper-parameters."""

    @functools.wraps(definition)
    def make_hparams() -> OurHParams:
        result = definition()
        if isinstance(result, HParams):
            return result.converted(name)
        if isinstance(result, OurHParams):
            return result
        if isinstance(result, Missing):
            raise UserError(absence(result))
        raise UserError(
            f"it must return hyper-parameters, not {type(result).__name__}; end it "
            "with `return hparams`"
        )

    make_hparams.__name__ = name
    registry.register_hparams(make_hparams)
    _hparams[name] = definition
    return definition


def _register_ranged_hparams(definition: Any, name: str) -> Any:
    """Registers a function that sets ranges of hyper-parameters."""

    @functools.wraps(definition)
    def set_ranges(rhp: OurRangedHParams) -> None:
        ported = RangedHParams()
        definition(ported)
        rhp.ranges |= ported.ranges

    set_ranges.__name__ = name
    registry.register_ranged_hparams(set_ranges)
    return definition


def _register_model(definition: Any, name: str) -> Any:
    """Registers the name of a model that cannot be built."""
    registry.register_unusable_model(
        definition,
        name,
        "a model of tensor2tensor consists of layers of TensorFlow 1, which do not run "
        "here; derive a class from t2t_keras's Transformer "
        "(docs/guides/own-model.md) and register that",
    )
    return definition


register_problem = register_base_problem = _decorator(_register_problem)
register_hparams = _decorator(_register_hparams)
register_model = _decorator(_register_model)
register_ranged_hparams = _decorator(_register_ranged_hparams)


def problem(name: str) -> Problem:
    """Returns a problem that was registered here, as its user defined it.

    Raises:
        UserError: no problem has this name.
    """
    if name not in _problems:
        raise UserError(f"tensor2tensor's problem '{name}' does not exist here")
    return _problems[name]()


def hparams(name: str) -> HParams:
    """Returns a set of tensor2tensor or of a user, which can be changed.

    Raises:
        UserError: no set has this name.
    """
    if name in _hparams:
        return _hparams[name]()
    return named_set(name)

"""The registry: finds problems, models and hparam sets by name.

The groups of entry points are `t2t_keras.problems`, `.models` and `.hparams`. A plugin
may also have a `Registry`. The core's own model is registered here, and is imported
when it is built.
"""

import dataclasses
import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    NamedTuple,
    TypeVar,
    get_type_hints,
    overload,
)

from t2t_keras.checking import checked
from t2t_keras.definitions import Definition, Registry, Summaries, require_instance
from t2t_keras.entry_points import plugin_names
from t2t_keras.errors import UserError
from t2t_keras.hparam import (
    MODELS,
    OPTIMIZERS,
    OTHER_OPTIMIZERS,
    OTHER_SCHEDULE_FACTORS,
    SCHEDULE_FACTORS,
    HParams,
    Model,
)
from t2t_keras.problem import Problem
from t2t_keras.ranged_hparams import RangedHParams
from t2t_keras.usr_dir import definition_location

if TYPE_CHECKING:
    from t2t_keras.model import Transformer


_problems: Registry[Problem] = Registry("problems")
_hparams: Registry[HParams] = Registry("hparams")
_ranged_hparams: Registry[RangedHParams] = Registry("hparams", "ranges")
ProblemDefinition = TypeVar("ProblemDefinition", bound=Problem | Callable[[], Problem])


def register_problem(definition: ProblemDefinition) -> ProblemDefinition:
    """Registers a problem; can be used as a decorator.

    Args:
        definition: a function that returns a `Problem` (registered under the function's
            name), a class derived from `Problem` whose attributes are the fields
            (registered under its name in snake_case), or a `Problem` (registered under
            its field `name`).

    Raises:
        UserError: the name is taken, or ends in `_rev`, which is reserved for reversed
            problems.
    """
    if isinstance(definition, Problem):
        name = definition.name
        caller = inspect.stack()[1]
        location = f"{Path(caller.filename).resolve()}:{caller.lineno}"
    else:
        name = definition.__name__
        location = definition_location(definition)
        if inspect.isclass(definition):
            name = snake_case(name)
    with _problems.deferred(name, location):
        if not name or name.endswith("_rev"):
            raise UserError(
                f"the problem at {location} cannot be named '{name}': a name is "
                "needed, and '_rev' is the suffix of the other direction, which the "
                "registry makes"
            )
        _problems.add(name, _problem_definition(definition, name, location))
    return definition


def _problem_definition(
    definition: Problem | Callable[..., Problem], name: str, location: str
) -> Definition[Problem]:
    """Returns the entry of a problem under a name; raises `UserError` for a class."""
    if isinstance(definition, Problem):
        return Definition(lambda: definition, location, "")
    fields = _class_fields(definition) if inspect.isclass(definition) else {}

    def make() -> Problem:
        return require_instance(definition(**fields), Problem).replace(name=name)

    return Definition(make, location, "")


ModelDefinition = TypeVar("ModelDefinition", bound=Callable[..., Any])


@overload
def register_model(definition: ModelDefinition) -> ModelDefinition: ...
@overload
def register_model(
    *, hparams: type[HParams]
) -> Callable[[ModelDefinition], ModelDefinition]: ...


def register_model(
    definition: Callable[..., object] | None = None, *, hparams: type[HParams] = HParams
) -> object:
    """Registers a model; a decorator, with or without arguments.

    The hyper-parameter `model` names it, so an hparam set can choose it.

    Args:
        definition: a subclass of `Transformer`, registered under its name in
            snake_case; or a function under its own name, which takes hyper-parameters
            and the sizes of the vocabularies and returns such a model, and may import
            Keras inside. The first line of the docstring is what `t2t list` prints.
        hparams: the subclass of `HParams` that has the model's own hyper-parameters.

    Raises:
        UserError: the name is taken.
    """
    if definition is None:
        return functools.partial(register_model, hparams=hparams)
    name = definition.__name__
    doc = inspect.getdoc(definition) or ""
    if inspect.isclass(definition):
        name = snake_case(name)
    for field in dataclasses.fields(hparams):
        if isinstance(field.type, str):  # after `from __future__ import annotations`
            field.type = get_type_hints(hparams)[field.name]
    model = Model(definition, hparams)
    location = definition_location(definition)
    with MODELS.deferred(name, location):
        MODELS.add(name, Definition(lambda: model, location, doc))
    return definition


def register_unusable_model(
    definition: Callable[..., object], name: str, reason: str
) -> None:
    """Registers the name of a model that cannot be built: `t2t list` prints why.

    Args:
        definition: the class or function of the model, whose line is named.
        name: its name.
        reason: why it cannot be built, and what to do.
    """
    location = definition_location(definition)
    MODELS.add_unusable(name, location, UserError(reason))


def register_hparams(definition: Callable[[], HParams]) -> Callable[[], HParams]:
    """Registers a function that returns `HParams`, under its name; a decorator.

    The first line of its docstring is what `t2t list` prints.

    Raises:
        UserError: the name is taken.
    """
    _hparams.register(definition, HParams)
    return definition


FactorDefinition = TypeVar("FactorDefinition", bound=Callable[[Any, Any], Any])


def register_schedule_factor(definition: FactorDefinition) -> FactorDefinition:
    """Registers a factor of the learning rate, under its name; a decorator.

    The hyper-parameter `schedule` can then have it: `linear_warmup*my_factor`.

    Args:
        definition: a function of the hyper-parameters and of the step, counted from 1,
            that returns a number. With `keras.ops` it also works in
            `t2t_keras.model.Schedule`, where the step is a tensor.

    Raises:
        UserError: the name is taken.
    """
    _register_function(
        OTHER_SCHEDULE_FACTORS,
        definition,
        definition.__name__,
        SCHEDULE_FACTORS,
        ("schedule factor", "a factor of the package"),
    )
    return definition


OptimizerDefinition = TypeVar("OptimizerDefinition", bound=Callable[[Any, Any], Any])


def register_optimizer(definition: OptimizerDefinition) -> OptimizerDefinition:
    """Registers an optimizer, under its name in snake_case; a decorator.

    It is then a value of the hyper-parameter `optimizer`. This one is `sign_descent`:

        import tensorflow as tf
        from t2t_keras import register_optimizer
        from t2t_keras.training.optimizer import add_to

        @register_optimizer
        class SignDescent:
            def __init__(self, weights, hparams):
                self.weights = list(weights.values())
                self.variables = {}  # the state by name, see `slots`

            def apply(self, gradients, learning_rate, step, is_applied):
                rate = tf.where(is_applied, learning_rate, 0.0)
                for weight, gradient in zip(self.weights, gradients):
                    add_to(weight, -rate * tf.sign(gradient))

    Args:
        definition: a class with the methods of `training.optimizer.Optimizer`, or a
            function that returns an object of one. Its arguments are the weights by
            their names in a checkpoint, and the hyper-parameters.

    Raises:
        UserError: the name is taken.
    """
    _register_function(
        OTHER_OPTIMIZERS,
        definition,
        snake_case(definition.__name__),
        (*OPTIMIZERS, *plugin_names("optimizers")),
        ("optimizer", "an optimizer of an installed package"),
    )
    return definition


def _register_function(
    registry: Registry[Callable[[Any, Any], Any]],
    definition: Callable[[Any, Any], Any],
    name: str,
    reserved: Collection[str],
    nouns: tuple[str, str],
) -> None:
    """Registers a function or class that the value of a hyper-parameter names.

    Args:
        registry: refuses a name that another definition has.
        definition: the function or class.
        name: its name.
        reserved: the names that it cannot have.
        nouns: for the message, what it is and what the reserved names belong to.

    Raises:
        UserError: the name is taken.
    """
    location = definition_location(definition)
    if name in reserved:
        raise UserError(
            f"the {nouns[0]} at {location} cannot be named '{name}': that is "
            f"{nouns[1]}; rename it"
        )
    doc = inspect.getdoc(definition) or ""
    registry.add(name, Definition(lambda: definition, location, doc))


RangesDefinition = TypeVar("RangesDefinition", bound=Callable[[RangedHParams], None])


def register_ranged_hparams(definition: RangesDefinition) -> RangesDefinition:
    """Registers a function that sets `RangedHParams`, under its name; a decorator.

        @register_ranged_hparams
        def dropouts(rhp):
            rhp.set_float("dropout", 0.1, 0.4)

    The first line of its docstring is what `t2t list` prints.

    Raises:
        UserError: the name is taken.
    """

    @functools.wraps(definition)
    def make() -> RangedHParams:
        ranges = RangedHParams()
        definition(ranges)
        return ranges

    _ranged_hparams.register(make, RangedHParams)
    return definition


@checked
def problem(name: str) -> Problem:
    """Returns the problem of this name; `x_rev` is `x` with source and target swapped.

    Raises:
        UserError: there is none; the message suggests the nearest name.
    """
    if name.endswith("_rev") and name not in _problems.definitions():
        return _problems.get(name.removesuffix("_rev")).reversed()
    return _problems.get(name)


@checked
def model(name: str) -> Model:
    """Returns the model of this name.

    Raises:
        UserError: there is none; the message suggests the nearest name.
    """
    return MODELS.get(name)


@checked
def hparams(name: str) -> HParams:
    """Returns the hparam set of this name.

    Raises:
        UserError: there is none; the message suggests the nearest name.
    """
    return _hparams.get(name)


@checked
def ranged_hparams(name: str) -> RangedHParams:
    """Returns the ranges of hyper-parameters of this name.

    Raises:
        UserError: there are none; the message suggests the nearest name.
    """
    return _ranged_hparams.get(name)


def list_problems() -> Summaries:
    """Returns every problem's name with its one-line summary."""
    return _problems.summaries()


def list_models() -> Summaries:
    """Returns every model's name with the first line of its docstring."""
    return MODELS.summaries()


def list_hparams() -> Summaries:
    """Returns every hparam set's name with the first line of its docstring."""
    return _hparams.summaries()


def list_ranged_hparams() -> Summaries:
    """Returns the name of all ranges with the first line of their docstring."""
    return _ranged_hparams.summaries()


class Family(NamedTuple):
    """The hparam sets that one module registers.

    Attributes:
        name: the name of the module's file without suffix; a user's file may have the
            same.
        title: the first line of the module's docstring.
        sets: the summary of each set, in the module's order.
    """

    name: str
    title: str
    sets: Mapping[str, str]


def hparams_families() -> list[Family]:
    """Returns the hparam sets by their modules, in the order of import."""
    _hparams.definitions()  # loads them
    titles: dict[str, str] = {}
    for module in list(sys.modules.values()):
        if path := getattr(module, "__file__", None):
            titles[os.path.realpath(path)] = (module.__doc__ or "").partition("\n")[0]
    by_path: dict[str, dict[str, Definition[HParams]]] = {}
    for name, definition in _hparams._definitions.items():
        path = definition.location.rpartition(":")[0]
        by_path.setdefault(path, {})[name] = definition
    return [
        Family(
            name=Path(path).stem,
            title=titles.get(path, "").rstrip(".") or f"Hparam sets of {path}",
            sets=Summaries(definitions),
        )
        for path, definitions in by_path.items()
    ]


def snake_case(name: str) -> str:
    """Converts `MyWMTProblem` to `my_wmt_problem`, as tensor2tensor does."""
    words = re.sub("(.)([A-Z][a-z0-9]+)", r"\1_\2", name)
    return re.sub("([a-z0-9])([A-Z])", r"\1_\2", words).lower()


def _class_fields(cls: type) -> dict[str, Any]:
    """Returns the fields of `Problem` that a class derived from it sets."""
    if not issubclass(cls, Problem):
        raise UserError(
            f"the class at {definition_location(cls)} must derive from Problem"
        )
    names = (field.name for field in dataclasses.fields(Problem))
    values = {name: getattr(cls, name, None) for name in names}
    return {
        name: value
        for name, value in values.items()
        if value is not getattr(Problem, name, None)
    }


def build_model(
    hparams: HParams, source_vocab_size: int, target_vocab_size: int | None = None
) -> "Transformer":
    """Returns the registered model that `hparams.model` names, newly initialized.

    It takes the arguments of `Transformer`.

    Raises:
        UserError: there is no such model, or it takes another class of hparams.
    """
    named = model(hparams.model)
    if type(hparams) is not named.hparams:
        raise UserError(
            f"hparams: model '{hparams.model}' takes {named.hparams.__name__}, not "
            f"{type(hparams).__name__}; set model to the name of its model"
        )
    built: Transformer = named.build(hparams, source_vocab_size, target_vocab_size)
    return built


@register_model
def transformer(
    hparams: HParams, source_vocab_size: int, target_vocab_size: int | None = None
) -> "Transformer":
    """The paper's model, and the variants of its Table 3 and section 4."""
    from t2t_keras.model import Transformer

    return Transformer(hparams, source_vocab_size, target_vocab_size)

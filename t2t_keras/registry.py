"""The registry: finds problems, models and hparam sets by name.

A definition is registered when its module is imported: by the entry points
`t2t_keras.problems`, `.models` and `.hparams` of an installed package, by `--usr_dir`
(see `usr_dir`), or by a plain import. A plugin may also have a `Registry`. The core's
own model is registered here, and is imported when it is built.
"""

import contextlib
import dataclasses
import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    NamedTuple,
    NoReturn,
    TypeVar,
    get_type_hints,
    overload,
)

from t2t_keras.checking import checked
from t2t_keras.entry_points import load_plugins, plugin_names
from t2t_keras.errors import UserError, did_you_mean
from t2t_keras.hparam import (
    FIELD_HINTS,
    MODEL_HPARAMS,
    OPTIMIZERS,
    OTHER_OPTIMIZERS,
    OTHER_SCHEDULE_FACTORS,
    SCHEDULE_FACTORS,
    UNUSABLE_MODELS,
    HParams,
)
from t2t_keras.problem import Problem
from t2t_keras.ranged_hparams import RangedHParams
from t2t_keras.user_code import definition_location, error_in_file

if TYPE_CHECKING:
    from t2t_keras.model import Transformer


T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Definition(Generic[T]):
    """A registered definition: a function that makes its object, and its location."""

    make: Callable[[], T]
    location: str  # file:line
    doc: str

    def create(self, name: str) -> T:
        """Returns the object.

        Raises:
            UserError: the definition raised an error; the message names its line.
        """
        try:
            return self.make()
        except Exception as error:
            raise error_in_file(error, self.location, name) from error


class Registry(Generic[T]):
    """Definitions by name.

    Args:
        group: the group of the entry points that register them, such as "problems".
        noun: what they are, for messages; "": the group.
    """

    def __init__(self, group: str, noun: str = "") -> None:
        self.group = group
        self._noun = noun or group
        self._loaded = False
        self._definitions: dict[str, Definition[T]] = {}

    def add(self, name: str, definition: Definition[T]) -> None:
        """Registers a definition; a file may be imported twice."""
        existing = self._definitions.get(name)
        if existing is not None and existing.location != definition.location:
            raise UserError(
                f"{self._noun}: '{name}' at {definition.location} is already "
                f"registered at {existing.location}; rename one of them"
            )
        self._definitions[name] = definition

    def add_unusable(self, name: str, location: str, error: UserError) -> None:
        """Registers a name for which `get` raises an error."""
        self._definitions[name] = Definition(_raising(error), location, "")

    def register(self, function: Callable[[], T], cls: type[T]) -> None:
        """Registers a function that returns an object of a class, under its name.

        Raises:
            UserError: the name is taken.
        """

        def make() -> T:
            return _require_instance(function(), cls)

        doc = inspect.getdoc(function) or ""
        location = definition_location(function)
        with _deferred(self, function.__name__, location):
            self.add(function.__name__, Definition(make, location, doc))

    def get(self, name: str) -> T:
        """Returns the object of a name; an error suggests the nearest name."""
        definitions = self.definitions()
        if name not in definitions:
            hint = did_you_mean(name, definitions)
            files = "".join(f"; {error}" for error in FAILED_FILES.values())
            raise UserError(
                f"{self._noun}: there is no '{name}'{hint} (`t2t list` prints them all)"
                f"{files}"
            )
        return definitions[name].create(name)

    def definitions(self) -> dict[str, Definition[T]]:
        """Returns every definition by name, in the order of the names."""
        if not self._loaded:
            load_plugins(self.group)
            self._loaded = True
        return dict(sorted(self._definitions.items()))

    def summaries(self) -> "Summaries":
        """Returns every name with its one-line summary."""
        return Summaries(self.definitions())


class Summaries(Mapping[str, str]):
    """The one-line summary of each definition, by name.

    It is the problem's own summary or the first line of the docstring. Reading it makes
    the definition; if that fails, the summary is the error.
    """

    def __init__(self, definitions: Mapping[str, Definition[Any]]) -> None:
        self._definitions = definitions

    def __getitem__(self, name: str) -> str:
        definition = self._definitions[name]
        try:
            made = definition.create(name)
        except UserError as error:
            return f"cannot be used: {error}"
        if isinstance(made, Problem):
            return made.summary
        return definition.doc.partition("\n")[0]

    def __contains__(self, name: object) -> bool:
        return name in self._definitions  # without making it

    def __iter__(self) -> Iterator[str]:
        return iter(self._definitions)

    def __len__(self) -> int:
        return len(self._definitions)

    def __repr__(self) -> str:
        return repr(dict(self))


class Model(NamedTuple):
    """A registered model.

    Attributes:
        build: returns the `Transformer` for hyper-parameters, the size of the source
            vocabulary, and the size of the target's or None where both share one.
        hparams: the class of its hyper-parameters.
    """

    build: Callable[[Any, int, int | None], Any]
    hparams: type[HParams]


_problems: Registry[Problem] = Registry("problems")
_hparams: Registry[HParams] = Registry("hparams")
_ranged_hparams: Registry[RangedHParams] = Registry("hparams", "ranges")
_models: Registry[Model] = Registry("models")
_schedule_factors: Registry[Callable[[Any, Any], Any]] = Registry(
    "schedule_factors", "schedule factors"
)
_optimizers: Registry[Callable[[Any, Any], Any]] = Registry("optimizers")

# The error of each file of a `--usr_dir` that could not be imported.
FAILED_FILES: dict[str, UserError] = {}

_defers_errors = False


@contextlib.contextmanager
def deferred_errors() -> Iterator[None]:
    """Lists a definition that cannot be registered with its error.

    The other definitions of its file can then be used.
    """
    global _defers_errors
    _defers_errors = True
    try:
        yield
    finally:
        _defers_errors = False


@contextlib.contextmanager
def _deferred(registry: Registry[T], name: str, location: str) -> Iterator[None]:
    """Registers a definition as unusable if the block refuses it."""
    try:
        yield
    except UserError as error:
        if not (_defers_errors and name):
            raise
        registry.add_unusable(name, location, error)


def _raising(error: UserError) -> Callable[[], NoReturn]:
    """Returns a function that raises an error."""

    def make() -> NoReturn:
        raise error

    return make


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
    with _deferred(_problems, name, location):
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
        return _require_instance(definition(**fields), Problem).replace(name=name)

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
    with _deferred(_models, name, location):
        _models.add(name, Definition(lambda: model, location, doc))
        MODEL_HPARAMS[name] = hparams
        common = {field.name for field in dataclasses.fields(HParams)}
        for field in dataclasses.fields(hparams):
            if field.name not in common:
                FIELD_HINTS.setdefault(field.name, f"needs model={name}")
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
    _models.add_unusable(name, location, UserError(reason))
    UNUSABLE_MODELS[name] = f"{location}: '{name}': {reason}"


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
        _schedule_factors,
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
        _optimizers,
        OTHER_OPTIMIZERS,
        definition,
        snake_case(definition.__name__),
        (*OPTIMIZERS, *plugin_names("optimizers")),
        ("optimizer", "an optimizer of an installed package"),
    )
    return definition


def _register_function(
    registry: Registry[Callable[[Any, Any], Any]],
    functions: dict[str, Callable[[Any, Any], Any]],
    definition: Callable[[Any, Any], Any],
    name: str,
    reserved: Collection[str],
    nouns: tuple[str, str],
) -> None:
    """Registers a function or class that the value of a hyper-parameter names.

    Args:
        registry: refuses a name that another definition has.
        functions: gets the function by its name, for hyper-parameters to look up.
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
    functions[name] = definition


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
    return _models.get(name)


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
    return _models.summaries()


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


def _require_instance(result: T, cls: type[T]) -> T:
    """Returns what a definition returned; refuses an object of another type."""
    if not isinstance(result, cls):
        raise UserError(f"it must return {cls.__name__}, not {type(result).__name__}")
    return result


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


@register_model
def transformer(
    hparams: HParams, source_vocab_size: int, target_vocab_size: int | None = None
) -> "Transformer":
    """The paper's model, and the variants of its Table 3 and section 4."""
    from t2t_keras.model import Transformer

    return Transformer(hparams, source_vocab_size, target_vocab_size)

"""The registry: finds problems, models and hparam sets by name.

A definition is registered when its module is imported. There are three ways to import
it: by the entry points `t2t_keras.problems`, `.models` and `.hparams` of an installed
package, by `--usr_dir`, and by a plain import. A plugin may have a `Registry` as well.

Plugins are found by entry points only, see `option.plugins`.
"""

import contextlib
import dataclasses
import functools
import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar, get_type_hints, overload

from t2t_keras.arguments import checked
from t2t_keras.entry_points import load_plugins
from t2t_keras.errors import UserError, did_you_mean
from t2t_keras.hparam import MODEL_HPARAMS, UNUSABLE_MODELS, HParams
from t2t_keras.problem import Problem

T = TypeVar("T")

# What to write in place of packages of other programs that a user's file imports, by
# the name of the package. Plugins that register models fill it.
OTHER_PACKAGES: dict[str, str] = {}


@dataclasses.dataclass(frozen=True)
class Definition(Generic[T]):
    """A registered definition: how to make its object, and where it is written."""

    make: Callable[[], T]
    place: str  # file:line
    doc: str

    def made(self, name: str) -> T:
        """Returns the object.

        Raises:
            UserError: the definition raised an error; the message names its line.
        """
        try:
            return self.make()
        except Exception as error:
            raise error_in_file(error, self.place, name) from error


def error_in_file(error: Exception, place: str, name: str) -> UserError:
    """Returns the `UserError` for an error that a user's definition raised.

    Args:
        error: the error.
        place: file:line of the definition.
        name: its name.
    """
    file, _, _ = place.rpartition(":")
    return UserError(f"{_place_of(error, file) or place}: '{name}': {_reason(error)}")


class Registry(Generic[T]):
    """All definitions of one kind, by name."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._loaded = False
        self._definitions: dict[str, Definition[T]] = {}
        self._aliases: dict[str, Definition[T]] = {}

    def add(self, name: str, definition: Definition[T]) -> None:
        """Registers a definition; a file may be imported twice."""
        earlier = self._definitions.get(name)
        if earlier is not None and earlier.place != definition.place:
            raise UserError(
                f"{self.kind}: '{name}' at {definition.place} is already registered "
                f"at {earlier.place}; rename one of them"
            )
        self._definitions[name] = definition

    def add_alias(self, name: str, definition: Definition[T]) -> None:
        """Registers another name, which is not listed; a definition's name wins."""
        self._aliases.setdefault(name, definition)

    def add_unusable(self, name: str, place: str, error: UserError) -> None:
        """Registers a name whose object cannot be made: to get it raises the error."""
        self._definitions[name] = Definition(_raising(error), place, _unusable(error))

    def register(self, function: Callable[[], T], kind: type[T]) -> None:
        """Registers a function that returns an object of a class, under its name.

        Raises:
            UserError: the name is taken.
        """
        doc = inspect.getdoc(function) or ""
        make = lambda: _checked(function(), kind)  # noqa: E731
        place = place_of_definition(function)
        with _deferred(self, function.__name__, place):
            self.add(function.__name__, Definition(make, place, doc))

    def get(self, name: str) -> T:
        """Returns the object of a name; an error suggests the nearest name."""
        definitions = self._aliases | self.all()
        if name not in definitions:
            hint = did_you_mean(name, definitions)
            files = "".join(f"; {error}" for error in _errors_of_files.values())
            raise UserError(
                f"{self.kind}: there is no '{name}'{hint} (`t2t list` prints them all)"
                f"{files}"
            )
        return definitions[name].made(name)

    def all(self) -> dict[str, Definition[T]]:
        """Returns every definition by name, in the order of the names."""
        if not self._loaded:
            load_plugins(self.kind)
            self._loaded = True
        return dict(sorted(self._definitions.items()))

    def summaries(self) -> dict[str, str]:
        """Returns every name with the first line of the docstring."""
        return {name: it.doc.partition("\n")[0] for name, it in self.all().items()}


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
_models: Registry[Model] = Registry("models")

# Whether `load_usr_dir` imports files: a definition that cannot be registered is then
# listed with its error, so that the other definitions of its file can be used.
_is_loading = False
# The error of each file of a `--usr_dir` that could not be imported.
_errors_of_files: dict[str, UserError] = {}
_warned: dict[str, UserError] = {}  # those that were printed


@contextlib.contextmanager
def _deferred(registry: Registry[Any], name: str, place: str) -> Iterator[None]:
    """Registers a definition of a `--usr_dir` as unusable if the block refuses it."""
    try:
        yield
    except UserError as error:
        if not (_is_loading and name):
            raise
        registry.add_unusable(name, place, error)


def _raising(error: UserError) -> Callable[[], NoReturn]:
    """Returns a function that raises an error."""

    def make() -> NoReturn:
        raise error

    return make


def _unusable(error: UserError) -> str:
    """Returns what `t2t list` prints for a definition that cannot be used."""
    return f"cannot be used: {error}"


ProblemDefinition = TypeVar("ProblemDefinition", bound=Problem | Callable[[], Problem])


def register_problem(
    definition: ProblemDefinition, *, alias: str = ""
) -> ProblemDefinition:
    """Registers a problem; can be used as a decorator.

    Args:
        definition: a function that returns a `Problem` (registered under the function's
            name), a class derived from `Problem` whose attributes are the fields
            (registered under its name in snake_case), or a `Problem` (registered under
            its field `name`).
        alias: another name under which it is found; "": a class is also found under
            the name that version 0.1 made.

    Raises:
        UserError: the name is taken, or ends in `_rev`, which is reserved for reversed
            problems.
    """
    if isinstance(definition, Problem):
        name = definition.name
        caller = inspect.stack()[1]
        place = f"{Path(caller.filename).resolve()}:{caller.lineno}"
    else:
        name, place = definition.__name__, place_of_definition(definition)
        if inspect.isclass(definition):
            name = snake_case(name)
    with _deferred(_problems, name, place):
        if not name or name.endswith("_rev"):
            raise UserError(
                f"the problem at {place} cannot be named '{name}': a name is needed, "
                "and '_rev' is the suffix of the other direction, which the registry "
                "makes"
            )
        _problems.add(name, _problem_definition(definition, name, place))
        if inspect.isclass(definition):
            alias = alias or earlier_snake_case(definition.__name__)
        if alias not in ("", name):
            _problems.add_alias(alias, _problem_definition(definition, alias, place))
    return definition


def _problem_definition(
    definition: Problem | Callable[..., Problem], name: str, place: str
) -> Definition[Problem]:
    """Returns the entry of a problem under a name; raises `UserError` for a class."""
    if isinstance(definition, Problem):
        return Definition(lambda: definition, place, "")
    fields = _class_fields(definition) if inspect.isclass(definition) else {}

    def make() -> Problem:
        return _checked(definition(**fields), Problem).replace(name=name)

    return Definition(make, place, "")


ModelDefinition = TypeVar("ModelDefinition", bound=Callable[..., Any])


@overload
def register_model(definition: ModelDefinition) -> ModelDefinition: ...
@overload
def register_model(
    *, hparams: type[HParams]
) -> Callable[[ModelDefinition], ModelDefinition]: ...


def register_model(definition: Any = None, *, hparams: type[HParams] = HParams) -> Any:
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
    name, doc = definition.__name__, inspect.getdoc(definition) or ""
    alias = name
    if inspect.isclass(definition):
        alias = earlier_snake_case(name)
        name = snake_case(name)
    for field in dataclasses.fields(hparams):
        if isinstance(field.type, str):  # after `from __future__ import annotations`
            field.type = get_type_hints(hparams)[field.name]
    model = Model(definition, hparams)
    place = place_of_definition(definition)
    entry = Definition(lambda: model, place, doc)
    with _deferred(_models, name, place):
        _models.add(name, entry)
        MODEL_HPARAMS[name] = hparams
        if alias != name:
            _models.add_alias(alias, entry)
            MODEL_HPARAMS.setdefault(alias, hparams)
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
    place = place_of_definition(definition)
    error = UserError(f"{place}: '{name}': {reason}")
    _models.add_unusable(name, place, error)
    UNUSABLE_MODELS[name] = str(error)


def register_hparams(definition: Callable[[], HParams]) -> Callable[[], HParams]:
    """Registers a function that returns `HParams`, under its name; a decorator.

    The first line of its docstring is what `t2t list` prints.

    Raises:
        UserError: the name is taken.
    """
    _hparams.register(definition, HParams)
    return definition


@checked
def problem(name: str) -> Problem:
    """Returns the problem of this name; `x_rev` is `x` with source and target swapped.

    Raises:
        UserError: there is none; the message suggests the nearest name.
    """
    if name.endswith("_rev") and name not in _problems.all():
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


def list_problems() -> dict[str, str]:
    """Returns every problem's name with its one-line summary.

    The summary of a problem that cannot be made is its error.
    """
    return {name: _summary(name, it) for name, it in _problems.all().items()}


def _summary(name: str, definition: Definition[Problem]) -> str:
    """Returns the summary of a problem, or why it cannot be used."""
    try:
        return definition.made(name).summary
    except UserError as error:
        return _unusable(error)


def list_models() -> dict[str, str]:
    """Returns every model's name with the first line of its docstring."""
    return _models.summaries()


def list_hparams() -> dict[str, str]:
    """Returns every hparam set's name with the first line of its docstring."""
    return _hparams.summaries()


@checked
def load_usr_dir(directory: str | Path) -> None:
    """Imports a user's directory, whose modules register what they define.

    If the directory is a package (it has an `__init__.py`), the package is imported;
    otherwise all modules in it are. A definition that cannot be registered is listed
    with its error. A module that cannot be imported is left out with a warning, as long
    as there are others.

    Raises:
        UserError: there is no such directory, it has no Python file, or none of its
            files can be imported.
    """
    global _is_loading
    path = Path(directory).resolve()
    if not path.is_dir():
        raise UserError(f"--usr_dir: there is no directory {directory}")
    init = path / "__init__.py"
    files = [init] if init.exists() else sorted(path.glob("*.py"))
    if not files:
        raise UserError(f"--usr_dir: {directory} has no Python file")
    # So that its files can import each other, and child processes all of them. It comes
    # last: a file called `queue.py` must not hide the standard library's.
    root = str(path.parent if files == [init] else path)
    if root not in sys.path:
        sys.path.append(root)
    importlib.invalidate_caches()
    errors: dict[str, UserError] = {}
    for file in files:
        _is_loading = True
        try:
            _import_file(path.name if file == init else file.stem, file)
        except UserError as error:
            errors[str(file)] = error
        finally:
            _is_loading = False
        _errors_of_files.pop(str(file), None)
    if len(errors) == len(files):
        raise next(iter(errors.values()))
    for name, failure in errors.items():
        if str(_warned.get(name)) != str(failure):
            print(f"t2t: {failure}; this file is left out", file=sys.stderr)
    _errors_of_files.update(errors)
    _warned.update(errors)


def _import_file(name: str, file: Path) -> None:
    """Imports a user's file; the message of an error names its line."""
    spec = None if "." in name else importlib.util.find_spec(name)
    if spec is None or not spec.origin or Path(spec.origin).resolve() != file.resolve():
        raise UserError(
            f"--usr_dir: {file} cannot be imported as '{name}': another module has "
            "that name, or it has a dot; rename it"
        )
    try:
        importlib.import_module(name)
    except UserError as error:
        place = _place_of(error, str(file))
        if place is None or str(file.parent) in str(error):
            raise
        raise UserError(f"--usr_dir: {place}: {error}") from error
    except ModuleNotFoundError as error:
        place = _place_of(error, str(file)) or str(file)
        load_plugins("models")  # fill `OTHER_PACKAGES`
        package = (error.name or "").partition(".")[0]
        hint = OTHER_PACKAGES.get(package)
        reason = f"{_reason(error)}{f'; {hint}' if hint else ''}"
        raise UserError(f"--usr_dir: {place}: {reason}") from error
    except SyntaxError as error:
        place = f"{error.filename}:{error.lineno}"
        raise UserError(f"--usr_dir: {place}: {error.msg}") from error
    except (Exception, SystemExit) as error:  # such as a setup.py
        place = _place_of(error, str(file)) or str(file)
        raise UserError(f"--usr_dir: {place}: {_reason(error)}") from error


def _place_of(error: BaseException, file: str) -> str | None:
    """Returns file:line of the innermost call in the user's code; None if it has none.

    The user's code is that file and the others in its folder, without libraries.
    """
    folder = Path(file).parent
    own = [
        call
        for call in traceback.extract_tb(error.__traceback__)
        if Path(call.filename).is_relative_to(folder)
        and "site-packages" not in call.filename.removeprefix(str(folder))
    ]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else None


def _reason(error: BaseException) -> str:
    """Returns an error's message, with its type unless it is a `UserError`."""
    if isinstance(error, UserError):
        return str(error)
    reason = f"{type(error).__name__}: {error}"
    if isinstance(error, dataclasses.FrozenInstanceError):
        field = re.sub(r".*'(.*)'.*", r"\1", str(error))
        return f"{reason}; return a changed copy instead: `.override({field}=...)`"
    if isinstance(error, AttributeError) and (name := _name_of_tensorflow_1(error)):
        return f"{reason}; write `import tensorflow.compat.v1 as tf` to have {name}"
    return reason


def _name_of_tensorflow_1(error: AttributeError) -> str | None:
    """Returns the missing name if it is one of TensorFlow 1."""
    if getattr(error.obj, "__name__", "") != "tensorflow":
        return None
    from tensorflow.compat import v1

    return f"tf.{error.name}" if hasattr(v1, error.name or "") else None


def _checked(made: T, kind: type[T]) -> T:
    """Returns what a definition made; refuses an object of another type."""
    if not isinstance(made, kind):
        raise UserError(f"it must return {kind.__name__}, not {type(made).__name__}")
    return made


def snake_case(name: str) -> str:
    """Converts `MyWMTProblem` to `my_wmt_problem`, as tensor2tensor does."""
    words = re.sub("(.)([A-Z][a-z0-9]+)", r"\1_\2", name)
    return re.sub("([a-z0-9])([A-Z])", r"\1_\2", words).lower()


def earlier_snake_case(name: str) -> str:
    """Converts a name as version 0.1 did: `WMT32k` to `wmt32k`, not to `wm_t32k`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _class_fields(cls: type) -> dict[str, Any]:
    """Returns the fields of `Problem` that a class derived from it sets."""
    if not issubclass(cls, Problem):
        raise UserError(
            f"the class at {place_of_definition(cls)} must derive from Problem"
        )
    names = (field.name for field in dataclasses.fields(Problem))
    values = {name: getattr(cls, name, None) for name in names}
    return {k: v for k, v in values.items() if v is not getattr(Problem, k, None)}


def place_of_definition(definition: Callable[..., object]) -> str:
    """Returns file:line of a function or class, or its name if it was typed in."""
    definition = inspect.unwrap(definition)
    try:
        file = Path(inspect.getsourcefile(definition) or "?").resolve()
        return f"{file}:{inspect.getsourcelines(definition)[1]}"
    except (OSError, TypeError):  # an interactive session has no file
        return f"{definition.__module__}.{definition.__qualname__}"

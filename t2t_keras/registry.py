"""The registry: finds problems, models and hparam sets by name.

A definition is registered when its module is imported. There are three ways to import
it: by the entry points `t2t_keras.problems`, `.models` and `.hparams` of an installed
package, by `--usr_dir`, and by a plain import. A plugin may have a `Registry` as well.

Plugins are found by entry points only, see `option.plugins`.
"""

import dataclasses
import functools
import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, get_type_hints, overload

from t2t_keras.arguments import checked
from t2t_keras.hparam import MODEL_HPARAMS, HParams
from t2t_keras.option import UserError, nearest, plugins
from t2t_keras.problem import Problem

T = TypeVar("T")


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
            file, _, _ = self.place.rpartition(":")
            place = _place_of(error, file) or self.place
            raise UserError(f"{place}: '{name}': {_reason(error)}") from error


class Registry(Generic[T]):
    """All definitions of one kind, by name."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._loaded = False
        self._definitions: dict[str, Definition[T]] = {}

    def add(self, name: str, definition: Definition[T]) -> None:
        """Registers a definition; a file may be imported twice."""
        earlier = self._definitions.get(name)
        if earlier is not None and earlier.place != definition.place:
            raise UserError(
                f"{self.kind}: '{name}' at {definition.place} is already registered "
                f"at {earlier.place}; rename one of them"
            )
        self._definitions[name] = definition

    def register(self, function: Callable[[], T], kind: type[T]) -> None:
        """Registers a function that returns an object of a class, under its name.

        Raises:
            UserError: the name is taken.
        """
        doc = inspect.getdoc(function) or ""
        make = lambda: _checked(function(), kind)  # noqa: E731
        self.add(function.__name__, Definition(make, _place(function), doc))

    def get(self, name: str) -> T:
        """Returns the object of a name; an error suggests the nearest name."""
        definitions = self.all()
        if name not in definitions:
            hint = nearest(name, definitions)
            raise UserError(
                f"{self.kind}: there is no '{name}'{hint} (`t2t list` prints them all)"
            )
        return definitions[name].made(name)

    def all(self) -> dict[str, Definition[T]]:
        """Returns every definition by name, in the order of the names."""
        if not self._loaded:
            plugins(self.kind)
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
        make: Callable[[], Problem] = lambda: definition  # noqa: E731
        caller = inspect.stack()[1]
        place = f"{Path(caller.filename).resolve()}:{caller.lineno}"
    else:
        name, place = definition.__name__, _place(definition)
        fields: dict[str, Any] = {}
        if inspect.isclass(definition):
            name, fields = snake_case(name), _class_fields(definition)

        def make() -> Problem:
            return _checked(definition(**fields), Problem).replace(name=name)

    if not name or name.endswith("_rev"):
        raise UserError(
            f"the problem at {place} cannot be named '{name}': a name is needed, and "
            "'_rev' is the suffix of the other direction, which the registry makes"
        )
    _problems.add(name, Definition(make, place, ""))
    return definition


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
    name = snake_case(name) if inspect.isclass(definition) else name
    for field in dataclasses.fields(hparams):
        if isinstance(field.type, str):  # after `from __future__ import annotations`
            field.type = get_type_hints(hparams)[field.name]
    model = Model(definition, hparams)
    _models.add(name, Definition(lambda: model, _place(definition), doc))
    MODEL_HPARAMS[name] = hparams
    return definition


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
    if name.endswith("_rev"):
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
    """Returns every problem's name with its one-line summary."""
    return {name: it.made(name).summary for name, it in _problems.all().items()}


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
    otherwise all modules in it are.

    Raises:
        UserError: there is no such directory, or it has no Python file.
    """
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
    for file in files:
        _import_file(path.name if file == init else file.stem, file)


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
    except UserError:
        raise
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
    is_sentence = isinstance(error, UserError)
    return str(error) if is_sentence else f"{type(error).__name__}: {error}"


def _checked(made: T, kind: type[T]) -> T:
    """Returns what a definition made; refuses an object of another type."""
    if not isinstance(made, kind):
        raise UserError(f"it must return {kind.__name__}, not {type(made).__name__}")
    return made


def snake_case(name: str) -> str:
    """Converts `MyWMTProblem` to `my_wmt_problem`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _class_fields(cls: type) -> dict[str, Any]:
    """Returns the fields of `Problem` that a class derived from it sets."""
    if not issubclass(cls, Problem):
        raise UserError(f"the class at {_place(cls)} must derive from Problem")
    names = (field.name for field in dataclasses.fields(Problem))
    values = {name: getattr(cls, name, None) for name in names}
    return {k: v for k, v in values.items() if v is not getattr(Problem, k, None)}


def _place(definition: Callable[..., object]) -> str:
    """Returns file:line of a function or class, or its name if it was typed in."""
    definition = inspect.unwrap(definition)
    try:
        file = Path(inspect.getsourcefile(definition) or "?").resolve()
        return f"{file}:{inspect.getsourcelines(definition)[1]}"
    except (OSError, TypeError):  # an interactive session has no file
        return f"{definition.__module__}.{definition.__qualname__}"

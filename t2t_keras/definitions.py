"""Registries: definitions by name, which are made when they are needed.

A definition is registered when its module is imported: by an entry point of an
installed package, by `--usr_dir` (see `usr_dir`), or by a plain import.
"""

import contextlib
import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, NoReturn, TypeVar

from t2t_keras import usr_dir
from t2t_keras.entry_points import load_plugins
from t2t_keras.errors import UserError, did_you_mean
from t2t_keras.usr_dir import definition_location, error_in_file

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
        group: the group of the entry points whose modules register them, such as
            "problems"; "": there is none.
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

    @contextlib.contextmanager
    def deferred(self, name: str, location: str) -> Iterator[None]:
        """Registers a name with the error of the block, if `usr_dir` defers errors."""
        try:
            yield
        except UserError as error:
            if not (usr_dir.defers_errors and name):
                raise
            self.add_unusable(name, location, error)

    def register(self, function: Callable[[], T], cls: type[T]) -> None:
        """Registers a function that returns an object of a class, under its name.

        Raises:
            UserError: the name is taken.
        """

        def make() -> T:
            return require_instance(function(), cls)

        doc = inspect.getdoc(function) or ""
        location = definition_location(function)
        with self.deferred(function.__name__, location):
            self.add(function.__name__, Definition(make, location, doc))

    def get(self, name: str) -> T:
        """Returns the object of a name; an error suggests the nearest name."""
        definitions = self.definitions()
        if name not in definitions:
            hint = did_you_mean(name, definitions)
            files = "".join(f"; {error}" for error in usr_dir.FAILED_FILES.values())
            raise UserError(
                f"{self._noun}: there is no '{name}'{hint} (`t2t list` prints them all)"
                f"{files}"
            )
        return definitions[name].create(name)

    def find(self, name: str) -> Definition[T] | None:
        """Returns the definition of a name; None if there is none.

        Entry points are loaded only if the name is not registered yet.
        """
        if name not in self._definitions:
            self.definitions()
        return self._definitions.get(name)

    def definitions(self) -> dict[str, Definition[T]]:
        """Returns every definition by name, in the order of the names."""
        if self.group and not self._loaded:
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
        first_line = definition.doc.partition("\n")[0]
        return str(getattr(made, "summary", first_line))

    def __contains__(self, name: object) -> bool:
        return name in self._definitions  # without making it

    def __iter__(self) -> Iterator[str]:
        return iter(self._definitions)

    def __len__(self) -> int:
        return len(self._definitions)

    def __repr__(self) -> str:
        return repr(dict(self))


def _raising(error: UserError) -> Callable[[], NoReturn]:
    """Returns a function that raises an error."""

    def make() -> NoReturn:
        raise error

    return make


def require_instance(result: T, cls: type[T]) -> T:
    """Returns what a definition returned; refuses an object of another type."""
    if not isinstance(result, cls):
        raise UserError(f"it must return {cls.__name__}, not {type(result).__name__}")
    return result

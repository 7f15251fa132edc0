"""What tensor2tensor has and this package lacks: it can be imported, not used."""

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Sequence
from typing import Any, NoReturn

from t2t_keras.errors import UserError

# What the names of tensor2tensor's own translation problems begin with.
_OF_TRANSLATION = ("data_generators.translate_", "data_generators.wmt.Translate")


class Missing(type):
    """The type of a class that stands for a name of tensor2tensor.

    It can be a base class, and its attributes are such classes as well. To call it, or
    to make an object of a derived class, raises `UserError`.
    """

    tensor2tensor_name: str

    def __call__(cls, *args: object, **kwargs: object) -> NoReturn:
        """Raises `UserError`."""
        raise UserError(absence(cls))

    def __getattr__(cls, name: str) -> "Missing":
        if name.startswith("__"):
            raise AttributeError(name)
        return missing(f"{cls.tensor2tensor_name}.{name}")

    def __iter__(cls) -> NoReturn:
        raise UserError(absence(cls))


def missing(name: str) -> Missing:
    """Returns the class that stands for a name of tensor2tensor."""
    return Missing(name.rpartition(".")[2], (), {"tensor2tensor_name": name})


def absence(cls: Missing) -> str:
    """Returns the sentence that says what does not exist here."""
    return (
        f"{cls.tensor2tensor_name} of tensor2tensor does not exist here "
        '(docs/from-tensor2tensor.md, "Problems", has what does); leave it out'
    )


class _MissingModule(types.ModuleType):
    """A module that has any name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        path = f"{self.__name__.partition('.tensor2tensor.')[2]}.{name}"
        if path.startswith(_OF_TRANSLATION):
            from .data_generators.translate import problem_without_data

            return problem_without_data(path)
        return missing(path)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules that a package lacks.

    Args:
        package: its name.
    """

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns the spec of a module of the package."""
        if not fullname.startswith(f"{self._package}."):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Returns a module that has any name."""
        return _MissingModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Does nothing."""


def find_missing_modules(package: str) -> None:
    """Lets every module of a package be imported; those that have a file come first."""
    sys.meta_path.append(_Finder(package))


def missing_name(module: str, name: str) -> Any:
    """Returns what a module's `__getattr__` returns for a name that it lacks."""
    if name.startswith("__"):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    return missing(f"{module.partition('.tensor2tensor.')[2]}.{name}")

"""Names of tensor2tensor that do not exist here: they can be imported, but not used."""

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Sequence
from typing import NoReturn

from t2t_keras.errors import UserError

# The modules that tensor2tensor's modules of `data_generators` import, so that users
# find them there: `translate_envi.problem` is `data_generators.problem`.
_IMPORTED_MODULES = {
    path.rpartition(".")[2]: path
    for path in (
        *("data_generators.generator_utils", "data_generators.problem"),
        *("data_generators.text_encoder", "data_generators.text_problems"),
        *("data_generators.translate", "layers.modalities"),
        *("utils.metrics", "utils.registry"),
    )
}

_BINARY = (
    *("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "divmod", "pow"),
    *("lshift", "rshift", "and", "xor", "or"),
)
# The special methods by which Python uses an object: all but those of its attributes.
_USES = (
    *("call", "bool", "hash", "len", "iter", "reversed", "next", "contains"),
    *("getitem", "setitem", "delitem", "enter", "exit"),
    *("eq", "ne", "lt", "le", "gt", "ge", "instancecheck", "subclasscheck"),
    *("repr", "str", "format", "bytes", "int", "float", "complex", "index"),
    *("round", "trunc", "floor", "ceil", "neg", "pos", "abs", "invert"),
    *(prefix + name for name in _BINARY for prefix in ("", "r", "i")),
)


class Missing(type):
    """The type of a class that stands for a name of tensor2tensor.

    The class can be stored and can be a base class, and its attributes are classes of
    this type too, since they are names. Any other use of it or of a derived class
    raises `UserError`, because any answer, such as "not equal", could be wrong.
    """

    tensor2tensor_name: str

    def __getattr__(cls, name: str) -> "Missing":
        if name.startswith("__"):
            raise AttributeError(name)
        return missing(f"{cls.tensor2tensor_name}.{name}")


def _refuse(cls: Missing, *args: object, **kwargs: object) -> NoReturn:
    """Raises `UserError`."""
    raise UserError(absence(cls))


for _use in _USES:
    setattr(Missing, f"__{_use}__", _refuse)


def missing(name: str) -> Missing:
    """Returns the class that stands for a name of tensor2tensor."""
    return Missing(name.rpartition(".")[2], (), {"tensor2tensor_name": name})


def absence(cls: Missing) -> str:
    """Returns a sentence about a name that does not exist here."""
    return (
        f"{cls.tensor2tensor_name} of tensor2tensor does not exist here "
        '(docs/from-tensor2tensor.md, "Problems", lists what does); leave it out'
    )


class _MissingModule(types.ModuleType):
    """A module in which every name exists.

    Args:
        name: the full name of the module.
        definition: returns the class that stands for a name of tensor2tensor.
    """

    def __init__(self, name: str, definition: Callable[[str], type]) -> None:
        super().__init__(name)
        self._definition = definition

    def __getattr__(self, name: str) -> object:
        return _absent_name(self.__name__, name, self._definition)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules that a package lacks.

    Args:
        package: the name of the package.
        definition: see `_MissingModule`.
    """

    def __init__(self, package: str, definition: Callable[[str], type]) -> None:
        self._package = package
        self._definition = definition

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
        """Returns a module in which every name exists."""
        return _MissingModule(spec.name, self._definition)

    def exec_module(self, module: types.ModuleType) -> None:
        """Does nothing, since the module is complete."""


def find_missing_modules(package: str, definition: Callable[[str], type]) -> None:
    """Makes all modules of a package importable, even those without a file.

    Args:
        package: the name of the package.
        definition: returns the class that stands for a name of tensor2tensor in a
            module without a file, such as "layers.common_layers.shape_list".
    """
    # Python asks the last finder only about modules without a file.
    sys.meta_path.append(_Finder(package, definition))


def missing_name(module: str, name: str) -> object:
    """Returns what stands for a name that a module lacks, for its `__getattr__`."""
    return _absent_name(module, name, missing)


def _absent_name(module: str, name: str, definition: Callable[[str], type]) -> object:
    """Returns the module that a module imports, or a class for a name that it lacks."""
    if name.startswith("__"):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    path = module.removeprefix(f"{__package__}.")
    if path.startswith("data_generators.") and name in _IMPORTED_MODULES:
        return importlib.import_module(f"{__package__}.{_IMPORTED_MODULES[name]}")
    return definition(f"{path}.{name}")

"""Makes `import tensor2tensor` find the names of `t2t_problem`.

A file that was written for tensor2tensor needs one line above its imports:

    import t2t_keras.plugins.interop.as_tensor2tensor

All modules of tensor2tensor can be imported, and all names from them. Those that do not
exist here raise `UserError` when they are used.
"""

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Sequence

from . import t2t_problem

NAME = "tensor2tensor"
_PACKAGES = ("", "data_generators", "layers", "models", "utils")


class _Module(types.ModuleType):
    """A module of tensor2tensor, in which every name exists."""

    def __getattr__(self, name: str) -> object:
        module = self.__name__.removeprefix(NAME).removeprefix(".")
        if name.startswith("__") or module in _PACKAGES:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        imported = t2t_problem.IMPORTED_MODULES.get(name)
        if imported and module.startswith("data_generators."):
            return importlib.import_module(f"{NAME}.{imported}")
        return t2t_problem.find(module, name)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every module of tensor2tensor."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns the spec of a module of tensor2tensor."""
        if fullname != NAME and not fullname.startswith(f"{NAME}."):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Returns a module in which every name exists."""
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Does nothing, since the module is complete."""


# The first finder wins, even over an installed tensor2tensor.
sys.meta_path.insert(0, _Finder())

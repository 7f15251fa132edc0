"""Makes `import tensor2tensor` find the package `tensor2tensor` of this directory.

A file that was written for tensor2tensor needs one line above its imports:

    import t2t_keras.plugins.interop.as_tensor2tensor
"""

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Sequence

NAME = "tensor2tensor"
_PACKAGE = f"{__name__.rpartition('.')[0]}.{NAME}"


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `tensor2tensor.x` as the module `x` of the package."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Returns the spec of a module of `tensor2tensor`."""
        if fullname != NAME and not fullname.startswith(f"{NAME}."):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """Leaves the creation to Python; `exec_module` replaces the module."""

    def exec_module(self, module: types.ModuleType) -> None:
        """Replaces the empty module by the module of the package."""
        name = module.__name__
        sys.modules[name] = importlib.import_module(_PACKAGE + name.removeprefix(NAME))


if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
    # The first finder wins, even over an installed tensor2tensor.
    sys.meta_path.insert(0, _Finder())

"""Makes `import tensor2tensor` find the definitions of `shim`.

A file that was written for tensor2tensor needs one line above its imports:

    import t2t_keras.plugins.interop.as_tensor2tensor

All modules of tensor2tensor can be imported, and all names from them. Those that do not
exist here raise `UserError` when they are used.
"""

import functools
import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Sequence

from .shim import encoders, files, hparams, problems, registry, translate
from .shim.missing import missing

NAME = "tensor2tensor"
_PACKAGES = ("", "data_generators", "layers", "models", "utils")

# The modules of `data_generators` import each other and some of the others, so that
# users find them there: `translate_envi.problem` is `data_generators.problem`.
_IMPORTED_MODULES = {
    path.rpartition(".")[2]: path
    for path in (
        *("data_generators.generator_utils", "data_generators.problem"),
        *("data_generators.text_encoder", "data_generators.text_problems"),
        *("data_generators.translate", "layers.modalities"),
        *("utils.metrics", "utils.registry"),
    )
}
_SETS_MODULE = "models.transformer"
# The modules whose names are in `_HOMES`.
_MODULES = {
    *_IMPORTED_MODULES.values(),
    *("layers.common_hparams", _SETS_MODULE, "utils.hparam"),
}
_HOMES = (problems, translate, files, encoders, hparams, registry)

# The names of tensor2tensor's translation problems begin with these.
_TRANSLATION_PROBLEMS = ("data_generators.translate_", "data_generators.wmt.Translate")


class _Module(types.ModuleType):
    """A module of tensor2tensor, in which every name exists."""

    def __getattr__(self, name: str) -> object:
        module = self.__name__.removeprefix(NAME).removeprefix(".")
        if name.startswith("__") or module in _PACKAGES:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        imported = _IMPORTED_MODULES.get(name)
        if imported and module.startswith("data_generators."):
            return importlib.import_module(f"{NAME}.{imported}")
        return _find(module, name)


def _find(module: str, name: str) -> object:
    """Returns what has a name in one of tensor2tensor's modules, or stands for it.

    Args:
        module: the module without the package: "data_generators.text_problems".
        name: the name.
    """
    if module in _MODULES:
        for home in _HOMES:
            value = vars(home).get(name)
            if value is not None and not isinstance(value, types.ModuleType):
                return value
    is_layer = name.endswith("_layer")
    if module == _SETS_MODULE and name.startswith("transformer_") and not is_layer:
        # An unknown set is only refused when it is used.
        return functools.partial(hparams.named_set, name)
    path = f"{module}.{name}"
    if module not in _MODULES and path.startswith(_TRANSLATION_PROBLEMS):
        return translate.problem_without_data(path)
    return missing(path)


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

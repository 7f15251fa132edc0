"""Definitions that tests register and remove again."""

import sys
from pathlib import Path

from t2t_keras import hparam, registry
from t2t_keras.plugins.reports import compare

# What decorators add to: definitions by name, and what hyper-parameters look up.
REGISTRIES = {
    **{"problems": registry._problems, "hparams": registry._hparams},
    **{"models": registry._models, "ranges": registry._ranged_hparams},
    "schedule_factors": registry._schedule_factors,
    **{"optimizers": registry._optimizers, "scorers": compare._scorers},
}
LOOKUPS = (
    *(hparam.MODEL_HPARAMS, hparam.UNUSABLE_MODELS),
    *(hparam.OTHER_SCHEDULE_FACTORS, hparam.OTHER_OPTIMIZERS),
)


class Registrations:
    """What is registered, and where modules are found, to return to later."""

    def __init__(self) -> None:
        for registered in REGISTRIES.values():  # those of installed packages stay
            registered.definitions()
        names = (*(x._definitions for x in REGISTRIES.values()), *LOOKUPS)
        self._dicts = [(definitions, dict(definitions)) for definitions in names]
        self._path = list(sys.path)

    def clear(self, *kinds: str) -> None:
        """Removes also what the package and its plugins register."""
        for kind in kinds:
            REGISTRIES[kind]._definitions.clear()

    def replace(self, kind: str, name: str, value: object) -> None:
        """Registers a stand-in under a name that has a definition."""
        definitions = REGISTRIES[kind]._definitions
        old = definitions[name]
        definitions[name] = registry.Definition(lambda: value, old.location, old.doc)

    def restore(self) -> None:
        """Removes later definitions, and the modules of folders on the path since."""
        for names, earlier in self._dicts:
            names.clear()
            names.update(earlier)
        folders = {Path(folder).resolve() for folder in sys.path}
        folders -= {Path(folder).resolve() for folder in self._path}
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if file and folders & {*Path(file).resolve().parents}:
                del sys.modules[name]
        sys.path[:] = self._path

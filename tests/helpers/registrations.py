"""Definitions that tests register and remove again."""

import sys
from pathlib import Path

from t2t_keras import hparam, registry
from t2t_keras.definitions import Definition
from t2t_keras.plugins.reports import compare

# What decorators add to.
REGISTRIES = {
    **{"problems": registry._problems, "hparams": registry._hparams},
    **{"models": hparam.MODELS, "ranges": registry._ranged_hparams},
    "schedule_factors": hparam.OTHER_SCHEDULE_FACTORS,
    **{"optimizers": hparam.OTHER_OPTIMIZERS, "scorers": compare._scorers},
}


class Registrations:
    """What is registered, and where modules are found, to return to later."""

    def __init__(self) -> None:
        for registered in REGISTRIES.values():  # those of installed packages stay
            registered.definitions()
        registries = REGISTRIES.values()
        self._dicts = [(x._definitions, dict(x._definitions)) for x in registries]
        self._path = list(sys.path)

    def clear(self, *kinds: str) -> None:
        """Removes also what the package and its plugins register."""
        for kind in kinds:
            REGISTRIES[kind]._definitions.clear()

    def replace(self, kind: str, name: str, value: object) -> None:
        """Registers a stand-in under a name that has a definition."""
        definitions = REGISTRIES[kind]._definitions
        old = definitions[name]
        definitions[name] = Definition(lambda: value, old.location, old.doc)

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

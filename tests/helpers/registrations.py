"""Definitions that tests register and remove again."""

import sys
from pathlib import Path

from t2t_keras import hparam, registry

# What decorators add to.
REGISTRIES = (
    *(registry._problems, registry._hparams),
    *(hparam.MODELS, hparam.OTHER_SCHEDULE_FACTORS, hparam.OTHER_OPTIMIZERS),
)


class Registrations:
    """What is registered, and where modules are found, to return to later."""

    def __init__(self) -> None:
        for registered in REGISTRIES:  # those of installed packages stay
            registered.definitions()
        self._dicts = [(x._definitions, dict(x._definitions)) for x in REGISTRIES]
        self._path = list(sys.path)

    def restore(self) -> None:
        """Removes later definitions, and the modules of folders on the path since."""
        for names, earlier in self._dicts:
            names.clear()
            names.update(earlier)
        folders = {str(Path(folder).resolve()) for folder in sys.path}
        folders -= {str(Path(folder).resolve()) for folder in self._path}
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if file and str(Path(file).parent.resolve()) in folders:
                del sys.modules[name]
        sys.path[:] = self._path

"""The interface of plugins that read pairs from archives."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from t2t_keras.problem import Source


@dataclasses.dataclass(frozen=True)
class ArchiveFormat:
    """A format of archives, registered as an entry point of `t2t_keras.archives`.

    Attributes:
        suffixes: the ends of the names of such archives, such as ".tgz".
        pairs: returns the source of the pairs of two members; it gets the directory,
            the address or name of the archive, and the names of the two members.
        download: downloads the archive of a source from `pairs`, if it is absent.
    """

    suffixes: tuple[str, ...]
    pairs: Callable[[Path, str, str, str], Source]
    download: Callable[[Any], None]

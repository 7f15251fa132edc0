"""Pointer files: Git LFS and git-annex leave them in place of missing files."""

import re
from pathlib import Path

from t2t_keras.errors import UserError

_MAX_POINTER_BYTES = 4096

_LFS_POINTER = re.compile(
    rb"version https?://[\w./-]+/spec/v\d\r?\n(?:ext-[^\n]*\n)*oid \w+:[0-9a-f]+\r?\n"
    rb"size \d+\s*"
)


_ANNEX_POINTER = re.compile(rb"(?:\.\./)*/?(?:\.git/)?annex/objects/[^\n]*\s*")


def require_fetched(name: str, head: bytes) -> None:
    """Refuses a pointer file.

    Args:
        name: the file, for the message.
        head: its first bytes, or all of them.

    Raises:
        UserError: it is a pointer of Git LFS or git-annex.
    """
    if _LFS_POINTER.fullmatch(head):
        raise UserError(
            f"{name} is a pointer of Git LFS, not the file itself; run `git lfs pull` "
            "in its repository"
        )
    if _ANNEX_POINTER.fullmatch(head):
        raise UserError(
            f"{name} is a pointer of git-annex, not the file itself; run `git annex "
            "get` in its repository"
        )


def require_fetched_file(path: str | Path) -> None:
    """Refuses a pointer file; accepts a file that cannot be read.

    Raises:
        UserError: it is a pointer.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(_MAX_POINTER_BYTES)
    except OSError:
        return
    require_fetched(str(path), head)

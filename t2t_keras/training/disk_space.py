"""Reports a full disk in one sentence."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

from t2t_keras.errors import UserError

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextlib.contextmanager
def disk_errors(output_dir: str | Path) -> Iterator[None]:
    """Explains any error that the system raises when no space is left.

    Raises:
        UserError: there is no space left.
    """
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        # TensorFlow's errors have the system's text, but not its error number.
        reasons = [os.strerror(code) for code in _NO_SPACE]
        reason = next((text for text in reasons if text in str(error)), None)
        if reason is None:
            raise
        raise UserError(
            f"--output_dir: cannot write to {output_dir}: {reason}; free disk space "
            "and run the same command again: it resumes from the last checkpoint"
        ) from error

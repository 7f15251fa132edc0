"""The spinner that a terminal shows while nothing can be counted."""

import io
import os
import sys
from collections.abc import Callable
from typing import IO

import rich.spinner
from rich.console import Console
from rich.live import Live
from rich.text import Text


class Spinner(Live):
    """A spinner with words on standard error, which is a terminal.

    Args:
        words: returns what the user waits for now.
    """

    is_spinner = True

    def __init__(self, words: Callable[[], str]) -> None:
        # A duplicate, because the descriptor of standard error may be diverted.
        try:
            descriptor = os.dup(sys.stderr.fileno())
            file: IO[str] = open(descriptor, "w", encoding="utf-8")  # noqa: SIM115
        except (io.UnsupportedOperation, AttributeError):  # it has no descriptor
            file = sys.stderr
        self._words = words
        self._spinner = rich.spinner.Spinner("dots")
        # What is printed meanwhile appears above it.
        super().__init__(
            console=Console(file=file, force_terminal=True),
            get_renderable=self._with_words,
            refresh_per_second=12.5,
            transient=True,
        )

    def _with_words(self) -> rich.spinner.Spinner:
        self._spinner.text = Text(self._words())
        return self._spinner

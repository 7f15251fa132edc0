"""What a terminal shows during a long task: a bar or a spinner, by rich."""

import io
import os
import sys
from typing import IO

import rich.progress
import rich.spinner
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.table import Column
from rich.text import Text

from t2t_keras.display import current_words, hide, show
from t2t_keras.errors import printable

# The terminal shows "^C" behind a row. In the last columns it would begin a line, which
# the bar does not know.
_FREE_COLUMNS = 3
_BAR_WIDTH = 8  # at least
_TIME_WIDTH = len("0:00:00")


class ProgressBar(rich.progress.Progress):
    """A bar for each task, with the number of units done, a text and further columns.

    A task has the field `text`, which is cut where the row would be too long. In the
    last row, `display.current_words` take its place.

    Args:
        console: the terminal.
        *columns: columns of times, after the number of units.
        refresh_per_second: how often it is drawn.
        redirect_stdout: whether what is printed to standard output appears above it.
    """

    is_spinner = False

    def __init__(
        self,
        console: Console,
        *columns: rich.progress.ProgressColumn,
        refresh_per_second: float = 10,
        redirect_stdout: bool = True,
    ) -> None:
        column = Column(no_wrap=True)
        super().__init__(
            _DescriptionColumn(column.copy()),
            rich.progress.BarColumn(None, table_column=Column(ratio=1)),
            rich.progress.MofNCompleteColumn(table_column=column.copy()),
            *columns,
            _TextColumn(self),
            console=console,
            transient=True,
            expand=True,
            refresh_per_second=refresh_per_second,
            redirect_stdout=redirect_stdout,
            disable=not console.is_interactive,
        )

    def get_renderable(self) -> RenderableType:
        """Returns the rows, as wide as the terminal is now."""
        return _Narrower(super().get_renderable())

    def text_room(self) -> int:
        """Returns the number of columns for texts, which leaves some for the bars."""
        counts = [len(f"{task.total or 0:.0f}") for task in self.tasks]
        descriptions = [len(task.description) for task in self.tasks]
        times = (_TIME_WIDTH + 1) * (len(self.columns) - 4)
        taken = max(descriptions) + 2 * max(counts) + times + _BAR_WIDTH + 4
        return max(self.console.width - _FREE_COLUMNS - taken, 1)

    def start(self) -> None:
        """Begins to draw it."""
        if not self.disable:
            show(self)
        super().start()

    def stop(self) -> None:
        """Removes it from the terminal."""
        hide(self)
        super().stop()


class _Narrower:
    """What is drawn, without the last columns."""

    def __init__(self, rows: RenderableType) -> None:
        self._rows = rows

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> RenderResult:
        narrower = options.update_width(options.max_width - _FREE_COLUMNS)
        yield from console.render(self._rows, narrower)


class _DescriptionColumn(rich.progress.ProgressColumn):
    """The name of each task."""

    def render(self, task: rich.progress.Task) -> Text:
        """Returns the name, which is no markup."""
        return Text(printable(task.description))


class _TextColumn(rich.progress.ProgressColumn):
    """The text of each task."""

    def __init__(self, bar: ProgressBar) -> None:
        super().__init__(Column(no_wrap=True))
        self._bar = bar

    def render(self, task: rich.progress.Task) -> Text:
        """Returns the text, or in the last row what the user waits for."""
        is_last = task.id == self._bar.task_ids[-1]
        words = current_words() if is_last else ""
        text = Text(printable(words or str(task.fields["text"])))
        text.truncate(self._bar.text_room(), overflow="ellipsis")
        return text


class Spinner(Live):
    """A spinner with `current_words` on standard error, which is a terminal."""

    is_spinner = True

    def __init__(self) -> None:
        # A duplicate, because the descriptor of standard error may be diverted.
        try:
            descriptor = os.dup(sys.stderr.fileno())
            file: IO[str] = open(descriptor, "w", encoding="utf-8")  # noqa: SIM115
        except (io.UnsupportedOperation, AttributeError):  # it has no descriptor
            file = sys.stderr
        self._spinner = rich.spinner.Spinner("dots")
        # What is printed meanwhile appears above it.
        super().__init__(
            console=Console(file=file, force_terminal=True),
            get_renderable=self._with_words,
            refresh_per_second=12.5,
            transient=True,
        )

    def _with_words(self) -> rich.spinner.Spinner:
        self._spinner.text = Text(printable(current_words()))
        return self._spinner

"""Windows of lines of several files, cut into batches of similar length."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from t2t_keras.cli.translation import MAX_CHARACTERS, MAX_LINES

# Limits of what is sent to a worker at once.
_BATCHES_PER_WORKER = 8
_MAX_LINES_OF_BATCH = 500
_MAX_CHARACTERS_OF_BATCH = 200_000
_MIN_LINES_OF_BATCH = 16


class Line(NamedTuple):
    """A line of a file, or of a pair of files.

    Attributes:
        file: the index of the file.
        number: the number of the line in it, from 1.
        texts: the text, or source and target.
        fault: what is wrong with the line; "": nothing.
    """

    file: int
    number: int
    texts: tuple[str, ...]
    fault: str = ""


@dataclasses.dataclass(eq=False)
class Window:
    """Lines that follow each other in files that follow each other.

    Attributes:
        lines: the lines.
        rows: what is written for each line; None: not yet known.
    """

    lines: list[Line]
    rows: list[str | None] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.rows = [None] * len(self.lines)

    @property
    def intact(self) -> list[int]:
        """The indices of the lines that are not faulty."""
        return [i for i, line in enumerate(self.lines) if not line.fault]

    @property
    def is_complete(self) -> bool:
        """Whether all rows are known."""
        return None not in self.rows


@dataclasses.dataclass(eq=False)
class Batch:
    """Lines of a window that a worker gets at once.

    Attributes:
        window: the window.
        indices: their indices in it.
        seed_offset: what is added to the seed of samples.
        deaths: how many workers died while they had these lines.
        failed_by: the worker that raised an error; None: none did.
        failed_on: the node that has the worker which raised an error or died; "": none.
        starts: how often the worker of `failed_by` had been started again until then.
        reason: the first line of the last error.
        suspect: the batch that is to blame if this batch, of a good line, is
            computed; None: this batch is not such a test.
    """

    window: Window
    indices: list[int]
    seed_offset: int = 0
    deaths: int = 0
    failed_by: object = None
    failed_on: str = ""
    starts: int = 0
    reason: str = ""
    suspect: "Batch | None" = None

    @property
    def lines(self) -> list[Line]:
        """The lines."""
        return [self.window.lines[i] for i in self.indices]

    def halves(self) -> "list[Batch]":
        """Returns two batches with the lines of this one."""
        middle = len(self.indices) // 2
        parts = (self.indices[:middle], self.indices[middle:])
        return [Batch(self.window, part, self.seed_offset) for part in parts]


def windows(lines: Iterable[Line], workers: int) -> Iterator[Window]:
    """Yields windows that keep some workers busy.

    Args:
        lines: the lines of all files.
        workers: the number of workers.
    """
    max_lines = workers * _BATCHES_PER_WORKER * _MAX_LINES_OF_BATCH
    window: list[Line] = []
    characters = 0
    for line in lines:
        window.append(line)
        characters += sum(map(len, line.texts))
        if len(window) == max_lines or characters >= workers * MAX_CHARACTERS:
            yield Window(window)
            window = []
            characters = 0
    if window:
        yield Window(window)


def batches_by_length(window: Window, workers: int) -> list[Batch]:
    """Cuts the lines of a window that are not faulty into batches of similar length.

    The longest come first, so that the workers end at about the same time.

    Args:
        window: the window.
        workers: the number of workers, each of which gets several batches.
    """
    lengths = [sum(map(len, line.texts)) for line in window.lines]
    intact = window.intact
    share = len(intact) // (workers * _BATCHES_PER_WORKER)
    max_lines = min(max(share, _MIN_LINES_OF_BATCH), _MAX_LINES_OF_BATCH)
    batches: list[Batch] = []
    characters = 0
    for i in sorted(intact, key=lambda i: (-lengths[i], i)):
        characters += lengths[i]
        is_full = not batches or len(batches[-1].indices) == max_lines
        if is_full or characters > _MAX_CHARACTERS_OF_BATCH:
            batches.append(Batch(window, []))
            characters = lengths[i]
        batches[-1].indices.append(i)
    return batches


def chunk_windows(lines: Iterable[Line]) -> Iterator[Window]:
    """Yields the lines that `t2t translate` decodes together, each time a window.

    Samples depend on them.
    """
    for _, file_lines in itertools.groupby(lines, key=lambda line: line.file):
        window: list[Line] = []
        characters = 0
        for line in file_lines:
            window.append(line)
            characters += len(line.texts[0])
            if len(window) == MAX_LINES or characters >= MAX_CHARACTERS:
                yield Window(window)
                window = []
                characters = 0
        if window:
            yield Window(window)


def whole_batch(window: Window) -> list[Batch]:
    """Returns the batch of a window of `chunk_windows`."""
    intact = window.intact
    return [Batch(window, intact, window.lines[0].number - 1)] if intact else []

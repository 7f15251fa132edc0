"""One of several runs of datagen, on as many machines, that share the work."""

import contextlib
import dataclasses
import fcntl
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from t2t_keras.errors import UserError


@dataclasses.dataclass(frozen=True)
class Task:
    """Task `number`, from 1, `of` so many.

    Raises:
        UserError: there is no such task.
    """

    number: int = 1
    of: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.of:
            raise UserError(
                f"--task {self}: of {self.of} tasks the first is 1/{self.of} and the "
                f"last {self.of}/{self.of}"
            )

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Returns the task that is written "2/4".

        Raises:
            UserError: the text is not of that form.
        """
        match = re.fullmatch(r"(\d+)/(\d+)", text)
        if not match:
            raise UserError(f"--task: write K/N, 2/4 for example, not '{text}'")
        return cls(int(match[1]), int(match[2]))

    @property
    def name(self) -> str:
        """The name that its files bear."""
        return f"task-{self.number:05d}-of-{self.of:05d}"

    def all(self) -> list["Task"]:
        """Returns this task and those it shares the work with, in order."""
        return [Task(number, self.of) for number in range(1, self.of + 1)]

    def share(self, total: int) -> range:
        """Returns which of so many examples it encodes."""
        first, end = (total * n // self.of for n in (self.number - 1, self.number))
        return range(first, end)


@contextlib.contextmanager
def lock(path: Path, *, wait: bool, purpose: str = "") -> Iterator[None]:
    """Holds a lock, which ends with its process, even if that is killed.

    Args:
        path: a file in the directory that is worked in; both are made if absent.
        wait: for another process to give the lock back.
        purpose: what others shall know of the work.

    Raises:
        UserError: another process has it, and we do not wait.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise at_work(path.parent) from None
        file.truncate(0)
        file.write(purpose)
        file.flush()
        yield


def purpose_of_holder(path: Path) -> str | None:
    """Returns what the process that holds a lock works for; None if none does."""
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            return file.read()
    return None


def at_work(directory: Path) -> UserError:
    """The error for a directory that somebody else works in."""
    return UserError(
        f"another `t2t datagen` is at work in {directory}; wait until it is done"
    )

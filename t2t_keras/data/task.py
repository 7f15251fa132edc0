"""One of several runs of datagen, on as many machines, that share the work."""

import dataclasses
import re
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


def at_work(directory: Path) -> UserError:
    """The error for a directory that somebody else works in."""
    return UserError(
        f"another `t2t datagen` is at work in {directory}; wait until it is done"
    )

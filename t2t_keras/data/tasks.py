"""Tasks into which data generation is divided, and what runs them.

A stage gives a `TaskRunner` a function of a module and its arguments. What runs the
tasks may do so in other processes or on other machines, and repeat a task whose process
died: a task that is repeated, even while the first one is still at work, has the same
result and leaves the same files.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

A = TypeVar("A")
R = TypeVar("R")


class TaskRunner(Protocol):
    """Runs the tasks of a stage."""

    def __call__(
        self, task: Callable[[A], R], arguments: Sequence[A], /
    ) -> Iterator[R]:
        """Yields the results of the calls, in the order of the arguments.

        Args:
            task: a function of a module.
            arguments: the argument of each call, which can be pickled.

        Raises:
            UserError: a task has raised it, or the tasks cannot be run.
        """
        ...


def run_here(task: Callable[[A], R], arguments: Sequence[A], /) -> Iterator[R]:
    """Runs tasks in this process, one after the other: a `TaskRunner`."""
    return map(task, arguments)

"""What `contest.py` times: this project and other toolkits, one in each file.

A file imports its toolkit, which may be missing, and has `uses_gpu` and one or both of
the other functions:

    def uses_gpu() -> bool
    def training_step(work: Workload) -> TrainingStep
    def search(work: Workload, beam_size: int, steps: int) -> Callable[[], None]

The step trains on the workload's ids, 0 being the seed of the source and 1 that of the
target, with dropout, label smoothing and Adam. Every call of the search translates the
source by beam search; all outputs have as many tokens as there are steps.
"""

from collections.abc import Callable
from typing import NamedTuple


class TrainingStep(NamedTuple):
    """An update to be timed.

    Attributes:
        run: starts one; the device may do it later.
        wait: returns the loss of the last one, when it is done.
    """

    run: Callable[[], None]
    wait: Callable[[], float]

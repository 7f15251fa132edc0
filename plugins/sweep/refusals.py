"""Which trials that were refused before they began end a sweep."""

from t2t_keras.errors import UserError

# So many in a row have a cause outside of the trials.
MAX_REFUSALS = 3


class Refusals:
    """The trials in a row that were refused: their training had not begun."""

    def __init__(self) -> None:
        self._in_a_row = 0

    def clear(self) -> None:
        """Notes that a trial has ended otherwise."""
        self._in_a_row = 0

    def add(self, index: int, reason: str, had_begun: bool) -> None:
        """Notes that a trial was refused.

        Args:
            index: the trial.
            reason: why it was refused.
            had_begun: whether its training had begun before, and is resumed.

        Raises:
            UserError: what has refused it would refuse all.
        """
        self._in_a_row += 1
        if has_cause_outside(index, had_begun) or self._in_a_row == MAX_REFUSALS:
            raise UserError(f"trial {index}: {reason}")


def has_cause_outside(index: int, had_begun: bool) -> bool:
    """Returns whether what refuses a trial would refuse all.

    The first trial has the values of the set. A resumed one was not refused before.
    """
    return index == 0 or had_begun

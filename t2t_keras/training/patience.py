"""Early stopping: a training ends after some evaluations without a new best."""

from t2t_keras.training.evaluations import Evaluations
from t2t_keras.training.hooks import Hook


class Patience(Hook):
    """Ends a training after `patience` evaluations without a new best.

    Args:
        evaluations: the evaluations on dev.
        patience: how many; 0: never.
    """

    def __init__(self, evaluations: Evaluations, patience: int) -> None:
        self._evaluations = evaluations
        self._patience = patience

    def stop_reason(self) -> str | None:
        """Returns "patience" if the best evaluation is too long ago."""
        if not self._patience:
            return None
        has_ended = self._evaluations.count_since_best() >= self._patience
        return "patience" if has_ended else None

"""Ends a training that has diverged, with one sentence."""

import math

from t2t_keras.errors import UserError

# Each skipped update halves the loss scale of float16.
MAX_SKIPPED_IN_A_ROW = 50

_DIVERGED = 10.0  # times the loss of the uniform distribution
_REMEDY = "a lower learning_rate, a longer warmup_steps or clip_norm=1"


def refuse_skipped_updates(step: int, skipped_in_a_row: int, limit: int) -> None:
    """Refuses to go on if the last updates have all been skipped.

    Until then nothing is lost: a skipped update leaves everything as it was.

    Raises:
        UserError: `limit` or more in a row have been skipped.
    """
    if skipped_in_a_row and skipped_in_a_row >= limit:
        raise UserError(
            f"step {step}: the loss or its gradient was not finite in the last "
            f"{skipped_in_a_row} updates, which were skipped; continue from the last "
            f"checkpoint with {_REMEDY} and --change_settings"
        )


def refuse_divergence(step: int, loss: float, vocab_size: int) -> None:
    """Refuses a loss far above that of guessing.

    Fresh weights have a loss of about log V in any model, as do weights that were
    trained on other data. A training that learns stays below it.

    Args:
        step: the number of updates so far.
        loss: for each target token.
        vocab_size: V, of the targets.

    Raises:
        UserError: the training has diverged.
    """
    guessing = math.log(vocab_size)
    if loss > _DIVERGED * guessing:
        raise UserError(
            f"step {step}: the training has diverged: its loss, {loss:.4g} for each "
            f"target token, is far above a loss by guessing, {guessing:.4g}; train in "
            f"a new --output_dir with {_REMEDY}"
        )

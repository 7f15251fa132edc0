"""Registers the core's model. Light, so that `t2t list` is fast."""

from typing import TYPE_CHECKING

from t2t_keras.hparam import HParams
from t2t_keras.registry import register_model

if TYPE_CHECKING:
    from t2t_keras.model import Transformer


@register_model
def transformer(
    hparams: HParams, source_vocab_size: int, target_vocab_size: int | None = None
) -> "Transformer":
    """The paper's model, and the variants of its Table 3 and section 4."""
    from t2t_keras.model import Transformer

    return Transformer(hparams, source_vocab_size, target_vocab_size)

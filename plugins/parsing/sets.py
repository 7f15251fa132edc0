"""The model and the hparam set of the parser.

Light, so that `t2t list` is fast: the model itself is in `next_word`.
"""

import dataclasses
from typing import TYPE_CHECKING

from t2t_keras import registry
from t2t_keras.hparam import HParams
from t2t_keras.option import option
from t2t_keras.registry import register_hparams, register_model

if TYPE_CHECKING:
    from .next_word import NextWordTransformer


@dataclasses.dataclass(frozen=True, kw_only=True)
class NextWordHParams(HParams):
    """The hyper-parameters of `next_word_transformer`."""

    model: str = option("next_word_transformer", "the registered model (`t2t list`)")
    num_brackets: int = option(
        74,
        "target tokens, from id 3 on, that stand for no word of the source: an opening "
        "and a closing bracket for each label",
        least=0,
    )


@register_model(hparams=NextWordHParams)
def next_word_transformer(
    hparams: NextWordHParams,
    source_vocab_size: int,
    target_vocab_size: int | None = None,
) -> "NextWordTransformer":
    """The paper's model with cross-attention that is biased towards the next word."""
    from .next_word import NextWordTransformer

    return NextWordTransformer(hparams, source_vocab_size, target_vocab_size)


@register_hparams
def parsing_next_word() -> HParams:
    """Treebanks of some 20,000 sentences on a CPU core."""
    return registry.hparams("parsing_small").override(
        model="next_word_transformer",
        dropout=0.2,
        train_steps=15_000,
        compute_dtype="float32",
    )

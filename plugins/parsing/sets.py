"""The model and the hparam set of the parser.

The model class is in `next_word`. It is imported only when a model is built, so that
`t2t list` stays fast.
"""

import dataclasses
from typing import TYPE_CHECKING

from t2t_keras import registry
from t2t_keras.errors import UserError
from t2t_keras.hparam import HParams
from t2t_keras.options import option
from t2t_keras.registry import register_hparams, register_model

if TYPE_CHECKING:
    from .next_word import NextWordTransformer


@dataclasses.dataclass(frozen=True, kw_only=True)
class NextWordHParams(HParams):
    """The hyper-parameters of `next_word_transformer`."""

    model: str = option("next_word_transformer", "the registered model (`t2t list`)")
    num_brackets: int = option(
        74,
        "number of brackets in the target vocabulary, an opening and a closing one for "
        "each label; their ids begin at 3",
        ge=0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.attention_window or self.position != "sinusoidal" or self.key_size % 2:
            raise UserError(
                "hparams: the model has rotary positions, which need attention_window "
                "0, the default position, and heads of an even size"
            )


@register_model(hparams=NextWordHParams)
def next_word_transformer(
    hparams: NextWordHParams,
    source_vocab_size: int,
    target_vocab_size: int | None = None,
) -> "NextWordTransformer":
    """The paper's model, with cross-attention biased towards the next source word."""
    from .next_word import NextWordTransformer

    return NextWordTransformer(hparams, source_vocab_size, target_vocab_size)


@register_hparams
def parsing_next_word() -> HParams:
    r"""Treebanks of about 20,000 sentences on one CPU core: CRAFT, F1 81.1, 27 minutes.

    The layer sizes are those of `parsing_small`. The model learns within 300 steps
    which word each tag belongs to. It needs neither a second training run nor
    BPE-dropout. With a few thousand sentences, more dropout and fewer steps are better:
    the Wall Street Journal sample has F1 80.6 after 3,000 steps with dropout 0.3.

        t2t datagen --problem parsing_wsj_words --data_dir data --skip_bad_trees \
            --train_trees train.mrg.gz --dev_trees dev.mrg
        t2t train --problem parsing_wsj_words --hparams_set parsing_next_word \
            --data_dir data --output_dir runs/words --save_every 250 \
            --keep 14 --eval_every 2500 --eval_sentences 0
        t2t evaluate --output_dir runs/words --split dev
    """
    return registry.hparams("parsing_small").override(
        model="next_word_transformer",
        dropout=0.2,
        train_steps=5000,
        compute_dtype="float32",
    )

"""The hyper-parameters of `next_word_transformer`."""

import dataclasses

from t2t_keras.errors import UserError
from t2t_keras.hparam import HParams
from t2t_keras.options import option


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

"""The model (section 3), written in Keras operations only, for any Keras backend.

`layers` has the layers, each written like its equation; `transformer` builds encoder,
decoder and the whole model from them, and decodes step by step with a cache.
`window_attention` is the restricted self-attention of section 4, and `loss` the
label-smoothed cross-entropy. `backend` has the type of tensors.
"""

from typing import TYPE_CHECKING

from t2t_keras import registry
from t2t_keras.hparam import HParams
from t2t_keras.option import UserError

if TYPE_CHECKING:
    from t2t_keras.model.transformer import Transformer


@registry.register_model
def transformer(
    hparams: HParams, source_vocab_size: int, target_vocab_size: int | None = None
) -> "Transformer":
    """The paper's model, and the variants of its Table 3 and section 4."""
    from t2t_keras.model.transformer import Transformer

    return Transformer(hparams, source_vocab_size, target_vocab_size)


def build_model(
    hparams: HParams, source_vocab_size: int, target_vocab_size: int | None = None
) -> "Transformer":
    """Returns the registered model that `hparams.model` names, newly initialized.

    Args:
        hparams: the hyper-parameters.
        source_vocab_size: see `Transformer`.
        target_vocab_size: see `Transformer`.

    Raises:
        UserError: there is no such model, or it takes another class of hparams.
    """
    model = registry.model(hparams.model)
    if type(hparams) is not model.hparams:
        raise UserError(
            f"hparams: model '{hparams.model}' takes {model.hparams.__name__}, not "
            f"{type(hparams).__name__}; set model to the name of its model"
        )
    return model.build(hparams, source_vocab_size, target_vocab_size)

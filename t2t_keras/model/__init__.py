"""The model (section 3), written in Keras operations only, for any Keras backend.

`layers` has the layers, each written like its equation; `transformer` builds encoder,
decoder and the whole model from them, and decodes step by step with a cache.
`window_attention` is the restricted self-attention of section 4, and `loss` the
label-smoothed cross-entropy; `schedule` has the learning rate for Keras's optimizers,
`backend` the type of tensors. The names in `__all__` can be imported from here.
"""

import importlib
from typing import TYPE_CHECKING, Any

from t2t_keras import registry
from t2t_keras.errors import UserError
from t2t_keras.hparam import HParams

if TYPE_CHECKING:
    from t2t_keras.model.transformer import Transformer

# The public classes by their modules, which import Keras.
_CLASSES = {
    "layers": "SelfAttention CrossAttention FeedForward Residual LayerNorm Dropout "
    "Embedding LearnedPositions",
    "window_attention": "WindowSelfAttention",
    "transformer": "EncoderLayer DecoderLayer Encoder Decoder Transformer",
    "loss": "LabelSmoothedCrossEntropy",
    "schedule": "Schedule",
}
__all__ = ["build_model", *" ".join(_CLASSES.values()).split()]


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


def __getattr__(name: str) -> Any:
    """Imports a public class at its first use."""
    for module, names in _CLASSES.items():
        if name in names.split():
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__

"""Registers `extended_transformer`, the model of imported runs.

This module does not import Keras, so `t2t list` stays fast.
"""

from typing import TYPE_CHECKING

from t2t_keras.registry import register_model
from t2t_keras.usr_dir import PACKAGE_HINTS

from .extended_hparams import ExtendedHParams

if TYPE_CHECKING:
    from .extended_model import ExtendedTransformer

PACKAGE_HINTS["tensor2tensor"] = (
    "write `import t2t_keras.plugins.interop.as_tensor2tensor` above this line, which "
    'provides what a usr_dir needs of it (docs/from-tensor2tensor.md, "Problems")'
)


@register_model(hparams=ExtendedHParams)
def extended_transformer(
    hparams: ExtendedHParams,
    source_vocab_size: int,
    target_vocab_size: int | None = None,
) -> "ExtendedTransformer":
    """The models of tensor2tensor, Marian and transformers: biases, swish, ..."""
    from .extended_model import ExtendedTransformer

    return ExtendedTransformer(hparams, source_vocab_size, target_vocab_size)

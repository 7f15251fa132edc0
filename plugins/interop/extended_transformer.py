"""`extended_transformer`, the model of imported runs: its registration and hparams.

This module does not import Keras, so `t2t list` stays fast; `extended_model` has the
layers.
"""

import dataclasses
from typing import TYPE_CHECKING, Any, Literal, Self

from t2t_keras.hparam import FIELD_ALIASES, HParams
from t2t_keras.options import option
from t2t_keras.registry import register_model
from t2t_keras.usr_dir import PACKAGE_HINTS

from .t2t.names import ALIASES

if TYPE_CHECKING:
    from .extended_model import ExtendedTransformer


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtendedHParams(HParams):
    """Hyper-parameters of tensor2tensor's and Marian's models."""

    model: str = option("extended_transformer", "the registered model (`t2t list`)")
    num_decoder_layers: int = option(0, "layers of the decoder; 0: num_layers", ge=0)
    position: Literal["sinusoidal", "learned", "halves", "t2t"] = option(  # type: ignore[assignment]
        "sinusoidal",
        "positional encodings: the paper's, learned ones, the paper's with all sines "
        "before all cosines, or tensor2tensor's",
    )
    target_space: bool = option(
        False,
        "a learned vector is added to each source embedding, as tensor2tensor adds its "
        "target space embedding",
    )
    attention_bias: bool = option(False, "the projections of attention add biases")
    output_bias: bool = option(False, "the logits add a bias")
    activation: Literal["relu", "swish"] = option(
        "relu", "activation of the feed-forward networks"
    )
    norm_epsilon: float = option(
        1e-6, "added to the variance in layer norm (as in the authors' code)", gt=0
    )

    @classmethod
    def from_hparams(cls, hparams: HParams, **changes: Any) -> Self:
        """Converts hyper-parameters to those of this model, and changes some.

        Raises:
            UserError: see `HParams.override`.
        """
        extended = hparams.override(model="extended_transformer", **changes)
        assert isinstance(extended, cls)
        return extended

    @property
    def decoder_layers(self) -> int:
        """Number of decoder layers."""
        return self.num_decoder_layers or self.num_layers


FIELD_ALIASES.update(ALIASES)

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

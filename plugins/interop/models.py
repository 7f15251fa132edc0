"""The model `extended_transformer`: what other programs' Transformers have besides.

Light, so that `t2t list` is fast: the model itself is in `extended_model`.
"""

import dataclasses
from typing import TYPE_CHECKING, Any, Literal, Self

from t2t_keras.hparam import HParams
from t2t_keras.option import option
from t2t_keras.registry import register_model

if TYPE_CHECKING:
    from .extended_model import ExtendedTransformer


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtendedHParams(HParams):
    """Hyper-parameters of the models of tensor2tensor and Marian."""

    model: str = option("extended_transformer", "the registered model (`t2t list`)")
    num_decoder_layers: int = option(0, "layers of the decoder; 0: num_layers", least=0)
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
        1e-6, "added to the variance in layer norm (as in the authors' code)", above=0
    )

    @classmethod
    def of(cls, hparams: HParams, **changes: Any) -> Self:
        """Returns hyper-parameters as those of this model, with some changed.

        Raises:
            UserError: as `override`.
        """
        extended = hparams.override(model="extended_transformer", **changes)
        assert isinstance(extended, cls)
        return extended

    @property
    def decoder_layers(self) -> int:
        """Number of layers of the decoder."""
        return self.num_decoder_layers or self.num_layers


@register_model(hparams=ExtendedHParams)
def extended_transformer(
    hparams: ExtendedHParams,
    source_vocab_size: int,
    target_vocab_size: int | None = None,
) -> "ExtendedTransformer":
    """The models of tensor2tensor, Marian and transformers: biases, swish, ..."""
    from .extended_model import ExtendedTransformer

    return ExtendedTransformer(hparams, source_vocab_size, target_vocab_size)

"""Multi-head attention of the target to the encoded source (3.2.3)."""

from t2t_keras.model.backend import Shape, Tensor
from t2t_keras.model.layers.attention import AttentionOutput, MultiHead
from t2t_keras.model.layers.base import serializable
from t2t_keras.model.layers.dropout_keys import DropoutSeed
from t2t_keras.model.layers.linear import Kernels
from t2t_keras.model.layers.masks import with_masks


@serializable
class CrossAttention(MultiHead):
    """Multi-head attention of the target to the encoded source.

    The arguments are those of `MultiHead`.
    """

    def build(self, input_shape: Shape) -> None:
        """Creates the weights."""
        keys = self.num_heads * self.key_size
        values = self.num_heads * self.value_size
        self.query_projection = self.make_linear(keys, name="query")
        self.key_value_projection = self.make_linear(keys, values, name="key_value")
        self.query_projection.build(input_shape)
        self.key_value_projection.build(input_shape)
        super().build(input_shape)

    def call(
        self,
        x: Tensor,
        encoder_output: Tensor,
        attention_mask: Tensor | None = None,
        return_attention_scores: bool = False,
        seed: DropoutSeed | None = None,
        encoder_output_mask: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attends as `keras.layers.MultiHeadAttention` does.

        Args:
            x: queries [B, T, D].
            encoder_output: [B, S, D], what they attend to.
            attention_mask: bool [B, T, S], see `SelfAttention.call`.
            return_attention_scores: whether to return, after the output [B, T, D], the
                attention weights [B, H, T, S].
            seed: dropout seed, see `Dropout`.
            encoder_output_mask: bool [B, S]; Keras passes the mask of `encoder_output`.
        """
        key, value = self.project_key_value(encoder_output)
        bias = with_masks(None, attention_mask, encoder_output_mask)
        y, scores = self.compute_attention(x, key, value, bias, seed)
        return (y, scores) if return_attention_scores else y

    def project_key_value(self, encoder_output: Tensor) -> list[Tensor]:
        """Projects [B, S, D] to keys [B, H, S, d_k] and values [B, H, S, d_v]."""
        return self.project_heads(
            self.key_value_projection, encoder_output, self.key_size, self.value_size
        )

    def compute_attention(
        self,
        x: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        seed: DropoutSeed | None = None,
        kernels: Kernels | None = None,
    ) -> AttentionOutput:
        """Attends from every target position x [B, T, D] to the source.

        Keys and values come from `project_key_value`: decoding computes them once for
        all steps. The bias is broadcastable to [B, H, T, S]. In a decoding step the
        axis T holds a sentence's K beams, which all attend to the same source.
        """
        (query,) = self.project_heads(
            self.query_projection, x, self.key_size, kernels=kernels
        )  # [B, H, T, d_k]
        return self.multi_head(query, [key], [value], bias, seed, kernels)

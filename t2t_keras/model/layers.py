"""The Transformer's layers, written like the paper's equations (3.1 to 3.5, 5.4).

Attention (3.2), the residual connection and layer normalization (3.1), the feed-forward
network (3.3), embeddings (3.4), positional encodings (3.5), and the helpers they use.

Letters in shapes, here and everywhere: B batch size, S source length, T target length,
D model width (d_model), F inner width (d_ff), H heads, K beams, V vocabulary size; N is
any number of rows.
"""

import contextlib
import contextvars
import inspect
import itertools
import math
import random
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self

import keras
import numpy as np
from keras import ops

from t2t_keras.model.backend import Shape, Tensor

# Models with such classes are loaded without `custom_objects`.
serializable = keras.saving.register_keras_serializable(package="t2t_keras")


@serializable
class BlockGlorot(keras.initializers.Initializer):
    """Glorot uniform initializer for a kernel that holds several kernels side by side.

    Each kernel is initialized with the limit for its own width.
    """

    def __init__(self, widths: Sequence[int]) -> None:
        self.widths = tuple(widths)

    def __call__(self, shape: Sequence[int], dtype: str | None = None) -> Tensor:
        """Returns [in, sum(widths)]."""
        return ops.concatenate(
            [
                keras.initializers.GlorotUniform()((shape[0], width), dtype=dtype)
                for width in self.widths
            ],
            axis=1,
        )

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {"widths": self.widths}


BLOCK = 64  # products are faster on a GPU if their sizes are multiples of it

# The matrices of layers by the id of the layer, see `using_matrices`.
_matrices: contextvars.ContextVar[Mapping[int, Tensor]]
_matrices = contextvars.ContextVar("matrices", default={})  # noqa: B039, never changed


@contextlib.contextmanager
def using_matrices(
    layers: "Sequence[Linear | Embedding]", matrices: Sequence[Tensor]
) -> Iterator[None]:
    """Within this context, layers multiply by the given results of their `matrix`.

    Decoding computes these once for all steps: in bfloat16 the casts would take a
    seventh of every step.
    """
    token = _matrices.set(dict(zip(map(id, layers), matrices, strict=True)))
    try:
        yield
    finally:
        _matrices.reset(token)


@serializable
class Linear(keras.layers.Dense):
    """`keras.layers.Dense` that flattens batch and positions into one axis.

    Dense multiplies [B, T, D] by its kernel in B matrix products, and sums B partial
    gradients of the kernel. Flattened, forward and backward are one product each.
    """

    def matrix(self) -> Tensor:
        """Returns the kernel [in, out] in the compute dtype."""
        return ops.cast(self.kernel, self.compute_dtype)

    def call(self, x: Tensor) -> Tensor:
        """Maps [..., in] to [..., out]."""
        shape = ops.shape(x)
        kernel = _matrices.get().get(id(self))
        kernel = self.matrix() if kernel is None else kernel
        rows = ops.matmul(ops.reshape(x, (-1, shape[-1])), kernel)
        if self.use_bias:
            rows = rows + self.bias
        return ops.reshape(self.activation(rows), (*shape[:-1], self.units))


class Layer(keras.layers.Layer):
    """A layer that maps [..., D] to [..., D], with a config.

    The config has the arguments of the constructor, which may be layers.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Records the arguments."""
        layer = super().__new__(cls, *args, **kwargs)
        names: list[str] = []
        inits = (vars(kind).get("__init__") for kind in cls.__mro__)
        for own in map(inspect.getfullargspec, filter(None, inits)):
            names += own.args[1:]
            if not own.varargs:  # else they are those of the next class
                break
        values = {**dict(zip(names, args, strict=False)), **kwargs}
        arguments = {k: v for k, v in values.items() if k not in ("name", "dtype")}
        # Not an attribute that Keras tracks: layers would have two owners.
        object.__setattr__(layer, "_arguments", arguments)
        return layer

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        arguments = keras.saving.serialize_keras_object(self._arguments)
        return {**super().get_config(), **arguments}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Returns the layer that `get_config` describes."""
        return cls(**keras.saving.deserialize_keras_object(config))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Returns the shape of the output."""
        return input_shape

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Returns symbolic outputs; `call` determines their number and dtypes."""
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def compute_mask(self, inputs: Any, previous_mask: Any) -> Any:
        """Returns the mask of the output, which is that of the first input."""
        return previous_mask


class Block(Layer):
    """A layer that consists of other layers, all with inputs of one shape."""

    def build(self, input_shape: Shape) -> None:
        """Builds the layers that it consists of."""
        for layer in self._flatten_layers(include_self=False, recursive=False):
            if not layer.built:  # Keras builds them when it loads a model
                layer.build(input_shape)


@serializable
class LayerNorm(Layer):
    """Layer normalization (Ba et al., 2016) over the last axis, in float32 (3.1)."""

    def __init__(self, d_model: int, epsilon: float = 1e-6, **kwargs: Any) -> None:
        super().__init__(**{"dtype": "float32"} | kwargs)
        self.d_model = d_model
        self.epsilon = epsilon

    def build(self, input_shape: Shape) -> None:
        """Creates gamma and beta, [D] each."""
        self.gamma = self.add_weight(
            name="gamma", shape=(self.d_model,), initializer="ones"
        )
        self.beta = self.add_weight(
            name="beta", shape=(self.d_model,), initializer="zeros"
        )

    def call(self, x: Tensor) -> Tensor:
        """Normalizes x [..., D]."""
        centred = x - ops.mean(x, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(centred), axis=-1, keepdims=True)
        unit = centred * ops.rsqrt(variance + self.epsilon)
        return unit * self.gamma + self.beta


class _Key(keras.random.SeedGenerator):
    """A fixed seed, wrapped as the seed generator that `keras.random` expects."""

    def __init__(self, key: Tensor) -> None:
        self._key = key

    def next(self, ordered: bool = True) -> Tensor:
        """Returns the seed; the caller passes another one for every use."""
        del ordered
        return self._key


def random_bits(seed: Tensor, rows: int | Tensor, columns: int | Tensor) -> Tensor:
    """Returns 32 random bits for each element of a matrix, uint32 [rows, columns].

    They are a hash of row, column and seed in integer arithmetic, which is the same
    with and without XLA. (XLA's own random numbers differ from those of TensorFlow's
    kernels.) It is fast only if it is compiled: without XLA, every operation here is a
    pass over the matrix.

    Args:
        seed: uint32 [2]
        rows: number of rows.
        columns: number of columns.
    """

    def mixed(x: Tensor) -> Tensor:
        """Mixes all bits of x: the hash function lowbias32 of Chris Wellons."""
        for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
            x = ops.bitwise_xor(x, ops.right_shift(x, _uint32(shift)))
            x = x * _uint32(factor)
        return ops.bitwise_xor(x, ops.right_shift(x, _uint32(16)))

    # Any constant would do; without one, the matrix of seed 0 would be symmetric.
    row_key = mixed(seed[0] + _uint32(0x9E3779B9))
    column_key = mixed(seed[1] + row_key + _uint32(0x9E3779B9))
    by_row = mixed(ops.cast(ops.arange(rows), "uint32") + row_key)
    by_column = mixed(ops.cast(ops.arange(columns), "uint32") + column_key)
    return mixed(by_row[:, None] + by_column[None, :])


def _uint32(number: int) -> Tensor:
    return ops.convert_to_tensor(number, dtype="uint32")


@serializable
class Dropout(Layer):
    """Dropout with a seed that the caller may pass (5.4).

    Keras's own dropout takes its seed from a state variable: under `tf.distribute`
    every replica then draws the same mask, and a mask cannot be drawn again. Here the
    mask depends only on the caller's seed and on the layer's path in the model; without
    a seed it works like Keras's own.
    """

    def __init__(self, rate: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rate = rate

    def build(self, input_shape: Shape) -> None:
        """Computes this layer's part of the seed, a hash of its path."""
        self._fold = zlib.crc32(self.path.encode()) & 0x7FFFFFFF
        self.seed_generator = None
        if self.rate:
            state = random.getstate()  # so that the initial weights do not change
            start = random.randrange(2**31)
            random.setstate(state)
            start = (start + self._fold) % 2**31
            self.seed_generator = keras.random.SeedGenerator(start)

    def call(
        self, x: Tensor, seed: Tensor | None = None, training: bool = False
    ) -> Tensor:
        """Sets elements to zero with probability `rate` and scales up the others.

        Args:
            x: a tensor of any shape.
            seed: [2], different for every step and replica. An int32 seed is for
                Keras's random numbers, a uint32 seed for `random_bits` (with XLA).
            training: whether to drop elements without a seed as well.
        """
        if not self.rate or (seed is None and not training):
            return x
        generator = self.seed_generator
        if seed is not None:
            seed = ops.convert_to_tensor(seed)
            seed += ops.cast([0, self._fold], seed.dtype)
            generator = _Key(seed)
        if seed is not None and keras.backend.standardize_dtype(seed.dtype) == "uint32":
            *rest, columns = ops.shape(x)
            bits = random_bits(seed, math.prod(rest), columns)
            bits = ops.reshape(bits, ops.shape(x))
            is_kept = ops.greater_equal(bits, _uint32(round(self.rate * 2**32)))
        else:
            noise = keras.random.uniform(ops.shape(x), dtype="float32", seed=generator)
            is_kept = ops.greater_equal(noise, self.rate)
        keep = ops.cast(is_kept, "float32")
        # In bfloat16, a factor of 1.1111 would be rounded to 1.1094.
        kept = ops.cast(x, "float32") * (keep / (1.0 - self.rate))
        return ops.cast(kept, x.dtype)


# Added to the logits of illegal positions. It is finite so that a row without any legal
# position (an empty sentence that pads a batch) does not become NaN.
MASKED = -1e9


def masking_bias(mask: Tensor | None) -> Tensor | None:
    """Returns the bias [B, 1, T, S] of a mask [B, T, S], true where one may attend."""
    if mask is None:
        return None
    return ops.expand_dims(ops.where(ops.cast(mask, "bool"), 0.0, MASKED), 1)


def with_masks(
    bias: Tensor | None, attention_mask: Tensor | None, *masks: Tensor | None
) -> Tensor | None:
    """Returns a bias, plus one for the positions that any of the masks excludes.

    Args:
        bias: broadcastable to [B, H, T, S]; None: 0.
        attention_mask: bool [B, T, S], true where one may attend; None: everywhere.
        *masks: bool [B, S], true where there is a token; None: everywhere. The first
            one that is not None is used: Keras passes the mask of a layer's input as
            `mask` if that is the only tensor, and otherwise by the name of the input.
    """
    mask = next((mask for mask in masks if mask is not None), None)
    if mask is not None:
        has_token = ops.expand_dims(ops.cast(mask, "bool"), 1)
        if attention_mask is None:
            attention_mask = has_token
        else:
            attention_mask = ops.logical_and(
                ops.cast(attention_mask, "bool"), has_token
            )
    excluded = masking_bias(attention_mask)
    if bias is None or excluded is None:
        return excluded if bias is None else bias
    return bias + excluded


def padding_bias(is_padding: Tensor) -> Tensor:
    """Returns the bias [B, 1, 1, S] that masks padding; `is_padding` is bool [B, S]."""
    return ops.expand_dims(ops.where(is_padding, MASKED, 0.0), (1, 2))


def causal_bias(length: int | Tensor, bias: Tensor | None = None) -> Tensor:
    """Returns the bias [1, 1, T, T] that masks all later positions, plus another."""
    steps = ops.arange(length)
    is_later = steps[None, :] > steps[:, None]
    causal = ops.expand_dims(ops.where(is_later, MASKED, 0.0), (0, 1))
    return causal if bias is None else causal + bias


def scaled_dot_product(
    query: Tensor, key: Tensor, scale: float | None = None
) -> Tensor:
    """Returns Q K^T / sqrt(d_k) (3.2.1), float32 [B, H, T, S].

    If the components are independent with mean 0 and variance 1, q . k has the variance
    d_k: a larger d_k saturates the softmax and makes its gradients smaller.

    Args:
        query: [B, H, T, d_k]
        key: [B, H, S, d_k]
        scale: factor in place of 1 / sqrt(d_k).
    """
    logits = ops.cast(ops.matmul(query, ops.transpose(key, (0, 1, 3, 2))), "float32")
    # The factor is one number per head, not a scalar. TensorFlow 2.21's graph optimizer
    # (its oneDNN remapper) would fuse a scalar and the bias into the product, and the
    # fused kernel takes up to 20 times as long in float32. The product is scaled, not
    # the query: otherwise the optimizer makes a surrounding while loop return empty
    # tensors.
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    return logits * ops.full((query.shape[1], 1, 1), scale, "float32")


def attention_weights(scores: Tensor, bias: Tensor | None = None) -> Tensor:
    """Returns the softmax [B, H, T, S] of the scores [B, H, T, S] plus the bias."""
    return ops.softmax(scores if bias is None else scores + bias)


class SelfAttentionCache(NamedTuple):
    """The keys and values of the C tokens that a sentence's hypotheses consist of.

    A token is stored once, however many hypotheses begin with it. A step appends to the
    recent tokens only, because appending copies the existing ones.

    Attributes:
        key: [B, H, P, d_k], the keys of P tokens.
        value: [B, H, P, d_v], their values.
        recent_key: [B, H, C - P, d_k], the keys of the tokens of the last few steps.
        recent_value: [B, H, C - P, d_v], their values.
    """

    key: Tensor
    value: Tensor
    recent_key: Tensor
    recent_value: Tensor

    def select(self, rows: Tensor, columns: Tensor) -> "SelfAttentionCache":
        """Returns the cache of some sentences, with some of their tokens.

        Args:
            rows: int32 [R], the sentences.
            columns: int32 [R, U], the tokens of each.
        """
        key = ops.concatenate([self.key, self.recent_key], axis=2)
        key = select_columns(key, rows, columns)
        value = ops.concatenate([self.value, self.recent_value], axis=2)
        value = select_columns(value, rows, columns)
        return SelfAttentionCache(key, value, key[:, :, :0], value[:, :, :0])

    def reorder(self, parents: Tensor) -> "SelfAttentionCache":
        """Returns the cache in which beam k continues beam `parents[b, k]`, [B, K].

        The tokens stay where they are: `Cache.positions` changes.
        """
        del parents
        return self


def select_columns(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Returns x[rows[r], h, columns[r, u]], [R, H, U, ...], of x [B, H, C, ...]."""
    _, heads, count, *rest = ops.shape(x)
    first = (rows[:, None] * heads + ops.arange(heads)) * count  # [R, H]
    places = first[:, :, None] + columns[:, None, :]
    return ops.take(ops.reshape(x, (-1, *rest)), places, axis=0)


class _MultiHead(Layer):
    """Base class of self-attention and cross-attention (3.2.2).

    MultiHead(Q, K, V) = Concat(head_1, ..., head_H) W^O with
    head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V) and
    Attention(Q, K, V) = softmax(score(Q, K)) V.

    Args:
        d_model: model width D.
        num_heads: number of heads H.
        key_size: size d_k of queries and keys; 0: D / H.
        value_size: size d_v of values; 0: D / H.
        score: "scaled", the paper's, or what 3.2.1 compares with it: "unscaled", or
            "additive" (Bahdanau et al., 2015), u . tanh(q + k) with one vector u [d_k]
            per head. The latter holds B H T S d_k values: for small models only.
        dropout: dropout rate of the attention weights.
        use_bias: whether the projections add biases; the paper's do not.
        **kwargs: arguments of `keras.layers.Layer`.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        key_size: int = 0,
        value_size: int = 0,
        score: Literal["scaled", "unscaled", "additive"] = "scaled",
        dropout: float = 0.0,
        use_bias: bool = False,
        **kwargs: Any,
    ) -> None:
        # Keras would cast the float32 bias; the projections cast their own inputs.
        super().__init__(autocast=False, **kwargs)
        self.d_model = d_model
        self.num_heads = num_heads
        self.key_size = key_size or d_model // num_heads
        self.value_size = value_size or d_model // num_heads
        self.score_function = score
        self.use_bias = use_bias
        self.output_projection = self.make_linear(d_model, name="output")
        self.dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy)

    def make_linear(self, *widths: int, name: str) -> Linear:
        """Returns a projection to several blocks, each initialized by its own width."""
        return Linear(
            sum(widths),
            use_bias=self.use_bias,
            kernel_initializer=BlockGlorot(widths),
            name=name,
            dtype=self.dtype_policy,
        )

    def build(self, input_shape: Shape) -> None:
        """Creates the weights."""
        self.output_projection.build((None, self.num_heads * self.value_size))
        self.dropout.build(input_shape)
        if self.score_function == "additive":
            self.score_vectors = self.add_weight(
                name="score",
                shape=(self.key_size, self.num_heads),
                initializer=BlockGlorot([1] * self.num_heads),
            )

    def score(self, query: Tensor, key: Tensor) -> Tensor:
        """Returns the score of each key for each query, float32 [B, H, T, S].

        Args:
            query: [B, H, T, d_k]
            key: [B, H, S, d_k]
        """
        if self.score_function != "additive":
            scale = 1.0 if self.score_function == "unscaled" else None
            return scaled_dot_product(query, key, scale)
        hidden = ops.tanh(query[:, :, :, None] + key[:, :, None])  # [B, H, T, S, d_k]
        vectors = ops.cast(ops.transpose(self.score_vectors), hidden.dtype)
        logits = ops.matmul(hidden, vectors[:, None, :, None])[..., 0]
        return ops.cast(logits, "float32")

    def _split(self, x: Tensor, *sizes: int) -> list[Tensor]:
        """Splits [B, T, H * (a + b ...)] into [B, H, T, a], [B, H, T, b] ...

        Adjacent blocks of equal size (usually queries, keys and values) are transposed
        together: slicing them one by one would cost one pass over memory per block, and
        two in the gradient.
        """
        batch, length, _ = ops.shape(x)
        groups = [(size, len(list(same))) for size, same in itertools.groupby(sizes)]
        widths = [self.num_heads * size * count for size, count in groups]
        blocks: list[Tensor] = []
        if len(groups) > 1:
            parts = ops.split(x, list(itertools.accumulate(widths))[:-1], axis=-1)
        else:
            parts = [x]
        for part, (size, count) in zip(parts, groups, strict=True):
            heads = ops.reshape(part, (batch, length, count, self.num_heads, size))
            heads = ops.transpose(heads, (2, 0, 3, 1, 4))
            blocks += ops.unstack(heads, count)
        return blocks

    def multi_head(
        self,
        query: Tensor,
        keys: Sequence[Tensor],
        values: Sequence[Tensor],
        bias: Tensor | None,
        seed: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Computes the attention of every head and projects the joined heads by W^O.

        Args:
            query: [B, H, T, d_k]
            keys: one or more tensors [B, H, S_i, d_k]; the S positions attended to are
                those of the first tensor, then those of the second, and so on.
            values: their values [B, H, S_i, d_v].
            bias: broadcastable to [B, H, T, S].
            seed: dropout seed; None at inference.

        Returns:
            The output [B, T, D], and the attention weights [B, H, T, S] before dropout.
        """
        scores = [self.score(query, key) for key in keys]
        joined = scores[0] if len(scores) == 1 else ops.concatenate(scores, axis=-1)
        weights = attention_weights(joined, bias)
        dropped = self.dropout(ops.cast(weights, values[0].dtype), seed=seed)
        heads, start = None, 0
        for value in values:
            part = dropped
            if len(values) > 1:
                part = dropped[..., start : start + ops.shape(value)[2]]
                start += ops.shape(value)[2]
            product = ops.matmul(part, value)
            heads = product if heads is None else heads + product
        batch, _, length, _ = ops.shape(heads)
        joined = ops.transpose(heads, (0, 2, 1, 3))
        joined = ops.reshape(joined, (batch, length, self.num_heads * self.value_size))
        return self.output_projection(joined), weights


@serializable
class SelfAttention(_MultiHead):
    """Multi-head attention of a sequence to itself.

    The projections to queries, keys and values are one matrix product.

    Args:
        *args: see `_MultiHead`.
        causal: whether positions attend to earlier ones and themselves only.
        **kwargs: see `_MultiHead`.
    """

    def __init__(self, *args: Any, causal: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.causal = causal

    def make_projection(self) -> Linear:
        """Returns the projection of [B, T, D] to queries, keys and values."""
        keys = self.num_heads * self.key_size
        values = self.num_heads * self.value_size
        return self.make_linear(keys, keys, values, name="query_key_value")

    def build(self, input_shape: Shape) -> None:
        """Creates the weights."""
        self.projection = self.make_projection()
        self.projection.build(input_shape)
        super().build(input_shape)

    def call(
        self,
        x: Tensor,
        attention_mask: Tensor | None = None,
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
        seed: Tensor | None = None,
        mask: Tensor | None = None,
        x_mask: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attends as `keras.layers.MultiHeadAttention` does with x as query and value.

        Args:
            x: [B, T, D]
            attention_mask: bool [B, T, T], true where a position is attended to; the
                axes of B and of the queries may be 1.
            use_causal_mask: whether positions attend to earlier ones and themselves
                only.
            return_attention_scores: whether to return the attention weights as well.
            seed: dropout seed, see `Dropout`.
            mask: bool [B, T], true where x has a token; Keras passes that of x.
            x_mask: the same by the name under which Keras passes it beside other
                tensors.

        Returns:
            The output [B, T, D], or that and the attention weights [B, H, T, T].
        """
        bias = with_masks(None, attention_mask, mask, x_mask)
        length = ops.shape(x)[1]
        if use_causal_mask:
            bias = causal_bias(length, bias)
        y, weights, _ = self.compute_attention(x, bias, seed)
        return (
            (y, self.full_attention_scores(weights, length))
            if return_attention_scores
            else y
        )

    def compute_attention(
        self,
        x: Tensor,
        bias: Tensor | None = None,
        seed: Tensor | None = None,
        cache: SelfAttentionCache | None = None,
    ) -> tuple[Tensor, Tensor, SelfAttentionCache | None]:
        """Attends from every position to every other, or to those in a cache.

        In a decoding step, the new tokens of a sentence's K hypotheses take the place
        of positions, and `bias` masks the tokens that are not in their prefixes.

        Args:
            x: [B, T, D], in a decoding step [B, K, D].
            bias: broadcastable to [B, H, T, T], see `padding_bias`; in a decoding step
                [B, 1, K, C + K].
            seed: dropout seed, see `Dropout`.
            cache: the keys and values of C tokens; None except in a decoding step.

        Returns:
            The output [B, T, D]; the attention weights [B, H, T, T], in a decoding step
            [B, H, K, C + K]; and the cache with the new tokens, C + K in all.
        """
        query, key, value = self.project(x, bias, cache)
        if cache is None:
            if self.causal:
                bias = causal_bias(ops.shape(x)[1], bias)
            return *self.multi_head(query, [key], [value], bias, seed), None
        cache = cache._replace(
            recent_key=ops.concatenate([cache.recent_key, key], axis=2),
            recent_value=ops.concatenate([cache.recent_value, value], axis=2),
        )
        keys = [cache.key, cache.recent_key]
        values = [cache.value, cache.recent_value]
        return *self.multi_head(query, keys, values, bias, seed), cache

    def full_attention_scores(self, weights: Tensor, length: int | Tensor) -> Tensor:
        """Returns the weights of `compute_attention` as [B, H, T, T], T = `length`."""
        del length
        return weights

    def empty_cache(
        self, batch_size: int | Tensor, num_beams: int | Tensor
    ) -> SelfAttentionCache:
        """Returns the cache before the first step of K hypotheses for each sentence."""
        del num_beams  # they share one list of tokens
        none = (batch_size, self.num_heads, 0)
        key = ops.zeros((*none, self.key_size), self.compute_dtype)
        value = ops.zeros((*none, self.value_size), self.compute_dtype)
        return SelfAttentionCache(key, value, key, value)

    def project(
        self,
        x: Tensor,
        bias: Tensor | None = None,
        cache: SelfAttentionCache | None = None,
    ) -> list[Tensor]:
        """Returns queries and keys [B, H, T, d_k] and values [B, H, T, d_v].

        A subclass may add positions to queries and keys. In a decoding step, the
        position of a token is the number of other tokens that `bias` does not mask.

        Args:
            x: see `compute_attention`.
            bias: see `compute_attention`.
            cache: see `compute_attention`; None except in a decoding step.
        """
        del bias, cache
        sizes = self.key_size, self.key_size, self.value_size
        return self._split(self.projection(x), *sizes)


@serializable
class CrossAttention(_MultiHead):
    """Multi-head attention of the target to the encoded source.

    The arguments are those of `_MultiHead`.
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

    def project_key_value(self, encoder_output: Tensor) -> list[Tensor]:
        """Projects [B, S, D] to keys [B, H, S, d_k] and values [B, H, S, d_v]."""
        return self._split(
            self.key_value_projection(encoder_output), self.key_size, self.value_size
        )

    def call(
        self,
        x: Tensor,
        encoder_output: Tensor,
        attention_mask: Tensor | None = None,
        return_attention_scores: bool = False,
        seed: Tensor | None = None,
        encoder_output_mask: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attends as `keras.layers.MultiHeadAttention` does.

        Args:
            x: queries [B, T, D].
            encoder_output: what they attend to, [B, S, D].
            attention_mask: bool [B, T, S], see `SelfAttention.call`.
            return_attention_scores: whether to return the attention weights as well.
            seed: dropout seed, see `Dropout`.
            encoder_output_mask: bool [B, S], true where the source has a token; Keras
                passes the mask of `encoder_output`.

        Returns:
            The output [B, T, D], or that and the attention weights [B, H, T, S].
        """
        key, value = self.project_key_value(encoder_output)
        bias = with_masks(None, attention_mask, encoder_output_mask)
        y, weights = self.compute_attention(x, key, value, bias, seed)
        return (y, weights) if return_attention_scores else y

    def compute_attention(
        self,
        x: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        seed: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Attends from every target position to the source.

        Keys and values come from `project_key_value`: decoding computes them once for
        all steps.

        Args:
            x: [B, T, D]; in a decoding step the T axis holds a sentence's K beams,
                which all attend to the same source.
            key: [B, H, S, d_k]
            value: [B, H, S, d_v]
            bias: broadcastable to [B, H, T, S], see `padding_bias`.
            seed: dropout seed, see `Dropout`.

        Returns:
            The output [B, T, D] and the attention weights [B, H, T, S].
        """
        (query,) = self._split(self.query_projection(x), self.key_size)
        return self.multi_head(query, [key], [value], bias, seed)


@serializable
class Residual(Block):
    """The residual connection around a sub-layer (3.1, 5.4).

    It is LayerNorm(x + Dropout(Sublayer(x))); with `norm_first`, as in later versions
    of tensor2tensor, it is x + Dropout(Sublayer(LayerNorm(x))):

        y = sublayer(residual.preprocess(x))
        x = residual.postprocess(x, y, seed)

    Args:
        norm: the normalization.
        dropout: dropout rate of the sub-layer's output.
        norm_first: whether the input of the sub-layer is normalized, not the sum.
        **kwargs: arguments of `keras.layers.Layer`.
    """

    def __init__(
        self,
        norm: keras.layers.Layer,
        dropout: float = 0.0,
        norm_first: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{"dtype": "float32"} | kwargs)
        self.norm_first = norm_first
        self.norm = norm
        self.dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy)

    def preprocess(self, x: Tensor) -> Tensor:
        """Returns the sub-layer's input [B, T, D]."""
        return self.norm(x) if self.norm_first else x

    def postprocess(self, x: Tensor, y: Tensor, seed: Tensor | None = None) -> Tensor:
        """Adds the sub-layer's output y [B, T, D] to x [B, T, D]."""
        x = x + self.dropout(y, seed=seed)
        return x if self.norm_first else self.norm(x)

    def call(self, x: Tensor, y: Tensor, seed: Tensor | None = None) -> Tensor:
        """Does the same as `postprocess`."""
        return self.postprocess(x, y, seed)


@serializable
class FeedForward(Layer):
    """Feed-forward network max(0, x W1 + b1) W2 + b2 at every position (3.3).

    With the activation "swish" it is swish(x W1 + b1) W2 + b2, swish(x) = x sigmoid(x).
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        dropout: float = 0.0,
        activation: Literal["relu", "swish"] = "relu",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.d_model = d_model
        self.d_ff = d_ff
        self.activation = activation
        self.inner = Linear(d_ff, name="inner", dtype=self.dtype_policy)
        self.outer = Linear(d_model, name="outer", dtype=self.dtype_policy)
        self.dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy)

    def build(self, input_shape: Shape) -> None:
        """Creates the weights."""
        self.inner.build(input_shape)
        self.outer.build((None, self.d_ff))
        self.dropout.build(input_shape)

    def call(self, x: Tensor, seed: Tensor | None = None) -> Tensor:
        """Maps [B, T, D] to [B, T, D]; see `Dropout` for the seed."""
        hidden = self.inner(x)
        hidden = ops.relu(hidden) if self.activation == "relu" else ops.silu(hidden)
        return self.outer(self.dropout(hidden, seed=seed))


def fill_block(matrix: Tensor, row: Tensor) -> Tensor:
    """Pads a matrix [V, D] to a multiple of BLOCK rows with copies of a row [1, D]."""
    copies = -matrix.shape[0] % BLOCK
    if not copies:
        return matrix
    return ops.concatenate([matrix, ops.repeat(row, copies, axis=0)])


@serializable
class Embedding(Layer):
    """One matrix [V, D] that embeds ids and projects back to logits (3.4).

    It is initialized from N(0, 1 / D), so that the embeddings times sqrt(D) and the
    logits have variance one (tensor2tensor's choice; the paper names none).
    """

    def __init__(self, vocab_size: int, d_model: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.d_model = d_model

    def build(self, input_shape: Shape) -> None:
        """Creates the matrix."""
        self.table = self.add_weight(
            name="table",
            shape=(self.vocab_size, self.d_model),
            initializer=keras.initializers.RandomNormal(stddev=self.d_model**-0.5),
            autocast=False,  # a look-up needs few rows: do not cast the whole table
        )

    def call(self, ids: Tensor) -> Tensor:
        """Returns float32 embeddings [..., D] of ids [...], times sqrt(D).

        Padding (id 0) is embedded as zeros, and so is the decoder's first input, which
        shifts the outputs by one position (3.1).
        """
        vectors = ops.take(ops.convert_to_tensor(self.table), ids, axis=0)
        scale = ops.where(ops.not_equal(ids, 0), self.d_model**0.5, 0.0)
        return vectors * ops.expand_dims(scale, -1)

    def compute_mask(self, inputs: Tensor, previous_mask: Any = None) -> Tensor:
        """Returns the mask of the output, true where there is a token (an id not 0)."""
        return ops.not_equal(inputs, 0)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Returns [B, T, D]."""
        return (*input_shape[:2], self.d_model)

    def matrix(self) -> Tensor:
        """Returns the table in the compute dtype, zero-padded to whole blocks."""
        table = ops.cast(self.table, self.compute_dtype)
        return fill_block(table, ops.zeros_like(table[:1]))

    def logits(self, x: Tensor) -> Tensor:
        """Returns the logits x E^T of x [..., D], float32 [..., V], without sqrt(D)."""
        shape = ops.shape(x)
        table = _matrices.get().get(id(self))
        table = self.matrix() if table is None else table
        rows = ops.cast(ops.reshape(x, (-1, self.d_model)), self.compute_dtype)
        rows = ops.matmul(rows, ops.transpose(table))
        if rows.shape[1] != self.vocab_size:  # the last block was padded
            rows = rows[:, : self.vocab_size]
        logits = ops.cast(rows, "float32")
        return ops.reshape(logits, (*shape[:-1], self.vocab_size))


def sinusoids(positions: Tensor, d_model: int) -> Tensor:
    """Returns the paper's positional encoding (3.5).

    PE(pos, 2i) = sin(pos / 10000^(2i / D)), PE(pos, 2i + 1) = cos(the same).

    Args:
        positions: [T], numbers.
        d_model: D, even.

    Returns:
        [T, D], float32.
    """
    rates = 10000.0 ** (-np.arange(0, d_model, 2) / d_model)
    angles = ops.cast(positions, "float32")[:, None] * rates.astype("float32")
    pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)
    return ops.reshape(pairs, (-1, d_model))


def rotated(x: Tensor, positions: Tensor) -> Tensor:
    """Rotates queries or keys by their positions (RoPE, Su et al., 2021).

    The pairs (x[i], x[i + d / 2]) are rotated by angles proportional to the position.
    The product of a query and a key then depends on the distance between them.

    Args:
        x: [B, H, T, d]; d is even.
        positions: [1, T] or [B, T], of any numeric dtype.
    """
    half = x.shape[-1] // 2
    rates = 10000.0 ** (-np.arange(half) / half)
    angles = ops.cast(positions, "float32")[:, None, :, None] * rates.astype("float32")
    cos, sin = ops.cast(ops.cos(angles), x.dtype), ops.cast(ops.sin(angles), x.dtype)
    a, b = x[..., :half], x[..., half:]
    return ops.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


@serializable
class LearnedPositions(Layer):
    """Learned positional embeddings (Table 3, row (E))."""

    def __init__(self, max_positions: int, d_model: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.max_positions = max_positions
        self.d_model = d_model

    def build(self, input_shape: Shape) -> None:
        """Creates the table."""
        self.table = self.add_weight(
            name="table",
            shape=(self.max_positions, self.d_model),
            initializer=keras.initializers.RandomNormal(stddev=self.d_model**-0.5),
        )

    def call(self, positions: Tensor) -> Tensor:
        """Embeds positions [T] as [T, D]; those beyond the table use its last row."""
        rows = ops.minimum(positions, self.max_positions - 1)
        return ops.take(ops.convert_to_tensor(self.table), rows, axis=0)

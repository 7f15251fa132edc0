"""All public layers and the model, and what Keras asks of each, on any backend.

The checks are those of Keras's own `run_layer_test`, and more dtype policies.
KERAS_BACKEND=jax python layer_checks.py runs them all and prints what does not hold.
"""

import contextlib
import functools
import json
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np
from helpers.small_layers import normal

from t2t_keras import HParams
from t2t_keras.model import (
    CrossAttention,
    Decoder,
    DecoderLayer,
    Dropout,
    Embedding,
    Encoder,
    EncoderLayer,
    FeedForward,
    LayerNorm,
    LearnedPositions,
    Linear,
    Residual,
    SelfAttention,
    WindowSelfAttention,
    build_model,
)
from t2t_keras.plugins.interop.extended_model import TargetSpace

VOCAB = 17
D = 8
HEADS = 2


def residual(**dtype):
    return Residual(LayerNorm(D, **dtype), 0.1, norm_first=True, **dtype)


def encoder_layer(**dtype):
    attention = SelfAttention(D, HEADS, use_bias=True, **dtype)
    residuals = [residual(**dtype), residual(**dtype)]
    return EncoderLayer(attention, FeedForward(D, 12, **dtype), residuals, **dtype)


def decoder_layer(**dtype):
    return DecoderLayer(
        SelfAttention(D, HEADS, causal=True, **dtype),
        CrossAttention(D, HEADS, 3, 5, **dtype),
        FeedForward(D, 12, 0.1, "swish", **dtype),
        [residual(**dtype) for _ in range(3)],
        **dtype,
    )


def transformer(**options):
    sizes = {"num_layers": 1, "d_model": D, "d_ff": 12, "num_heads": HEADS}
    return build_model(HParams().override(**sizes | options), VOCAB)


class Case(NamedTuple):
    """A layer: how it is made of a dtype, and what is known of it.

    Attributes:
        make: takes `dtype`, except for models.
        inputs: the shapes of its inputs without the batch; None: of ids.
        num_weights: how many weights it has.
        width: the size of the output's last axis.
        drops: whether it has dropout.
    """

    make: Callable[..., keras.layers.Layer]
    inputs: list[tuple[int | None, ...] | None]
    num_weights: int
    width: int = D
    drops: bool = False


ONE = [(None, D)]
WIDE = [(None, 6)]  # not the width of the output
TWO = [(None, D), (None, D)]
CASES = {
    "Linear": Case(lambda **k: Linear(5, activation="relu", **k), ONE, 2, 5),
    "LayerNorm": Case(lambda **k: LayerNorm(D, 0.01, **k), ONE, 2),
    "Dropout": Case(lambda **k: Dropout(0.5, **k), ONE, 0, drops=True),
    "SelfAttention": Case(
        lambda **k: SelfAttention(D, HEADS, 3, 5, dropout=0.5, **k), WIDE, 2, drops=True
    ),
    "additive": Case(
        lambda **k: SelfAttention(D, HEADS, score="additive", **k), ONE, 3
    ),
    "WindowSelfAttention": Case(
        lambda **k: WindowSelfAttention(
            D, HEADS, dropout=0.5, left_context=2, right_context=1, **k
        ),
        ONE,
        2,
        drops=True,
    ),
    "CrossAttention": Case(
        lambda **k: CrossAttention(D, HEADS, dropout=0.5, **k), TWO, 3, drops=True
    ),
    "Residual": Case(
        lambda **k: Residual(LayerNorm(D, **k), 0.5, **k), TWO, 2, drops=True
    ),
    "FeedForward": Case(
        lambda **k: FeedForward(D, 12, 0.5, activation="swish", **k),
        WIDE,
        4,
        drops=True,
    ),
    "Embedding": Case(lambda **k: Embedding(VOCAB, D, **k), [None], 1),
    "LearnedPositions": Case(lambda **k: LearnedPositions(6, D, **k), [None], 1),
    "TargetSpace": Case(lambda **k: TargetSpace(D, **k), ONE, 1),
    "EncoderLayer": Case(encoder_layer, ONE, 12, drops=True),
    "DecoderLayer": Case(decoder_layer, TWO, 15, drops=True),
    "Encoder": Case(
        lambda **k: Encoder(
            [encoder_layer(**k), encoder_layer(**k)], LayerNorm(D, **k), **k
        ),
        ONE,
        26,
        drops=True,
    ),
    "Decoder": Case(
        lambda **k: Decoder([decoder_layer(**k)], **k), TWO, 15, drops=True
    ),
    "Transformer": Case(
        functools.partial(transformer, position="learned", norm="pre"),
        [None, None],
        # Embedding, positions, encoder layer, decoder layer, two norms.
        1 + 1 + 10 + 15 + 4,
        VOCAB,
        drops=True,
    ),
    "extended": Case(
        functools.partial(
            transformer, model="extended_transformer", target_space=True, dropout=0.0
        ),
        [None, None],
        1 + 1 + 10 + 15,
        VOCAB,
    ),
}
MODELS = "Transformer", "extended"


def case_arrays(name):
    """Two rows of each input; those of a residual have one length."""
    arrays = []
    for i, shape in enumerate(CASES[name].inputs):
        length = 5 if name == "Residual" else 5 + i
        if shape is None:
            rng = np.random.default_rng(i)
            arrays.append(rng.integers(1, VOCAB, (2, length)).astype(np.int32))
        else:
            arrays.append(normal(2, length, shape[-1], seed=i))
    return arrays


def symbolic_inputs(name, length=None):
    return [
        keras.Input((length,), dtype="int32")
        if shape is None
        else keras.Input((length, shape[-1]))
        for shape in CASES[name].inputs
    ]


def with_weights(layer, seed=0):
    """A built layer with weights that matter: biases are not 0, scales not 1."""
    rng = np.random.default_rng(seed)
    for weight in layer.weights:
        is_scale = weight.path.endswith("gamma")
        weight.assign(rng.normal(is_scale, 0.2, weight.shape))
    return layer


def as_numpy(x):
    return keras.ops.convert_to_numpy(keras.ops.cast(x, "float32"))


def functional_model(name):
    inputs = symbolic_inputs(name)
    return with_weights(keras.Model(inputs, CASES[name].make()(*inputs)))


@contextlib.contextmanager
def global_policy(policy):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


# What holds for every layer


def check_config(name):
    """Also as JSON; nothing is lost."""
    layer = CASES[name].make()
    config = layer.get_config()
    assert type(layer).from_config(config).get_config() == config
    written = json.dumps(keras.saving.serialize_keras_object(layer))
    revived = keras.saving.deserialize_keras_object(json.loads(written))
    assert type(revived) is type(layer)
    assert revived.get_config() == config


def check_shapes(name):
    """As `build` alone, on symbolic inputs, on arrays; of `compute_output_shape`."""
    case = CASES[name]
    arrays = case_arrays(name)
    built = case.make()
    if name not in MODELS:
        built.build(arrays[0].shape)
    assert len(built.weights) == case.num_weights
    symbolic_layer = case.make()
    symbolic = symbolic_layer(*symbolic_inputs(name))
    assert symbolic.shape == (None, None, case.width)
    layer = case.make()
    y = layer(*arrays)
    assert y.shape == (2, 5 + (name in MODELS), case.width)
    assert keras.backend.standardize_dtype(y.dtype) == symbolic.dtype
    spec = layer.compute_output_spec(*specs(arrays, layer))
    assert spec.shape == tuple(y.shape)
    for made in (symbolic_layer, layer):
        assert [w.shape for w in made.weights] == [w.shape for w in built.weights]
    if name not in MODELS:
        assert tuple(layer.compute_output_shape(arrays[0].shape)) == tuple(y.shape)
    assert layer.count_params() == sum(w.size for w in layer.get_weights())


POLICIES = "float16", "bfloat16", "float64", "mixed_float16", "mixed_bfloat16"
# With a global policy, these still add and normalize in float32, as the models do.
FLOAT32_LAYERS = (
    *("LayerNorm", "Residual", "TargetSpace", "EncoderLayer", "DecoderLayer"),
    *("Encoder", "Decoder", *MODELS),
)


def check_policies(name, policies=POLICIES):
    """As global policies and as `dtype`; outputs are near those of float32."""
    make = CASES[name].make
    arrays = case_arrays(name)
    layer = make()
    layer(*arrays)
    expected = as_numpy(with_weights(layer)(*arrays))
    for policy in map(keras.DTypePolicy, policies):
        if policy.name == "float64" and keras.backend.backend() == "jax":
            continue  # It needs a setting of JAX.
        with global_policy(policy):
            layers = [make()]
        if name not in MODELS:
            layers.append(make(dtype=policy))
        for layer in layers:
            layer(*arrays)
            y = with_weights(layer)(*arrays)
            dtype = policy.compute_dtype
            if name == "Embedding":
                dtype = policy.variable_dtype
            elif layer is layers[0] and name in FLOAT32_LAYERS:
                dtype = "float32"
            assert keras.backend.standardize_dtype(y.dtype) == dtype
            assert layer.compute_output_spec(*specs(arrays, layer)).dtype == dtype
            if name in MODELS:
                np.testing.assert_array_equal(as_numpy(y), expected)
                continue
            rounds = policy.compute_dtype.endswith("16")
            atol = 0.05 * np.abs(expected).max() if rounds else 1e-5
            np.testing.assert_allclose(as_numpy(y), expected, atol=atol)
            if dtype != "float32":
                assert {w.dtype for w in layer.weights} <= {policy.variable_dtype}


def specs(arrays, layer):
    """Symbolic tensors as `layer.__call__` makes them of arrays."""
    dtypes = [
        layer.compute_dtype if layer.autocast and x.dtype == np.float32 else x.dtype
        for x in arrays
    ]
    return [
        keras.KerasTensor(x.shape, keras.backend.standardize_dtype(dtype))
        for x, dtype in zip(arrays, dtypes, strict=True)
    ]


def check_mask(name):
    """The output has the mask of the first input: it is averaged without padding."""
    if name in MODELS:
        return
    case = CASES[name]
    tokens = np.array([[3, 5, 2, 7, 4], [6, 4, 8, 0, 0]], np.int32)
    if case.inputs[0] is None:
        y = case.make()(tokens)
        has_mask = name == "Embedding"
    else:
        embed = keras.layers.Embedding(VOCAB, case.inputs[0][-1], mask_zero=True)
        y = case.make()(*(embed(tokens) for _ in case.inputs))
        has_mask = True
    mean = keras.layers.GlobalAveragePooling1D()(y)
    for row, length in enumerate((5, 3 if has_mask else 5)):
        expected = as_numpy(y)[row, :length].mean(0)
        np.testing.assert_allclose(as_numpy(mean)[row], expected, atol=1e-5)


def check_training(name):
    """`training` drops, each time other elements; a seed always the same ones."""
    case = CASES[name]
    arrays = case_arrays(name)
    layer = case.make()
    expected = as_numpy(layer(*arrays))
    np.testing.assert_array_equal(as_numpy(layer(*arrays, training=False)), expected)
    first, second = (as_numpy(layer(*arrays, training=True)) for _ in range(2))
    assert (np.abs(first - expected).max() > 1e-3) == case.drops
    assert (np.abs(second - first).max() > 1e-3) == case.drops
    if case.drops:
        seed = np.array([3, 4], np.int32)
        seeded = as_numpy(layer(*arrays, seed=seed))
        assert np.abs(seeded - expected).max() > 1e-3
        again = as_numpy(layer(*arrays, seed=seed, training=True))
        np.testing.assert_array_equal(again, seeded)


def check_stateless_call(name):
    """It drops in training, and returns the state that gives the next masks."""
    case = CASES[name]
    arrays = [keras.ops.convert_to_tensor(x) for x in case_arrays(name)]
    layer = case.make()
    expected = as_numpy(layer(*arrays))
    trainable = [v.value for v in layer.trainable_variables]
    state = [v.value for v in layer.non_trainable_variables]
    y, unchanged = layer.stateless_call(trainable, state, *arrays)
    np.testing.assert_allclose(as_numpy(y), expected, atol=1e-6)
    assert all(np.array_equal(a, b) for a, b in zip(state, unchanged, strict=True))
    if not case.drops:
        return

    def call(state):
        y, state = layer.stateless_call(trainable, state, *arrays, training=True)
        return as_numpy(y), state

    first, next_state = call(state)
    second, _ = call(next_state)
    assert np.abs(first - expected).max() > 1e-3
    assert np.abs(second - first).max() > 1e-3
    np.testing.assert_array_equal(call(state)[0], first)


def check_saving(name):
    """In a functional model, without `custom_objects`; frozen, it stays frozen."""
    network = functional_model(name)
    arrays = case_arrays(name)
    expected = as_numpy(network(arrays))
    assert network.output_shape == (None, None, CASES[name].width)
    network.layers[-1].trainable = False
    with tempfile.TemporaryDirectory() as folder:
        network.save(Path(folder, "model.keras"))
        loaded = keras.saving.load_model(Path(folder, "model.keras"))
    np.testing.assert_array_equal(as_numpy(loaded(arrays)), expected)
    cloned = keras.models.clone_model(network)
    cloned.set_weights(network.get_weights())
    np.testing.assert_array_equal(as_numpy(cloned(arrays)), expected)
    for other in (loaded, cloned):
        assert len(other.weights) == len(network.weights)
        assert not other.trainable_weights


def check_fit(name, jit_compile="auto"):
    """A step of `fit` moves every weight; JAX compiles it in any case."""
    network = functional_model(name)
    arrays = case_arrays(name)
    before = network.get_weights()
    network.compile("sgd", "mse", jit_compile=jit_compile)
    target = normal(*network(arrays).shape, seed=5)
    network.fit(arrays, target, verbose=0)
    for weight, old in zip(network.weights, before, strict=True):
        new = as_numpy(weight)
        assert np.isfinite(new).all()
        assert (new != old).any(), weight.path


CHECKS = {
    name.removeprefix("check_"): value
    for name, value in list(globals().items())
    if name.startswith("check_")
}


if __name__ == "__main__":
    failed = False
    for layer_name in CASES:
        for check_name, check in CHECKS.items():
            try:
                check(layer_name)
            except Exception:
                failed = True
                print(layer_name, check_name, traceback.format_exc(limit=-3))
    sys.exit(failed)

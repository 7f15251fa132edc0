"""Forward, backward, `fit` and decoding of the model on this process's backend.

KERAS_BACKEND=jax python backend_program.py OUT.npz
"""

import sys

import keras
import numpy as np

from t2t_keras.hparam import HParams
from t2t_keras.model import (
    EncoderLayer,
    FeedForward,
    LabelSmoothedCrossEntropy,
    LayerNorm,
    Residual,
    Schedule,
    SelfAttention,
    Transformer,
)

VOCAB = 11
SOURCE = np.array([[3, 4, 5, 1], [6, 7, 1, 0]], np.int32)
TARGET = np.array([[8, 9, 1], [10, 1, 0]], np.int32)
OPTIONS = {
    "paper": {},
    "variant": {"norm": "pre", "position": "learned", "attention_window": 2},
}


def model(**options):
    """A model with the same weights on every backend."""
    sizes = {"num_layers": 1, "d_model": 8, "d_ff": 16, "num_heads": 2}
    hparams = HParams(**{"dropout": 0.0} | sizes | options)
    network = Transformer(hparams, VOCAB)
    rng = np.random.default_rng(0)
    for weight in network.trainable_variables:
        is_scale = weight.path.endswith("gamma")
        weight.assign(rng.normal(is_scale, 0.3, weight.shape).astype("float32"))
    return network


def decoded(network):
    """Logits of three steps; after two, beams change places and a sentence leaves."""
    memory = network.encode(SOURCE)
    cache = network.start_cache(memory, SOURCE, num_beams=2)
    cache = network.track_coverage(cache, SOURCE)
    start, cache = network.decode_step(np.zeros((2, 2), np.int32), 0, cache)
    second, cache = network.decode_step(np.array([[8, 9], [10, 2]]), 1, cache)
    cache = network.reorder_cache(cache, np.array([[1, 0], [1, 1]], np.int32))
    cache = network.select_rows(cache, np.array([1], np.int32))
    third, cache = network.decode_step(np.array([[3, 4]]), 2, cache)
    return [memory, start, second, third, network.coverage(cache)]


def training_gradients(network):
    """The loss of the trainer, compiled, and its gradients."""
    variables = network.trainable_variables
    values = [variable.value for variable in variables]

    def loss(values):
        with keras.StatelessScope(list(zip(variables, values, strict=True))):
            return network.training_losses(SOURCE, TARGET, None)[0]

    if keras.backend.backend() == "jax":
        import jax

        value, gradients = jax.jit(jax.value_and_grad(loss))(values)
    else:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(values)
            value = tf.function(loss)(values)
        gradients = map(tf.convert_to_tensor, tape.gradient(value, values))
    return [value, *gradients]


def masked():
    """The output of an encoder layer for embeddings with a mask."""
    tokens = keras.Input((None,), dtype="int32")
    x = keras.layers.Embedding(VOCAB, 8, mask_zero=True)(tokens)
    residuals = [Residual(LayerNorm(8)) for _ in range(2)]
    x = EncoderLayer(SelfAttention(8, 2), FeedForward(8, 16), residuals)(x)
    mean = keras.layers.GlobalAveragePooling1D()(x)
    network = keras.Model(tokens, mean)
    rng = np.random.default_rng(0)
    for weight in network.trainable_variables:
        weight.assign(rng.normal(0, 0.3, weight.shape).astype("float32"))
    return network(SOURCE)


def results():
    """Logits, gradients, and what `fit` and decoding do, by name."""
    outputs = {"masked": masked()}
    for name, options in OPTIONS.items():
        network = model(**options)
        outputs[f"{name}/logits"] = network(SOURCE, TARGET)
        if keras.backend.backend() != "torch":
            for function in (decoded, training_gradients):
                for i, value in enumerate(function(network)):
                    outputs[f"{name}/{function.__name__}/{i}"] = value
        initial = network.get_weights()
        # An update of plain gradient descent is the gradient.
        network.compile(keras.optimizers.SGD(1.0), LabelSmoothedCrossEntropy())
        network.train_on_batch((SOURCE, TARGET), TARGET)
        for i, weights in enumerate(network.get_weights()):
            outputs[f"{name}/gradient/{i}"] = initial[i] - weights
    network = model()
    schedule = Schedule(network.hparams.override(warmup_steps=10))
    adam = keras.optimizers.Adam(schedule, beta_2=0.98, epsilon=1e-9)
    network.compile(adam, LabelSmoothedCrossEntropy())
    history = network.fit(
        {"source": SOURCE, "target": TARGET}, TARGET, epochs=8, verbose=0
    )
    outputs["fit"] = history.history["loss"]
    for name, options in OPTIONS.items():
        rates = {"dropout": 0.3, "attention_dropout": 0.4, "ffn_dropout": 0.5}
        network = model(**rates | options)
        outputs[f"{name}/seeded"] = network(SOURCE, TARGET, seed=np.array([3, 4]))
    network = model(dropout=0.5)
    outputs["dropped"] = network(SOURCE, TARGET, training=True)
    outputs["dropped again"] = network(SOURCE, TARGET, training=True)
    network.compile(adam.from_config(adam.get_config()), LabelSmoothedCrossEntropy())
    noisy = network.fit((SOURCE, TARGET), TARGET, epochs=2, verbose=0)
    outputs["fit with dropout"] = noisy.history["loss"]
    return {
        name: np.asarray(keras.ops.convert_to_numpy(x)) for name, x in outputs.items()
    }


if __name__ == "__main__":
    np.savez(sys.argv[1], **results())

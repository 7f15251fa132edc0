"""Forward, backward and `fit` of the model on the backend of this process.

KERAS_BACKEND=jax python backend_program.py OUT.npz
"""

import sys

import keras
import numpy as np

from t2t_keras.hparam import HParams
from t2t_keras.model import LabelSmoothedCrossEntropy, Schedule, Transformer

VOCAB = 11
SOURCE = np.array([[3, 4, 5, 1], [6, 7, 1, 0]], np.int32)
TARGET = np.array([[8, 9, 1], [10, 1, 0]], np.int32)
OPTIONS = {
    "paper": {},
    "variant": {"norm": "pre", "position": "learned", "attention_window": 2},
}


def model(dropout=0.0, **options):
    """A model with the same weights on every backend."""
    sizes = {"num_layers": 1, "d_model": 8, "d_ff": 16, "num_heads": 2}
    network = Transformer(HParams(**sizes | options, dropout=dropout), VOCAB)
    rng = np.random.default_rng(0)
    for weight in network.trainable_variables:
        is_scale = weight.path.endswith("gamma")
        weight.assign(rng.normal(is_scale, 0.3, weight.shape).astype("float32"))
    return network


def results():
    """Logits, gradients, and what `fit` does, by name."""
    found = {}
    for name, options in OPTIONS.items():
        network = model(**options)
        found[f"{name}/logits"] = network(SOURCE, TARGET)
        before = network.get_weights()
        # An update of plain gradient descent is the gradient.
        network.compile(keras.optimizers.SGD(1.0), LabelSmoothedCrossEntropy())
        network.train_on_batch((SOURCE, TARGET), TARGET)
        for i, after in enumerate(network.get_weights()):
            found[f"{name}/gradient/{i}"] = before[i] - after
    network = model()
    schedule = Schedule(network.hparams.override(warmup_steps=10))
    adam = keras.optimizers.Adam(schedule, beta_2=0.98, epsilon=1e-9)
    network.compile(adam, LabelSmoothedCrossEntropy())
    history = network.fit(
        {"source": SOURCE, "target": TARGET}, TARGET, epochs=8, verbose=0
    )
    found["fit"] = history.history["loss"]
    network = model(dropout=0.5)
    found["dropped"] = network(SOURCE, TARGET, training=True)
    found["dropped again"] = network(SOURCE, TARGET, training=True)
    network.compile(adam.from_config(adam.get_config()), LabelSmoothedCrossEntropy())
    noisy = network.fit((SOURCE, TARGET), TARGET, epochs=2, verbose=0)
    found["fit with dropout"] = noisy.history["loss"]
    return {
        name: np.asarray(keras.ops.convert_to_numpy(x)) for name, x in found.items()
    }


if __name__ == "__main__":
    np.savez(sys.argv[1], **results())

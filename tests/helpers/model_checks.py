"""Small models, and what holds for each of them."""

import keras
import numpy as np
import tensorflow as tf
from helpers.numpy_transformer import NumpyTransformer, randomise

from t2t_keras.hparam import HParams
from t2t_keras.model import build_model
from t2t_keras.model.loss import summed_cross_entropies

VOCAB = 17


def small_model(vocab=VOCAB, target_vocab=None, **options):
    """A model with random weights; `model` among the options names another one."""
    sizes = {"num_layers": 2, "d_model": 8, "d_ff": 12, "num_heads": 2}
    hparams = HParams().override(**sizes | {"max_positions": 6} | options)
    return randomise(build_model(hparams, vocab, target_vocab))


def ids(*shape, seed=0, vocab=VOCAB):
    return np.random.default_rng(seed).integers(1, vocab, shape).astype(np.int32)


def pad(rows, width):
    """Lists of ids as an array, padded with 0."""
    return np.array([[*row, *[0] * (width - len(row))] for row in rows], np.int32)


def check_equations(network):
    """The logits are those of the equations in NumPy."""
    target_vocab = network.target_vocab_size
    sources = [ids(n, seed=n).tolist() for n in (7, 1, 4)]
    targets = [ids(n, seed=9 + n, vocab=11).tolist() for n in (3, 8, 1)]
    logits = network(pad(sources, 9), pad(targets, 8)).numpy()
    assert logits.shape == (3, 8, target_vocab or VOCAB)
    truth = NumpyTransformer(network)
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        expected = truth(source, target)
        np.testing.assert_allclose(logits[row, : len(target)], expected, atol=1e-4)


def gradients(network, losses):
    """Gradients of all weights of the first of two losses, and the losses."""
    weights = [tf.constant(variable) for variable in network.trainable_variables]
    with tf.GradientTape() as tape:
        tape.watch(weights)
        scope = zip(network.trainable_variables, weights, strict=True)
        with keras.StatelessScope(scope):
            loss, nll = losses()
    actual = tape.gradient(loss, weights)
    return [tf.convert_to_tensor(x).numpy() for x in (loss, nll, *actual)]


def check_training_losses(network):
    """Losses and gradients of training are those of the logits."""
    source = pad([ids(5), ids(3, seed=1)], 5)
    target = pad([ids(2), ids(6, seed=2)], 6)

    def of_logits():
        return summed_cross_entropies(network(source, target), target, 0.1)

    expected = gradients(network, of_logits)
    actual = gradients(network, lambda: network.training_losses(source, target, None))
    for ours, expected_loss in zip(actual, expected, strict=True):
        np.testing.assert_allclose(ours, expected_loss, rtol=1e-4, atol=1e-4)

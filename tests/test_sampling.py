import numpy as np
import pytest
import tensorflow as tf
from decoding_models import (
    EOS,
    PAD,
    TableModel,
    log_probs_of,
    numpy_of,
    outputs,
    penalty,
    random_sources,
    searcher,
    transformer,
)

from t2t_keras.decoding.sampling import sample

PROBS = np.array([0.0, 0.3, 0.1, 0.4, 0.2])  # of PAD, EOS and three pieces


@pytest.fixture(scope="module")
def model():
    return transformer(30)


@pytest.fixture(scope="module")
def draw(model):
    number, ids = tf.TensorSpec([], tf.float32), tf.TensorSpec([None, None], tf.int32)
    integer = tf.TensorSpec([], tf.int32)

    @tf.function(input_signature=[ids, ids, integer, number, integer, number])
    def traced(source, seeds, count, temperature, top_k, top_p):
        return sample(
            model,
            source,
            seeds=seeds,
            max_length=tf.fill([tf.shape(source)[0]], 15),
            num_samples=count,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            alpha=0.6,
        )

    def run(source, seed=0, count=3, temperature=1.0, top_k=0, top_p=1.0, first=0):
        seeds = [[seed, first + row] for row in range(len(source))]
        return numpy_of(traced(source, seeds, count, temperature, top_k, top_p))

    return run


def frequencies(**options):
    """How often each piece is drawn at the first of two steps, of 20,000 times."""
    logits = np.log(np.maximum(PROBS, 1e-9))
    logits[PAD] = 5.0  # as if the model wanted padding
    table = TableModel(tf.constant(np.tile(logits, (1, 2, 5, 1)), tf.float32))
    found = sample(
        table,
        tf.constant([[0]]),
        seeds=tf.constant([[7, 0]]),
        max_length=tf.constant([2]),
        num_samples=20_000,
        **options,
    )
    return np.bincount(found.ids[0, :, 0], minlength=5) / 20_000


@pytest.mark.parametrize(
    ("options", "weights"),
    [
        ({}, PROBS),
        ({"temperature": 0.5}, PROBS**2),
        ({"temperature": 2.0}, PROBS**0.5),
        ({"top_k": 2}, PROBS * [0, 1, 0, 1, 0]),
        ({"top_k": 9}, PROBS),
        ({"top_p": 0.65}, PROBS * [0, 1, 0, 1, 0]),  # 0.4 + 0.3 reach it
        ({"top_p": 0.75}, PROBS * [0, 1, 0, 1, 1]),
        ({"top_p": 1e-6}, PROBS * [0, 0, 0, 1, 0]),
        ({"top_k": 3, "top_p": 0.7}, PROBS * [0, 1, 0, 1, 0]),
    ],
)
def test_distribution(options, weights):
    expected = weights / weights.sum()
    np.testing.assert_allclose(frequencies(**options), expected, atol=0.015)


def test_seed_and_companions(draw):
    """The same seed gives the same samples, alone or in a batch."""
    source = random_sources(6, 30)
    found = draw(source)
    np.testing.assert_array_equal(found.ids, draw(source).ids)
    assert (found.scores != draw(source, seed=1).scores).any()
    assert (found.scores[:, 0] != found.scores[:, 1]).any()
    for row in range(6):
        length = np.count_nonzero(source[row])
        alone = draw(source[row : row + 1, :length], first=row)
        assert outputs(alone, 0) == outputs(found, row)
        np.testing.assert_allclose(alone.scores[0], found.scores[row], atol=1e-4)


def test_scores_are_the_models(model, draw):
    """Whatever is drawn, and however: its log-probability is teacher forcing's."""
    source = random_sources(6, 30)
    found = draw(source, temperature=0.7, top_k=10, top_p=0.9)
    lengths = set()
    for row in range(6):
        targets = outputs(found, row)
        log_probs = log_probs_of(model, source[row], targets)
        np.testing.assert_allclose(found.log_probs[row], log_probs, atol=1e-4)
        scores = log_probs / [penalty(len(target), 0.6) for target in targets]
        np.testing.assert_allclose(found.scores[row], scores, atol=1e-4)
        lengths |= {len(target) for target in targets}
        for target in targets:
            assert PAD not in target and EOS not in target[:-1]
            assert target[-1] == EOS or len(target) == 15
    assert len(lengths) > 3


def test_of_one_piece_is_greedy(model, draw):
    source = random_sources(6, 30)
    greedy = searcher(model, trace=False)(source, 15, beam_size=1)
    found = draw(source, count=1, top_k=1)
    np.testing.assert_array_equal(found.ids, greedy.ids)
    np.testing.assert_allclose(found.scores, greedy.scores, atol=1e-4)

"""Sampling, by frequencies and against beam search of one."""

import numpy as np
import pytest
import tensorflow as tf
from helpers.decoding_models import (
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

from t2t_keras.decoding.constraint import BannedTokens
from t2t_keras.decoding.sampling import sample

SOURCES = [[3, 4, 2, 5, 1], [2, 1, 0, 0, 0], [5, 5, 1, 0, 0]]


@pytest.fixture(scope="module")
def model():
    return transformer(6)


def test_samples_of_no_length_and_without_an_allowed_token(model):
    options = {
        "seeds": tf.zeros([3, 2], tf.int32),
        "max_length": tf.constant([0, 1, 6]),
    }
    samples = sample(model, tf.constant(SOURCES), **options, num_samples=2)
    assert samples.lengths[0].numpy().tolist() == [0, 0]
    assert samples.lengths[1].numpy().tolist() == [1, 1]
    assert not samples.ids[0].numpy().any() and not samples.ids[1, :, 1:].numpy().any()
    all_banned = BannedTokens(range(6), 6)
    samples = sample(model, tf.constant(SOURCES), **options, constraint=all_banned)
    assert not samples.lengths.numpy().any() and not samples.ids.numpy().any()
    assert np.isneginf(samples.scores.numpy()[1:]).all()


PROBS = np.array([0.0, 0.3, 0.1, 0.4, 0.2])  # of PAD, EOS and three pieces


@pytest.fixture(scope="module")
def larger():
    return transformer(30)


@pytest.fixture(scope="module")
def draw(larger):
    scalar = tf.TensorSpec([], tf.float32)
    ids = tf.TensorSpec([None, None], tf.int32)
    integer = tf.TensorSpec([], tf.int32)

    @tf.function(
        input_signature=[ids, ids, integer, scalar, integer, scalar], autograph=False
    )
    def traced(source, seeds, count, temperature, top_k, top_p):
        limits = {"max_length": tf.fill([tf.shape(source)[0]], 15), "alpha": 0.6}
        sampling = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
        return sample(
            larger, source, seeds=seeds, num_samples=count, **limits, **sampling
        )

    def run(source, seed=0, count=3, temperature=1.0, top_k=0, top_p=1.0, first_row=0):
        seeds = [[seed, first_row + row] for row in range(len(source))]
        return numpy_of(traced(source, seeds, count, temperature, top_k, top_p))

    return run


def frequencies(probs=PROBS, **options):
    """How often each piece is drawn at the first of two steps, of 20,000 times."""
    logits = np.log(np.maximum(probs, 1e-9))
    logits[PAD] = 5.0  # as if the model wanted padding
    table = TableModel(tf.constant(np.tile(logits, (1, 2, 5, 1)), tf.float32))
    row = {"seeds": tf.constant([[7, 0]]), "max_length": tf.constant([2])}
    samples = sample(table, tf.constant([[0]]), **row, num_samples=20_000, **options)
    return np.bincount(samples.ids[0, :, 0], minlength=5) / 20_000


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


def test_top_p_takes_no_more_tokens_than_reach_it():
    """Of four equally likely tokens, two have a probability of exactly 0.5."""
    drawn = frequencies(np.array([0.0, 0.25, 0.25, 0.25, 0.25]), top_p=0.5)
    np.testing.assert_allclose(drawn, [0, 0.5, 0.5, 0, 0], atol=0.015)


def test_seed_and_companions(draw):
    """The same seed gives the same samples, alone or in a batch."""
    source = random_sources(6, 30)
    samples = draw(source)
    np.testing.assert_array_equal(samples.ids, draw(source).ids)
    assert (samples.scores != draw(source, seed=1).scores).any()
    assert (samples.scores[:, 0] != samples.scores[:, 1]).any()
    for row in range(6):
        length = np.count_nonzero(source[row])
        single_row = draw(source[row : row + 1, :length], first_row=row)
        assert outputs(single_row, 0) == outputs(samples, row)
        np.testing.assert_allclose(single_row.scores[0], samples.scores[row], atol=1e-4)


def test_scores_are_the_models(larger, draw):
    """The log-probability of any sample is that of teacher forcing."""
    source = random_sources(6, 30)
    samples = draw(source, temperature=0.7, top_k=10, top_p=0.9)
    lengths = set()
    for row in range(6):
        targets = outputs(samples, row)
        log_probs = log_probs_of(larger, source[row], targets)
        np.testing.assert_allclose(samples.log_probs[row], log_probs, atol=1e-4)
        scores = log_probs / [penalty(len(target), 0.6) for target in targets]
        np.testing.assert_allclose(samples.scores[row], scores, atol=1e-4)
        lengths |= {len(target) for target in targets}
        for target in targets:
            assert PAD not in target and EOS not in target[:-1]
            assert target[-1] == EOS or len(target) == 15
    assert len(lengths) > 3


def test_of_one_piece_is_greedy(larger, draw):
    source = random_sources(6, 30)
    greedy = searcher(larger, trace=False)(source, 15, beam_size=1)
    samples = draw(source, count=1, top_k=1)
    np.testing.assert_array_equal(samples.ids, greedy.ids)
    np.testing.assert_allclose(samples.scores, greedy.scores, atol=1e-4)

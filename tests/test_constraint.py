import numpy as np
import pytest
import tensorflow as tf
from decoding_models import (
    EOS,
    PAD,
    all_targets,
    log_probs_of,
    outputs,
    penalty,
    random_sources,
    searcher,
    transformer,
)

from t2t_keras.decoding.constraint import (
    AllOf,
    BannedTokens,
    ForcedPrefix,
    MinimumLength,
)
from t2t_keras.decoding.sampling import sample

SOURCES = [[3, 4, 2, 5, 1], [2, 1, 0, 0, 0], [5, 5, 1, 0, 0]]
PREFIXES = [[2, 4], [3, PAD], [PAD, PAD]]


class NoPieceTwice:
    """Its state, the pieces used so far, is different in every beam."""

    def __init__(self, vocab_size):
        self.vocab_size = vocab_size

    def init(self, source, num_beams):
        return {"used": tf.zeros([tf.shape(source)[0], num_beams, self.vocab_size])}

    def mask(self, state, position):
        return state["used"] == 0

    def advance(self, state, parents, tokens):
        used = tf.gather(state["used"], parents, batch_dims=1)
        return {"used": used + tf.one_hot(tokens, self.vocab_size)}


def starts_with(target, prefix):
    wanted = [piece for piece in prefix if piece != PAD]
    return target[: len(wanted)] == wanted


CASES = {
    "banned": (BannedTokens([3, 5], 6), lambda t, row: not {3, 5} & set(t)),
    "minimum": (MinimumLength(2, 6), lambda t, row: len(t) >= 3),
    "prefix": (ForcedPrefix(PREFIXES, 6), lambda t, row: starts_with(t, PREFIXES[row])),
    "state": (NoPieceTwice(6), lambda t, row: len(set(t)) == len(t)),
    "all": (
        AllOf([BannedTokens([5], 6), MinimumLength(2, 6), ForcedPrefix(PREFIXES, 6)]),
        lambda t, row: 5 not in t and len(t) >= 3 and starts_with(t, PREFIXES[row]),
    ),
}


@pytest.fixture(scope="module")
def model():
    return transformer(6)


@pytest.mark.parametrize("name", CASES)
def test_equals_the_best_of_all_allowed_targets(model, name):
    """Probabilities stay the model's: scores are not renormalised over the allowed."""
    constraint, is_allowed = CASES[name]
    limit, n, alpha = 4, 4, 0.6
    search = searcher(model, constraint, trace=False)
    found = search(SOURCES, limit, beam_size=85, alpha=alpha, n_best=n)
    for row, source in enumerate(SOURCES):
        targets = [t for t in all_targets(6, limit) if is_allowed(t, row)]
        assert len(targets) >= n
        scores = log_probs_of(model, source, targets)
        scores = scores / [penalty(len(t), alpha) for t in targets]
        best = np.argsort(-scores)[:n]
        assert outputs(found, row) == [targets[i] for i in best]
        np.testing.assert_allclose(found.scores[row], scores[best], atol=1e-4)


def test_state_follows_the_beams_in_a_graph():
    model = transformer(30)
    source = random_sources(8, 30)
    minimum = MinimumLength(6, 30)
    constraint = AllOf([minimum, NoPieceTwice(30)])
    found = searcher(model, constraint)(source, 12, beam_size=4, n_best=4)
    for row in range(8):
        for target in outputs(found, row):
            assert len(set(target)) == len(target) > 6
    free = searcher(model, minimum, trace=False)(source, 12, beam_size=4)
    repeating = [len(set(t)) < len(t) for row in range(8) for t in outputs(free, row)]
    assert any(repeating)


def test_nothing_allowed(model):
    """No hypothesis, and no endless loop."""
    nothing = BannedTokens(range(6), 6)
    found = searcher(model, nothing, trace=False)(SOURCES, 4, beam_size=2, n_best=2)
    assert not found.lengths.any() and not found.ids.any()
    assert np.isneginf(found.scores).all()

    never_ends = BannedTokens([EOS], 6)
    found = searcher(model, never_ends, trace=False)(SOURCES, 4, beam_size=2)
    assert found.lengths.tolist() == [[4]] * 3


def test_sampling_obeys_constraints(model):
    source = tf.constant(SOURCES)
    constraint = AllOf([ForcedPrefix(PREFIXES, 6), NoPieceTwice(6)])
    found = sample(
        model,
        source,
        seeds=tf.constant([[0, 1], [0, 2], [0, 3]]),
        max_length=tf.constant([6, 6, 6]),
        num_samples=20,
        constraint=constraint,
    )
    for row in range(3):
        targets = outputs(type(found)(*(x.numpy() for x in found)), row)
        assert len(set(map(tuple, targets))) > 3
        for target in targets:
            assert starts_with(target, PREFIXES[row])
            assert len(set(target)) == len(target)

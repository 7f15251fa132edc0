from collections import Counter

import numpy as np
import pytest
import tensorflow as tf
from helpers.decoding_models import (
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
    NoRepeatedNgrams,
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
    prefix_tokens = [piece for piece in prefix if piece != PAD]
    return target[: len(prefix_tokens)] == prefix_tokens


def counts(ids, n):
    """How often each n-gram occurs, EOS and PAD left out."""
    ids = [i for i in ids if i not in (PAD, EOS)]
    return Counter(zip(*(ids[i:] for i in range(n)), strict=False))


def repeats_as_its_source(n, prefixes=None):
    """The rule of `NoRepeatedNgrams` by counting."""

    def is_allowed(target, row):
        texts = [SOURCES[row], *([prefixes[row]] if prefixes else [])]
        max_count = max([1, *(c for ids in texts for c in counts(ids, n).values())])
        return all(count <= max_count for count in counts(target, n).values())

    return is_allowed


REPEATED = [[2, 2], [PAD, PAD], [3, PAD]]

CASES = {
    "unigrams": (NoRepeatedNgrams(1, 6), repeats_as_its_source(1)),
    "bigrams": (NoRepeatedNgrams(2, 6), repeats_as_its_source(2)),
    "repeated prefix": (
        AllOf([NoRepeatedNgrams(1, 6, REPEATED), ForcedPrefix(REPEATED, 6)]),
        lambda t, row: (
            repeats_as_its_source(1, REPEATED)(t, row) and starts_with(t, REPEATED[row])
        ),
    ),
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
    limit = 4
    n = 4
    alpha = 0.6
    search = searcher(model, constraint, trace=False)
    hypotheses = search(SOURCES, limit, beam_size=85, alpha=alpha, n_best=n)
    for row, source in enumerate(SOURCES):
        targets = [t for t in all_targets(6, limit) if is_allowed(t, row)]
        assert len(targets) >= n
        scores = log_probs_of(model, source, targets)
        scores = scores / [penalty(len(t), alpha) for t in targets]
        best = np.argsort(-scores)[:n]
        assert outputs(hypotheses, row) == [targets[i] for i in best]
        np.testing.assert_allclose(hypotheses.scores[row], scores[best], atol=1e-4)


def test_state_follows_the_beams_in_a_graph():
    constraint = AllOf([MinimumLength(6, 30), NoPieceTwice(30)])
    hypotheses = searcher(transformer(30), constraint)(
        random_sources(8, 30), 12, beam_size=4, n_best=4
    )
    for row in range(8):
        for target in outputs(hypotheses, row):
            assert len(set(target)) == len(target) > 6


def test_nothing_allowed(model):
    """The search ends, without a hypothesis."""
    all_banned = BannedTokens(range(6), 6)
    hypotheses = searcher(model, all_banned, trace=False)(
        SOURCES, 4, beam_size=2, n_best=2
    )
    assert not hypotheses.lengths.any() and not hypotheses.ids.any()
    assert np.isneginf(hypotheses.scores).all()

    never_ends = BannedTokens([EOS], 6)
    hypotheses = searcher(model, never_ends, trace=False)(SOURCES, 4, beam_size=2)
    assert hypotheses.lengths.tolist() == [[4]] * 3


@pytest.mark.parametrize("final_piece", [NoPieceTwice(6), NoRepeatedNgrams(1, 6)])
def test_sampling_obeys_constraints(model, final_piece):
    source = tf.constant(SOURCES)
    constraint = AllOf([ForcedPrefix(PREFIXES, 6), final_piece])
    rows = {"seeds": tf.constant([[0, 1], [0, 2], [0, 3]])}
    rows |= {"max_length": tf.constant([6, 6, 6]), "num_samples": 20}
    samples = sample(model, source, **rows, constraint=constraint)
    for row in range(3):
        targets = outputs(type(samples)(*(x.numpy() for x in samples)), row)
        assert len(set(map(tuple, targets))) > 3
        assert [*map(len, targets)] == samples.lengths[row].numpy().tolist()
        for target in targets:
            assert starts_with(target, PREFIXES[row])
            is_allowed = max(counts(target, 1).values(), default=0) <= 1
            assert is_allowed or (
                row == 2 and not isinstance(final_piece, NoPieceTwice)
            )

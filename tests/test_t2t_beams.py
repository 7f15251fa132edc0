"""Beam search finds what tensor2tensor's finds, where their rules are the same.

They are, given one limit for the whole batch: tensor2tensor's is the padded length of
the input and so many pieces more. Two things differ by design:

- where no hypothesis of a sentence has finished, tensor2tensor returns the unfinished
  ones with their log-probabilities as scores, here these are divided by the penalty;
- where fewer than n have finished, tensor2tensor leaves the other places empty, with
  the score -1e7, here the unfinished ones follow.
"""

import re

import numpy as np
import pytest
from decoding_models import EOS, searcher
from t2t_oracle import MODELS, arrays, every_model, official_model, oracle_model

EMPTY = -1e6  # scores below are of places left empty
CASE = re.compile(
    r"(?:single_(\d+)/)?beam(\d)_top(\d)_alpha([\d.]+)_len(-?\d+)/outputs"
)


def without_padding(ids):
    """Cuts after the first EOS; unfinished ones have neither EOS nor padding."""
    ids = ids.tolist()
    return ids[: ids.index(EOS) + 1] if EOS in ids else ids


def compare(found, outputs, scores):
    """Compares hypotheses [B, n]; returns how many finished and unfinished ones."""
    finished = unfinished = 0
    for place in np.ndindex(scores.shape):
        if scores[place] < EMPTY:
            assert EOS not in found.ids[place]
            continue
        ids = without_padding(outputs[place])
        assert found.ids[place][: found.lengths[place]].tolist() == ids
        if ids[-1] == EOS:
            finished += 1
            actual = found.scores[place]
        else:
            unfinished += 1
            actual = found.log_probs[place]
        np.testing.assert_allclose(actual, scores[place], atol=1e-4)
    return finished, unfinished


def compare_all(model, oracle, sources):
    """Compares every case of a file; returns the counts, summed."""
    search = searcher(model)
    total = np.zeros(2, int)
    for name in oracle:
        if not (case := CASE.fullmatch(name)):
            continue
        row, beams, n, extra = (int(case[i]) if case[i] else None for i in (1, 2, 3, 5))
        source = sources
        if row is not None:
            source = sources[row : row + 1, : np.count_nonzero(sources[row])]
        shape = (len(source), n)
        found = search(source, source.shape[1] + extra, beams, float(case[4]), n)
        outputs = oracle[name].reshape(*shape, -1)
        scores = oracle[name.replace("outputs", "scores")].reshape(shape)
        total += compare(found, outputs, scores)
    return total.tolist()


@every_model
def test_beams_of_batches_and_of_single_sentences(config, state, tmp_path):
    """Beam 4, the best and the 4 best, alpha 0, 0.6 and 1, limits 50, 10 and -5."""
    model = oracle_model(config, state, tmp_path)
    oracle = arrays(f"{MODELS}/{config}/{state}_beams.npz")
    finished, unfinished = compare_all(model, oracle, oracle["inputs"])
    if state == "trained":
        assert finished > 1000 and unfinished > 10
    assert finished + unfinished > 150


@every_model
def test_greedy(config, state, tmp_path):
    model = oracle_model(config, state, tmp_path)
    oracle = arrays(f"{MODELS}/{config}/{state}_beams.npz")
    source = oracle["inputs"]
    found = searcher(model)(source, source.shape[1] + 10, 1, alpha=0.0)
    outputs, scores = (
        oracle["greedy/outputs"][:, None],
        oracle["greedy/scores"][:, None],
    )
    assert sum(compare(found, outputs, scores)) == len(source)


def test_beams_of_the_released_checkpoint():
    oracle = arrays("t2t/oracle/official_ckpt/forward_beam.npz")
    counts = compare_all(official_model(), oracle, oracle["inputs"])
    assert counts == [0, 25]  # it was trained for one step


@pytest.mark.parametrize("wrong", ["ids", "scores"])
def test_the_comparison_can_fail(wrong):
    from t2t_keras.decoding.beam_search import Hypotheses

    ids, score = np.array([[[5, 1, 0]]]), np.array([[-1.0]])
    found = Hypotheses(ids, score, score, np.array([[2]]))
    assert compare(found, ids, score) == (1, 0)
    ids, score = (ids + (wrong == "ids") * [[[1, 0, 0]]], score - (wrong == "scores"))
    with pytest.raises(AssertionError):
        compare(found, ids, score)

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
from decoding_models import EOS, searcher
from t2t_oracle import MODELS, arrays, every_model, official_model, oracle_model

EMPTY = -1e6  # scores below are of places left empty
# Finished and unfinished hypotheses that are compared.
COUNTS = {
    ("prenorm_shared", "random"): [153, 6],
    ("prenorm_shared", "trained"): [511, 20],
    ("postnorm_shared", "random"): [5, 175],
    ("postnorm_shared", "trained"): [501, 36],
}
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


def compare_all(model, oracle):
    """Compares every case of a file; returns the counts, summed."""
    search, sources = searcher(model), oracle["inputs"]
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
    if "greedy/outputs" in oracle:
        found = search(sources, sources.shape[1] + 10, 1, alpha=0.0)
        outputs, scores = (oracle[f"greedy/{name}"] for name in ("outputs", "scores"))
        total += compare(found, outputs[:, None], scores[:, None])
    return total.tolist()


@every_model
def test_beams_of_batches_and_of_single_sentences(config, state, tmp_path):
    """Greedy and beam 4, 1 best and 4, alpha 0, 0.6 and 1, limits 50, 10 and -5."""
    model = oracle_model(config, state, tmp_path)
    counts = compare_all(model, arrays(f"{MODELS}/{config}/{state}_beams.npz"))
    assert counts == COUNTS[config, state]


def test_beams_of_the_released_checkpoint():
    """It was trained for one step: nothing finishes."""
    oracle = arrays("t2t/oracle/official_ckpt/forward_beam.npz")
    assert compare_all(official_model(), oracle) == [0, 25]

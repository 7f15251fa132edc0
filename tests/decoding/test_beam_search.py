import numpy as np
import pytest
import tensorflow as tf
from helpers.decoding_models import (
    EOS,
    PAD,
    TableModel,
    all_targets,
    coverages_of,
    log_probs_of,
    outputs,
    penalty,
    random_sources,
    searcher,
    transformer,
)

from t2t_keras.decoding.search_loop import length_penalties

SOURCES = [[3, 4, 2, 5, 1], [2, 1, 0, 0, 0], [5, 5, 1, 0, 0]]


@pytest.fixture(scope="module")
def small():
    """A model of 6 pieces and its search."""
    model = transformer(6)
    return model, searcher(model, trace=False)


@pytest.fixture(scope="module")
def larger():
    """A model of 30 pieces, two layers, and its search."""
    model = transformer(30, num_layers=2)
    return model, searcher(model)


PENALTIES = {
    "gnmt": penalty,
    "power": lambda length, alpha: length**alpha,
    "average": lambda length, alpha: length,
    "none": lambda length, alpha: 1.0,
}


@pytest.mark.parametrize(
    ("penalty", "alpha", "beta"),
    [
        *(("gnmt", alpha, 0.0) for alpha in (0.0, 0.6, 2.0, -1.0)),
        ("gnmt", 0.6, 0.7),
        ("power", 0.8, 0.7),
        ("average", 0.8, 0.0),
        ("none", 0.8, 0.7),
    ],
)
def test_equals_exhaustive_enumeration(small, penalty, alpha, beta):
    model, search = small
    if (penalty, beta) != ("gnmt", 0.0):
        search = searcher(
            model, trace=False, penalty_formula=penalty, coverage_penalty=beta
        )
    targets = all_targets(6, 4)
    assert len(targets) == 1 + 4 + 16 + 64
    # 64 prefixes may be alive at once: a beam of 85 leaves out none.
    hypotheses = search(SOURCES, 4, beam_size=85, alpha=alpha, n_best=7)
    for row, source in enumerate(SOURCES):
        log_probs = log_probs_of(model, source, targets)
        scores = log_probs / [PENALTIES[penalty](len(t), alpha) for t in targets]
        if beta:
            coverages = coverages_of([model], source, targets)
            assert np.std(coverages) > 0.1
            scores += beta * coverages
        best = np.argsort(-scores)[:7]
        assert outputs(hypotheses, row) == [targets[i] for i in best]
        np.testing.assert_allclose(hypotheses.scores[row], scores[best], atol=1e-4)
        np.testing.assert_allclose(
            hypotheses.log_probs[row], log_probs[best], atol=1e-4
        )


def search_written_out(log_probs, beam_size, alpha):
    """The n best of one sentence, n = K, by lists; log_probs [T, V, V] by last piece.

    It runs to the limit T, so the result does not depend on an early end.
    """
    alive = [([PAD], 0.0)]
    finished = []
    for table in log_probs:
        candidates = [
            ([*ids, piece], total + table[ids[-1], piece])
            for ids, total in alive
            for piece in range(len(table))
            if piece != PAD
        ]
        candidates = sorted(candidates, key=lambda c: -c[1])[: 2 * beam_size]
        finished += [(ids, total) for ids, total in candidates if ids[-1] == EOS]
        finished.sort(key=lambda f: -f[1] / penalty(len(f[0]) - 1, alpha))
        finished = finished[:beam_size]
        alive = [(ids, total) for ids, total in candidates if ids[-1] != EOS]
        alive = alive[:beam_size]
    return [ids[1:] for ids, _ in (finished + alive)[:beam_size]]


@pytest.mark.parametrize("n_best", [1, 3])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0, -1.0])
def test_equals_the_search_written_out(alpha, n_best):
    """With a small beam, on random tables.

    Two rows end early; they stay until the loop drops three at once.
    """
    rows = 40
    limit = 7
    limits = np.full(rows, limit)
    limits[[3, 20]] = 2, 3
    vocab = 6
    beam_size = 3
    logits = np.random.default_rng(4).normal(size=(rows, limit, vocab, vocab))
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    search = searcher(TableModel(tf.constant(logits, tf.float32)), trace=False)
    sources = np.arange(rows)[:, None]
    hypotheses = search(sources, limits, beam_size, alpha=alpha, n_best=n_best)
    for row in range(rows):
        tables = log_probs[row, : limits[row]]
        expected = search_written_out(tables, beam_size, alpha)
        assert outputs(hypotheses, row) == expected[:n_best]


def chain(first_step, limit, end_log_prob):
    """A table of one sentence: after the first step it is `2 2 ... 2 EOS` for sure.

    Args:
        first_step: probabilities of EOS, 2 and 3 at position 0.
        limit: number of positions.
        end: position of EOS.
    """
    probs = np.full((1, limit, 4, 4), 1e-9, np.float32)
    probs[:, :, :, 2] = 1.0
    probs[:, end_log_prob, :, [2, EOS]] = [[[1e-9]], [[1.0]]]
    probs[:, 0, :, 1:] = first_step
    return TableModel(tf.constant(np.log(probs)))


@pytest.mark.parametrize("n_best", [1, 2])
@pytest.mark.parametrize(
    ("alpha", "first_step", "end_log_prob"),
    [
        # Worse than EOS at the penalty of now, better at that of the limit.
        (1.0, [0.55, 0.3, 0.15], 19),
        # Falling penalty: better at once, worse at the limit.
        (-1.0, [0.4, 0.59, 0.01], 1),
    ],
)
def test_search_continues_while_a_better_hypothesis_is_possible(
    alpha, first_step, end_log_prob, n_best
):
    search = searcher(chain(first_step, 20, end_log_prob), trace=False)
    hypotheses = search([[0]], 20, beam_size=2, alpha=alpha, n_best=n_best)
    assert outputs(hypotheses, 0)[0] == [2] * end_log_prob + [EOS]
    search = searcher(chain([0.98, 0.01, 0.01], 20, 19), trace=False)
    hypotheses = search([[0]], 20, beam_size=2, n_best=n_best)
    assert hypotheses.ids.shape[2] == (1 if n_best == 1 else 20)  # steps


def test_greedy(larger):
    """A beam of 1 is the loop that takes the likeliest piece, PAD left out."""
    model, search = larger
    source = random_sources(12, 30)
    limit = 20
    forward = tf.function(model, autograph=False)
    target = np.zeros((12, limit), np.int32)
    done = np.zeros(12, bool)
    for position in range(limit):
        logits = forward(source, target)[:, position].numpy()
        logits[:, PAD] = -np.inf
        target[:, position] = np.where(done, PAD, logits.argmax(1))
        done |= target[:, position] == EOS
    hypotheses = search(source, limit, beam_size=1)
    width = hypotheses.ids.shape[2]
    np.testing.assert_array_equal(hypotheses.ids[:, 0], target[:, :width])
    assert not target[:, width:].any()
    assert len(set(hypotheses.lengths[:, 0])) > 2


class CountedModel(TableModel):
    """A table model that counts the rows of each step that is computed."""

    def __init__(self, table):
        super().__init__(table)
        self.row_steps = tf.Variable(0)

    def decode_step(self, ids, position, cache):
        self.row_steps.assign_add(tf.shape(ids)[0])
        return super().decode_step(ids, position, cache)


def test_rows_that_are_done_leave_the_batch():
    """Sentence i ends after i + 1 steps for sure; the batch has 40 of 1 to 40 steps."""
    count = 40
    limit = 45
    probs = np.full((count, limit, 4, 4), 1e-9, np.float32)
    for row in range(count):
        probs[row, :row, :, 2] = 1.0
        probs[row, row:, :, EOS] = 1.0
    model = CountedModel(tf.constant(np.log(probs)))
    order = np.random.default_rng(0).permutation(count)
    hypotheses = searcher(model)(order[:, None], limit, beam_size=2)
    assert hypotheses.lengths[:, 0].tolist() == (order + 1).tolist()
    assert outputs(hypotheses, 0)[0] == [2] * order[0] + [EOS]
    needed = count * (count + 1) // 2
    assert needed <= model.row_steps.numpy() < 1.05 * needed


def test_companions_change_nothing(larger):
    """Alone, in a batch, in wider padding: the same hypotheses."""
    _, search = larger
    source = random_sources(10, 30)
    limits = np.arange(10) * 2 + 3
    together = search(np.pad(source, ((0, 0), (0, 9))), limits, beam_size=4, n_best=4)
    for row in range(len(source)):
        length = np.count_nonzero(source[row])
        single = search(
            source[row : row + 1, :length], limits[row], beam_size=4, n_best=4
        )
        assert outputs(single, 0) == outputs(together, row)
        np.testing.assert_allclose(single.scores[0], together.scores[row], atol=1e-4)


@pytest.mark.parametrize("formula", ["gnmt", "power", "average", "none"])
def test_the_score_of_the_empty_output_is_a_number(formula):
    """A blank row of an export has it, with the log-probability 0."""
    divisor = float(length_penalties(tf.constant(0), 0.6, formula))
    assert divisor == pytest.approx(1, abs=0.2) and 0 / divisor == 0


def test_fewer_hypotheses_than_places(small):
    """With 6 pieces and limit 1 only 5 outputs exist; a limit of 0 leaves one."""
    _, search = small
    hypotheses = search(SOURCES[:2], [1, 0], beam_size=8, n_best=8)
    assert sorted(outputs(hypotheses, 0)) == [[], [], [], [1], [2], [3], [4], [5]]
    assert outputs(hypotheses, 0)[0] == [EOS]
    assert np.isinf(hypotheses.scores[0]).tolist() == [False] * 5 + [True] * 3
    assert outputs(hypotheses, 1) == [[]] * 8
    assert hypotheses.scores[1].tolist() == [0.0] + [-np.inf] * 7

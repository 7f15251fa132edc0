import numpy as np
import pytest
import tensorflow as tf
from command_line import run, write
from decoding_models import (
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
from errors import refused
from small_data import sentence_pairs, small_data
from small_run import untrained

import t2t_keras
from t2t_keras.decoding.ensemble import Ensemble
from t2t_keras.decoding.scoring import score_targets
from t2t_keras.decoding.top_k import top_k

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

    It goes on to the limit T: what is found does not depend on an early end.
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
    """With a beam that leaves out much, on models without any sense."""
    rows = 40
    limit = 7
    vocab = 6
    beam_size = 3
    logits = np.random.default_rng(4).normal(size=(rows, limit, vocab, vocab))
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    search = searcher(TableModel(tf.constant(logits, tf.float32)), trace=False)
    sources = np.arange(rows)[:, None]
    hypotheses = search(sources, limit, beam_size, alpha=alpha, n_best=n_best)
    for row in range(rows):
        expected = search_written_out(log_probs[row], beam_size, alpha)
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
def test_goes_on_while_something_better_is_possible(
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
    forward = tf.function(model)
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
        alone = search(
            source[row : row + 1, :length], limits[row], beam_size=4, n_best=4
        )
        assert outputs(alone, 0) == outputs(together, row)
        np.testing.assert_allclose(alone.scores[0], together.scores[row], atol=1e-4)


def test_fewer_hypotheses_than_places(small):
    """With 6 pieces and limit 1 only 5 outputs exist; a limit of 0 leaves one."""
    _, search = small
    hypotheses = search(SOURCES[:2], [1, 0], beam_size=8, n_best=8)
    assert sorted(outputs(hypotheses, 0)) == [[], [], [], [1], [2], [3], [4], [5]]
    assert outputs(hypotheses, 0)[0] == [EOS]
    assert np.isinf(hypotheses.scores[0]).tolist() == [False] * 5 + [True] * 3
    assert outputs(hypotheses, 1) == [[]] * 8
    assert hypotheses.scores[1].tolist() == [0.0] + [-np.inf] * 7


# The k largest values against NumPy's sort.


@pytest.mark.parametrize("size", [1, 5, 64, 65, 1000])
@pytest.mark.parametrize("k", [1, 4, 50])
def test_equals_a_stable_sort(size, k):
    """With many equals, of which the first comes first, and many ruled out."""
    random = np.random.default_rng(size + k)
    values = random.integers(0, 20, (2, 3, size)).astype("float32")
    values[random.random(values.shape) < 0.5] = -np.inf
    k = min(k, size)
    largest, indices = top_k(tf.constant(values), tf.constant(k))
    expected = np.argsort(-values, axis=-1, kind="stable")[..., :k]
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_array_equal(largest, np.take_along_axis(values, expected, -1))


# Ensembles against enumeration, and through files.


@pytest.fixture(scope="module")
def models():
    """Two models of different sizes whose weights differ."""
    second = transformer(6, num_layers=2, d_model=8)
    for weight in second.weights:
        weight.assign(-1.3 * weight)
    return transformer(6), second


def test_an_ensemble_equals_exhaustive_enumeration(models):
    targets = all_targets(6, 4)
    ensemble = Ensemble(models)
    hypotheses, alone = (
        searcher(model, trace=False, coverage_penalty=0.5)(
            SOURCES, 4, beam_size=85, n_best=7
        )
        for model in (ensemble, models[0])
    )
    for row, source in enumerate(SOURCES):
        log_probs = mean_log_probs(models, source, targets)
        scores = log_probs / [penalty(len(t), 0.6) for t in targets]
        scores += 0.5 * coverages_of(models, source, targets)
        best = np.argsort(-scores)[:7]
        assert outputs(hypotheses, row) == [targets[i] for i in best]
        np.testing.assert_allclose(hypotheses.scores[row], scores[best], atol=1e-4)
        ids = [(targets[i] + [0] * 4)[:4] for i in best]
        scored = score_targets(ensemble, np.tile(source, (7, 1)), np.array(ids))
        np.testing.assert_allclose(scored.log_probs, log_probs[best], atol=1e-4)
        assert scored.lengths.numpy().tolist() == [len(targets[i]) for i in best]
        token_log_probs = scored.token_log_probs.numpy()
        np.testing.assert_allclose(token_log_probs.sum(1), log_probs[best], atol=1e-4)
        assert (
            token_log_probs[np.array(ids) == PAD] == 0
        ).all() and token_log_probs.max() <= 0
    assert (hypotheses.ids != alone.ids).any()


def mean_log_probs(models, source, targets):
    """The log-probabilities of targets by the mean of the models' distributions."""
    width = max(map(len, targets))
    target = np.array([[*t, *[PAD] * (width - len(t))] for t in targets], np.int32)
    sources = np.tile(np.array(source, np.int32), (len(targets), 1))
    mean = 0.0
    for model in models:
        logits = model(sources, target).numpy().astype(np.float64)
        exponentials = np.exp(logits - logits.max(-1, keepdims=True))
        mean += exponentials / exponentials.sum(-1, keepdims=True) / len(models)
    target_log_probs = np.take_along_axis(np.log(mean), target[:, :, None], 2)[:, :, 0]
    return (target_log_probs * (target != PAD)).sum(1)


def test_vocabularies_of_unequal_size_are_refused(models):
    refused("vocabularies of equal size", Ensemble, [models[0], transformer(7)])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs with the same vocabulary, and one with another."""
    root = tmp_path_factory.mktemp("runs")
    small_data(root / "data")
    small_data(root / "other", vocab_size=300)
    for name, data, seed in (("a", "data", 1), ("b", "data", 2), ("c", "other", 1)):
        untrained(root / data, root / name, seed)
    return root


def test_command_line(runs, tmp_path):
    texts = [source for source, _ in sentence_pairs()[:2]]
    source = write(tmp_path / "in", *texts)
    output = tmp_path / "out"
    of_run = ["--output_dir", runs / "a", "--ensemble", runs / "b", "--n_best", 2]
    options = ["--decode_hparams", "extra_length=2"]
    files = ["--input", source, "--output", output]
    assert run("translate", *of_run, *options, *files) == 0
    ensemble = t2t_keras.load(runs / "a", ensemble=[runs / "b"])
    best = [x for row in ensemble.n_best(texts, 2, extra_length=2) for x in row]
    rows = [line.split("\t") for line in output.read_text().splitlines()]
    assert [row[3] for row in rows] == [x.text for x in best]
    scores = [float(row[2]) for row in rows]
    np.testing.assert_allclose(scores, [x.score for x in best], atol=1e-5)


@pytest.mark.slow
def test_export(runs, tmp_path):
    texts = [source for source, _ in sentence_pairs()[:2]]
    of_run = ["--output_dir", runs / "a", "--ensemble", runs / "b"]
    export = tmp_path / "1"
    assert run("export", *of_run, "--export_dir", export, "--verify", "2") == 0
    ensemble = t2t_keras.load(runs / "a", ensemble=[runs / "b"])
    assert t2t_keras.load(export).translate(texts) == ensemble.translate(texts)


def test_runs_with_other_vocabularies_are_refused(runs):
    message = "other vocabularies than"
    members = [runs / "c"]
    refused(message, t2t_keras.load, runs / "a", ensemble=members)

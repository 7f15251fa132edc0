"""Ensembles against enumeration, and through files."""

import numpy as np
import pytest
from helpers.command_line import run, write
from helpers.decoding_models import (
    PAD,
    all_targets,
    coverages_of,
    outputs,
    penalty,
    searcher,
    transformer,
)
from helpers.errors import refused
from helpers.small_data import sentence_pairs, small_data
from helpers.small_run import untrained

import t2t_keras
from t2t_keras.decoding.ensemble import Ensemble
from t2t_keras.decoding.search_graph import score_targets

SOURCES = [[3, 4, 2, 5, 1], [2, 1, 0, 0, 0], [5, 5, 1, 0, 0]]


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


@pytest.mark.slow
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


def test_a_checkpoint_of_an_ensemble_is_a_name(runs):
    """A path would give all runs the same weights."""
    path = runs / "a/model.ckpt-1"
    members = [runs / "b"]
    refused(
        "is a file of one run; give a step", t2t_keras.load, runs / "a", path, members
    )

"""Ensembles against enumeration, and through files."""

import numpy as np
import pytest
from helpers.command_line import run, write
from helpers.decoding_models import (
    all_targets,
    coverages_of,
    outputs,
    penalty,
    searcher,
    token_log_probs,
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
        rows = token_log_probs(models, source, targets)
        log_probs = np.array([row.sum() for row in rows])
        scores = log_probs / [penalty(len(t), 0.6) for t in targets]
        scores += 0.5 * coverages_of(models, source, targets)
        best = np.argsort(-scores)[:7]
        assert outputs(hypotheses, row) == [targets[i] for i in best]
        np.testing.assert_allclose(hypotheses.scores[row], scores[best], atol=1e-4)
        ids = [(targets[i] + [0] * 4)[:4] for i in best]
        scored = score_targets(ensemble, np.tile(source, (7, 1)), np.array(ids))
        np.testing.assert_allclose(scored.log_probs, log_probs[best], atol=1e-4)
        assert scored.lengths.numpy().tolist() == [len(targets[i]) for i in best]
        for i, of_tokens in zip(best, scored.token_log_probs.numpy(), strict=True):
            expected = np.pad(rows[i], (0, 4 - len(rows[i])))
            np.testing.assert_allclose(of_tokens, expected, atol=1e-4)
    assert (hypotheses.ids != alone.ids).any()


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
    refused("other vocabularies than", t2t_keras.load, runs / "a", None, [runs / "c"])


def test_a_checkpoint_of_an_ensemble_is_a_name(runs):
    """A path would give all runs the same weights."""
    arguments = runs / "a", runs / "a/model.ckpt-1", [runs / "b"]
    refused("is a file of one run; give a step", t2t_keras.load, *arguments)

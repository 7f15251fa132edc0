"""Ensembles against enumeration, and through files."""

import numpy as np
import pytest
from command_line import run, run_json
from decoding_models import (
    PAD,
    all_targets,
    outputs,
    penalty,
    searcher,
    transformer,
)
from small_data import sentence_pairs, small_data
from small_run import untrained

import t2t_keras
from t2t_keras.decoding.ensemble import Ensemble
from t2t_keras.decoding.scoring import score_targets
from t2t_keras.option import UserError

SOURCES = [[3, 4, 2, 5, 1], [2, 1, 0, 0, 0], [5, 5, 1, 0, 0]]


@pytest.fixture(scope="module")
def models():
    """Two models of different sizes whose weights differ."""
    second = transformer(6, num_layers=2, d_model=8)
    for weight in second.weights:
        weight.assign(-1.3 * weight)
    return transformer(6), second


def test_equals_exhaustive_enumeration(models):
    targets = all_targets(6, 4)
    ensemble = Ensemble(models)
    found = searcher(ensemble)(SOURCES, 4, beam_size=85, alpha=0.6, n_best=7)
    alone = searcher(models[0])(SOURCES, 4, beam_size=85, alpha=0.6, n_best=7)
    differs = False
    for row, source in enumerate(SOURCES):
        log_probs = mean_log_probs(models, source, targets)
        scores = log_probs / [penalty(len(t), 0.6) for t in targets]
        best = np.argsort(-scores)[:7]
        assert outputs(found, row) == [targets[i] for i in best]
        np.testing.assert_allclose(found.scores[row], scores[best], atol=1e-4)
        differs |= outputs(found, row) != outputs(alone, row)
        ids = [(targets[i] + [0] * 4)[:4] for i in best]
        scored = score_targets(ensemble, np.tile(source, (7, 1)), np.array(ids))
        np.testing.assert_allclose(scored.log_probs, log_probs[best], atol=1e-4)
    assert differs


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
    chosen = np.take_along_axis(np.log(mean), target[:, :, None], 2)[:, :, 0]
    return (chosen * (target != PAD)).sum(1)


def test_coverage_is_the_mean(models):
    search = searcher(Ensemble(models), coverage_penalty=0.5)
    found = search(SOURCES[:1], 4, beam_size=85, alpha=0.0, n_best=1)
    (target,) = outputs(found, 0)
    total = 0.0
    for model in models:
        maps = model.attention_maps(np.array(SOURCES[:1]), np.array([target]))
        total += np.array(maps.cross[-1])[0].mean(axis=0).sum(axis=0) / 2
    coverage = 0.5 * np.log(np.minimum(total, 1.0)).sum()
    (log_prob,) = mean_log_probs(models, SOURCES[0], [target])
    np.testing.assert_allclose(found.scores[0, 0], log_prob + coverage, atol=1e-4)


def test_vocabularies_of_unequal_size_are_refused(models):
    with pytest.raises(UserError, match="vocabularies of equal size"):
        Ensemble([models[0], transformer(7)])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs with the same vocabulary, and one with another."""
    root = tmp_path_factory.mktemp("runs")
    small_data(root / "data")
    small_data(root / "other", vocab_size=300)
    for name, data, seed in (("a", "data", 1), ("b", "data", 2), ("c", "other", 1)):
        untrained(root / data, root / name, seed)
    return root


def test_command_line(runs, tmp_path, capfd):
    texts = [source for source, _ in sentence_pairs()[:2]]
    a, b = str(runs / "a"), str(runs / "b")
    ensemble = t2t_keras.load(a, ensemble=[b])
    best = ensemble.n_best(texts, 2)
    source, output = tmp_path / "in", tmp_path / "out"
    source.write_text("".join(f"{text}\n" for text in texts))
    of_run = ["--output_dir", a, "--ensemble", b]
    translate = ["translate", *of_run, "--input", source, "--output", output]
    assert run(*translate, "--n_best", "2") == 0
    rows = [line.split("\t") for line in output.read_text().splitlines()]
    assert [row[3] for row in rows] == [x.text for row in best for x in row]
    scores = [x.score for row in best for x in row]
    np.testing.assert_allclose([float(row[2]) for row in rows], scores, atol=1e-5)

    log_prob = ensemble.score(texts[:1], [best[0][0].text])[0].log_prob
    target = tmp_path / "target"
    target.write_text(f"{best[0][0].text}\n")
    source.write_text(f"{texts[0]}\n")
    scored = run_json(capfd, "score", *of_run, "--source", source, "--target", target)
    assert scored["log_prob"] == pytest.approx(log_prob, abs=1e-4)


@pytest.mark.slow
def test_export(runs, tmp_path):
    texts = [source for source, _ in sentence_pairs()[:2]]
    of_run = ["--output_dir", runs / "a", "--ensemble", runs / "b"]
    export = tmp_path / "1"
    assert run("export", *of_run, "--export_dir", export, "--verify", "2") == 0
    ensemble = t2t_keras.load(runs / "a", ensemble=[runs / "b"])
    assert t2t_keras.load(export).translate(texts) == ensemble.translate(texts)


def test_runs_with_other_vocabularies_are_refused(runs):
    with pytest.raises(UserError, match="other vocabularies than"):
        t2t_keras.load(runs / "a", ensemble=[runs / "c"])

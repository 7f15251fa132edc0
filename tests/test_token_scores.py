"""Log-probabilities of tokens, against NumPy."""

import json
import math

import numpy as np
import pytest
import tensorflow as tf
from command_line import run, write
from decoding_models import (
    LINES,
    run_of,
    text_translator,
)

from t2t_keras.export.client import ExportedTranslator
from t2t_keras.export.saved_model import export_saved_model
from t2t_keras.option import UserError


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    return text_translator(tmp_path_factory.mktemp("vocab"))


@pytest.fixture(scope="module")
def tokenizer(translator):
    return translator.source_tokenizer


def all_log_probs(model, source, target):
    """The log-softmax [T, V] before each token of a target, in float64."""
    logits = model(np.array([source]), np.array([target]))[0].numpy()
    logits = logits.astype(np.float64)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def token_log_probs(model, source, target):
    """Of every token of a target."""
    rows = all_log_probs(model, source, target)
    return [row[token] for row, token in zip(rows, target, strict=True)]


@pytest.mark.parametrize(
    "options", [{"n_best": 3, "batch_tokens": 20}, {"sampling": True, "n_best": 2}]
)
def test_outputs_have_the_log_probability_of_each_token(translator, options):
    plain = translator.n_best(LINES, **options)
    found = translator.n_best(LINES, token_scores=True, **options)
    assert [[x._replace(token_log_probs=()) for x in row] for row in found] == plain
    for line, outputs in zip(LINES, found, strict=True):
        source = translator.source_tokenizer.encode(line)
        for output in outputs:
            assert len(output.token_log_probs) == len(output.ids)
            if not line.strip():
                continue
            assert sum(output.token_log_probs) == pytest.approx(
                output.log_prob, abs=1e-4
            )
            expected = token_log_probs(translator.model, source, output.ids)
            assert output.token_log_probs == pytest.approx(expected, abs=1e-4)


def test_of_an_input_that_is_split(translator):
    """The scores of the parts, one after the other; each part has its own source."""
    options = {"max_source_length": 12, "token_scores": True}
    text = "the old dog runs . the dog reads a book . a dog runs ."
    ((output,),) = translator.n_best([text], **options)
    parts = ["the old dog runs .", "the dog reads a book .", "a dog runs ."]
    sources = [translator.source_tokenizer.encode(part) for part in parts]
    assert max(map(len, sources)) <= 12 < sum(map(len, sources[:2]))
    expected = [
        x
        for ((y,),) in [translator.n_best([p], **options) for p in parts]
        for x in y.token_log_probs
    ]
    assert output.token_log_probs == pytest.approx(expected, abs=1e-4)
    assert len(output.token_log_probs) == len(output.ids)
    assert sum(output.token_log_probs) == pytest.approx(output.log_prob, abs=1e-4)


def test_score_of_given_targets(translator, tokenizer):
    targets = [*LINES[1:], ""]
    for source, target, score in zip(
        LINES, targets, translator.score(LINES, targets, batch_tokens=40), strict=True
    ):
        assert list(score.ids) == tokenizer.encode(target.strip())
        expected = token_log_probs(
            translator.model, tokenizer.encode(source.strip()), score.ids
        )
        assert score.token_log_probs == pytest.approx(expected, abs=1e-4)
        assert sum(score.token_log_probs) == pytest.approx(score.log_prob, abs=1e-4)
        assert score.tokens == len(score.ids)
    with pytest.raises(UserError, match="9 sources but 1 targets"):
        translator.score(LINES, ["a"])


@pytest.mark.slow
def test_score_of_an_export(translator, tmp_path):
    export_saved_model(translator, tmp_path / "1")
    client = ExportedTranslator(tmp_path / "1")
    targets = [*LINES[1:], ""]
    expected = translator.score(LINES, targets)
    for ours, theirs in zip(client.score(LINES, targets), expected, strict=True):
        assert ours.ids == theirs.ids
        assert ours.token_log_probs == pytest.approx(theirs.token_log_probs, abs=1e-4)


# The command line


@pytest.fixture
def run_dir(translator, monkeypatch, tmp_path):
    return run_of(translator, monkeypatch, tmp_path)


def tokens_of(translator, scored):
    pieces = translator.target_tokenizer.pieces
    pairs = zip(scored.ids, scored.token_log_probs, strict=True)
    return [[pieces[i], pytest.approx(x, abs=1e-4)] for i, x in pairs]


def test_translate_writes_tokens(translator, run_dir, tmp_path):
    source, output = write(tmp_path / "in", *LINES[:4]), tmp_path / "out"
    argv = ("translate", *run_dir, "--input", source, "--output", output)
    assert run(*argv, "--token_scores", "--n_best", 2) == 0
    lines = output.read_text().split("\n")[:-1]  # an output may have a TAB
    rows = [(*line.split("\t", 3)[:3], *line.rsplit("\t", 1)) for line in lines]
    found = translator.n_best(LINES[:4], 2, token_scores=True)
    expected = [
        (str(i), str(k), x)
        for i, row in enumerate(found, 1)
        for k, x in enumerate(row, 1)
    ]
    for row, (number, rank, output) in zip(rows, expected, strict=True):
        assert row[:2] == (number, rank)
        assert row[3].split("\t", 3)[3] == output.text
        assert float(row[2]) == pytest.approx(output.score, abs=1e-4)
        assert json.loads(row[4]) == tokens_of(translator, output)


def test_score_writes_tokens(translator, run_dir, capfd, tmp_path):
    pair = (
        *("--source", write(tmp_path / "a", *LINES)),
        *("--target", write(tmp_path / "b", *LINES[::-1])),
    )
    output = "--output", tmp_path / "s"
    assert run("score", *run_dir, *pair, *output) == 0
    plain = (tmp_path / "s").read_text().splitlines()
    assert run("score", *run_dir, *pair, *output, "--token_scores") == 0
    lines = (tmp_path / "s").read_text().splitlines()
    scores = translator.score(LINES, LINES[::-1])
    for line, before, score in zip(lines, plain, scores, strict=True):
        total, more = line.rsplit("\t", 1)
        assert total == before
        assert json.loads(more) == tokens_of(translator, score)
        assert math.fsum(x for _, x in json.loads(more)) == pytest.approx(
            float(total.split("\t")[0]), abs=1e-4
        )
    capfd.readouterr()
    assert run("score", *run_dir, *pair, "--token_scores") == 2
    assert "--token_scores needs --output FILE" in capfd.readouterr().err


def test_scoring_is_one_graph(translator):
    """Outputs of any lengths are rescored without a new trace."""
    translator.n_best(LINES, 3, token_scores=True)
    graph = translator._graphs["score"]
    assert isinstance(graph, tf.types.experimental.PolymorphicFunction)
    assert graph.experimental_get_tracing_count() == 1

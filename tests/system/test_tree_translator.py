"""From sentences to bracketed trees: in this process and from a SavedModel."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from helpers.command_line import run, run_json, write
from helpers.decoding_models import run_of, transformer
from helpers.errors import refused

import t2t_keras
from t2t_keras import registry
from t2t_keras.data.manifest import vocab_files
from t2t_keras.data.vocabulary import train_vocabulary
from t2t_keras.decoding.graph_engine import ModelTranslator
from t2t_keras.exporting.saved_model import export_saved_model, load_saved_model
from t2t_keras.problems.parsing.linearise import BRACKETS, SYMBOLS, UNTAGGED_SYMBOLS
from t2t_keras.problems.parsing.task import Trees
from t2t_keras.problems.parsing.tree import parse_tree
from t2t_keras.text.tokenizer import load_tokenizer

SENTENCES = [
    *("The dog barks .", "", "It  is\tlate ( very ) , isn't it ?"),
    *("naïve\u00a0café 「日本語」 / ' 7 '", " \u3000", "Go"),
    "The old man sees the woman who reads a book .",
]
READ = (
    *("The dog barks .", "", "It is late -LRB- very -RRB- , isn't it ?"),
    *("naïve\u00a0café 「日本語」 / ' 7 '", "", "Go", SENTENCES[-1]),
)
WORDS = [text.split(" ") if text else [] for text in READ]


def make(problem, folder, **options):
    """A translator with random weights."""
    pairs = itertools.islice(problem.source("train")(), 300)
    paths = [folder / name for name in vocab_files(problem).values()]
    for path, texts in zip(paths, zip(*pairs, strict=True), strict=True):
        train_vocabulary(problem, texts, path, in_subprocess=False)
    tokenizers = [load_tokenizer(path) for path in paths]
    sizes = [tokenizer.vocab_size for tokenizer in tokenizers]
    model = transformer(*sizes, max_positions=128, **options)
    return ModelTranslator(problem, model, *tokenizers)


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    problem = registry.problem("parsing_toy").replace(vocab_size=480, extra_length=30)
    return make(problem, tmp_path_factory.mktemp("vocab"))


def test_trees_over_the_words(translator):
    outputs = translator.n_best(SENTENCES, 3)
    for words, best in zip(WORDS, outputs, strict=True):
        if not words:
            assert [output.text for output in best] == [""]
            continue
        assert len({output.text for output in best}) == len(best) == 3
        for output in best:
            tree = parse_tree(output.text)
            assert tree.words() == words
            assert len(tree.children) == 1
            assert not output.is_repaired
    assert translator.translate(SENTENCES[::-1], batch_tokens=1)[::-1] == [
        best[0].text for best in outputs
    ]


@pytest.mark.slow
@pytest.mark.parametrize("symbols_name", ["tags", "raw", "words"])
def test_saved_model_equals_in_process(translator, tmp_path, symbols_name):
    """Tags; no tags, raw sentences and tensor2tensor's subwords; one token per word."""
    raw = symbols_name == "raw"
    if symbols_name == "words":
        problem = translator.problem.replace(tokenizer="words")
        translator = make(
            problem, tmp_path, model="next_word_transformer", position="sinusoidal"
        )
    if raw:
        processor = Trees(symbols=UNTAGGED_SYMBOLS)
        problem = translator.problem.replace(
            text_processor=processor, tokenizer="t2t_subword"
        )
        translator = make(problem, tmp_path)
    path = tmp_path / "model"
    export_saved_model(translator, path, n_best=2, raw=raw)
    expected = translator.n_best(SENTENCES, 2, raw=raw)
    if symbols_name == "words":  # the ids of unknown words do not have their text
        refused("read the text of a source", t2t_keras.load, path)
        served = load_saved_model(path)
        rows = served.signatures["serving_default"](tf.constant(SENTENCES))["texts"]
        for ours, row in zip(expected, rows.numpy().tolist(), strict=True):
            texts = [output.text for output in ours]
            assert [text.decode() for text in row[: len(texts)]] == texts
        return
    client = t2t_keras.load(path)
    actual = client.n_best(SENTENCES)
    for ours, exported in zip(expected, actual, strict=True):
        assert [output.text for output in exported] == [output.text for output in ours]
        scores = [output.score for output in exported]
        np.testing.assert_allclose(scores, [x.score for x in ours], atol=1e-4)
    # Where nothing can be generated, as here, Python repairs the empty output.
    impossible = {"min_length": 400}
    expected_trees = translator.translate(SENTENCES, raw=raw, **impossible)
    assert client.translate(SENTENCES, **impossible) == expected_trees
    assert [bool(tree) for tree in expected_trees] == [bool(words) for words in WORDS]


@pytest.mark.parametrize(
    "symbols",
    [SYMBOLS, UNTAGGED_SYMBOLS, (*BRACKETS, "W", "."), BRACKETS],
    ids=["tags", "no tags", "a full stop", "no leaves"],
)
def test_no_output_is_repaired_in_the_graph_as_in_python(symbols):
    processor = Trees(symbols=symbols)
    sources = [" ".join(words) for words in WORDS]
    sources.append("`` Go '' : 3 : 4 -- now")
    repaired = processor.postprocess_graph(
        tf.constant(sources), tf.fill([len(sources), 2], "")
    )
    expected = [processor.postprocess(source, "")[0] for source in sources]
    assert repaired.numpy().tolist() == [[tree.encode(), b""] for tree in expected]


def test_the_score_of_an_output_matches_the_search(translator):
    best = [outputs[0] for outputs in translator.n_best(SENTENCES)]
    scores = translator.score(SENTENCES, [output.text for output in best])
    for output, score in zip(best, scores, strict=True):
        if output.text:
            assert score.log_prob == pytest.approx(output.log_prob, abs=1e-3)
            assert score.tokens == output.tokens
    message = r"'\(TOP \(NN Stop\)\)' has other words than"
    refused(message, translator.score, ["Go"], ["(TOP (NN Stop))"])
    refused(r"target:1: .NN. stands outside", translator.score, ["Go"], ["NN"])


def test_the_command_writes_trees_and_reports_repairs(
    translator, monkeypatch, capfd, tmp_path
):
    """Its sentences 1, 3 and 4 have words."""
    source = write(tmp_path / "in", *SENTENCES[:4])
    output = tmp_path / "out"
    argv = ("translate", *run_of(translator, monkeypatch, tmp_path))
    argv += ("--input", source, "--output", output)
    free = ("--decode_hparams", "constraint=none")
    for flags, repaired in (((), 0.0), (free, 3 / 4)):
        result = run_json(capfd, *argv, *flags)
        assert (result["sentences"], result["repaired"]) == (4, repaired)
        trees = output.read_text().split("\n")[:-1]
        assert [parse_tree(t).words() if t else [] for t in trees] == WORDS[:4]
    assert run(*argv, "--n_best", 2, *free) == 0
    assert "75.0% of the outputs were malformed" in capfd.readouterr().err
    rows = [line.split("\t") for line in output.read_text().splitlines()]
    ranks = [row[:2] for row in rows if row[3]]
    assert ranks == [[line, rank] for line in "134" for rank in "12"]
    assert float(rows[0][2]) >= float(rows[1][2])

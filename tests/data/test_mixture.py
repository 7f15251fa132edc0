"""Mixtures of corpora: weights, tags, the manifest, and what training reads."""

import collections
import itertools

import numpy as np
import pytest
from helpers.command_line import run_json, write
from helpers.errors import refused

from t2t_keras.data import vocabulary
from t2t_keras.data.batch_plan import BatchPlan
from t2t_keras.data.datagen import generate
from t2t_keras.data.manifest import Manifest
from t2t_keras.data.mixture import Corpus, Mixture, read_mixture, repetitions
from t2t_keras.data.pipeline import training_batches
from t2t_keras.data.training_data import training_index
from t2t_keras.plugins.corpus.command import decoded_examples
from t2t_keras.problem import Cleaning, Problem
from t2t_keras.run.config import config_for
from t2t_keras.text.alignment import AlignedPair
from t2t_keras.text.sentence_piece import SentencePieceTokenizer
from t2t_keras.text.tokenizer import load_tokenizer

WORDS = ["dog", "cat", "house", "tree", "river", "king", "book"]


def corpus(name, count, weight=0.0, tag="", target="word") -> Corpus:
    pairs = [
        (f"{name} {' '.join(WORDS[: i % 7])} {i}", f"{target} {i}")
        for i in range(count)
    ]
    return Corpus(name, lambda: iter(pairs), weight, tag)


def problem(*corpora, **mixture) -> Problem:
    sources = {"train": Mixture(corpora, **mixture), "dev": corpora[0]}
    return Problem(name="mixed", summary="x", sources=sources, vocab_size=400)


@pytest.mark.parametrize(
    ("sizes", "shares"),
    [
        ([10, 10], [0.5, 0.5]),
        ([1000, 30, 7], [0.2, 0.3, 0.5]),
        ([1000, 3], [0.999, 0.001]),
        ([50, 0, 7], [0.9, 0.0, 0.1]),
        ([123_456, 777], [0.25, 0.75]),
    ],
)
def test_repetitions_have_the_shares(sizes, shares):
    corpus_indices = np.repeat(np.arange(len(sizes)), sizes)
    np.random.default_rng(0).shuffle(corpus_indices)
    counts = repetitions(corpus_indices, shares)
    totals = np.bincount(corpus_indices, weights=counts, minlength=len(sizes))
    np.testing.assert_allclose(totals / totals.sum(), shares, atol=1 / totals.sum())
    for index, size in enumerate(sizes):
        if size:
            of_corpus = counts[corpus_indices == index]
            assert of_corpus.max() - of_corpus.min() <= 1
            # Evenly spread: every stretch has its part of the repetitions.
            sums = np.cumsum(of_corpus) - np.arange(1, size + 1) * of_corpus.mean()
            assert abs(sums).max() <= 1
    assert counts.min() == 1  # no example is left out


@pytest.mark.parametrize(
    ("weights", "temperature", "expected"),
    [
        ([1, 1, 2], 0.0, [0.25, 0.25, 0.5]),
        ([0, 0, 0], 1.0, [0.9, 0.05, 0.05]),
        ([0, 0, 0], 2.0, np.array([3, 0.5**0.5, 0.5**0.5]) / (3 + 2**0.5)),
        ([0, 0, 0], 0.0, [0.9, 0.05, 0.05]),
    ],
)
def test_shares(weights, temperature, expected):
    sizes = {"a": 900, "b": 50, "c": 50}
    corpora = [Corpus(n, list, w) for n, w in zip(sizes, weights, strict=True)]
    shares = Mixture(tuple(corpora), temperature).shares(sizes)
    np.testing.assert_allclose(list(shares.values()), expected)


def test_an_epoch_is_at_most_a_hundred_times_the_data():
    """Of 1,000 and 10 examples, so that those of a rare corpus occur once."""
    sizes = {"a": 1000, "b": 10}
    rare = Mixture((corpus("a", 1, 0.01), corpus("b", 1, 0.99)))
    assert rare.checked_shares(sizes) == rare.shares(sizes)
    rarer = Mixture((corpus("a", 1, 0.0098), corpus("b", 1, 0.99)))
    message = "an epoch would have 102,020 examples for those of 'a' to occur once"
    refused(message, rarer.checked_shares, sizes)


def test_training_reads_the_shares_that_were_asked_for(tmp_path):
    """Counted over an epoch's batches, after rules have dropped pairs of one corpus."""
    large_source = corpus("large", 900).source
    small = corpus("small", 40, weight=3, tag="<s>")
    noisy = [("1 2 3", "4"), ("", "")] * 200
    large = Corpus("large", lambda: itertools.chain(large_source(), noisy), weight=1)
    mixed = problem(large, small).replace(cleaning=Cleaning(letters=0.5))
    manifest = generate(mixed, tmp_path, workers=1)
    assert manifest.corpora["train"] == {
        "large": {"pairs": 1300, "examples": 900, "share": 0.25},
        "small": {"pairs": 40, "examples": 40, "share": 0.75},
    }

    index = training_index(tmp_path, mixed)
    tokenizer = load_tokenizer(tmp_path / manifest.vocab_files["source"])
    tag = tokenizer.encode("<s>")[0]
    assert tokenizer.pieces[tag] == "▁<s>"
    plan = BatchPlan(index.source_length, index.target_length, 512, seed=1)
    counts = collections.Counter()
    tagged = 0
    for batch in training_batches(index, plan, range(len(plan))):
        rows = [tuple(row) for row in batch["source"].numpy().tolist() if any(row)]
        tagged += sum(row[0] == tag for row in rows)
        counts.update(rows)
    total = sum(counts.values())
    assert total == len(index)
    assert tagged / total == pytest.approx(0.75, rel=0.01)
    texts = collections.Counter()
    for row, count in counts.items():
        texts[tokenizer.decode([i for i in row if i])] += count
    assert all(count == 1 for text, count in texts.items() if text[0] == "l")
    assert len(texts) == 900 + 40


def test_rules_look_at_sources_without_their_tag(tmp_path):
    """A source that is only a tag would be empty."""
    pairs = [("", "x"), ("same", "same"), ("the dog", "der Hund"), ("dog", "Hund")]
    mixed = problem(Corpus("a", lambda: pairs * 20, tag="<a>"), corpus("b", 20))
    mixed = mixed.replace(cleaning=Cleaning(identical=True))
    mixed = mixed.replace(sources={"train": mixed.sources["train"]})
    manifest = generate(mixed, tmp_path, workers=1)
    dropped = {"empty": 20, "identical": 20, "over_length": 0}
    assert manifest.dropped["train"] | {"over_length": 0} == dropped
    assert manifest.corpora["train"]["a"]["examples"] == 40
    sources, _ = decoded_examples(tmp_path, mixed)
    assert {pair[0] for pair in sources["train a"]()} == {"the dog", "dog"}
    assert len(list(sources["train b"]())) == 20


def test_a_tag_must_be_a_token_and_does_not_suit_the_other_direction(tmp_path):
    mixed = problem(corpus("a", 40, tag="<a>"))
    generate(mixed, tmp_path, workers=1)
    assert config_for(mixed, "tiny", tmp_path, 0).tags == ["<a>"]
    message = r"have tags \(<a>\), which would be in"
    refused(message, config_for, mixed.reversed(), "tiny", tmp_path, 0)
    test = {"test": Mixture((corpus("c", 4, tag="<2xx>"),))}
    message = "the tag '<2xx>' is not a token of the vocab"
    refused(message, generate, mixed.replace(sources=test), tmp_path, workers=1)


def test_the_vocabulary_sees_the_shares(tmp_path, monkeypatch):
    monkeypatch.setattr(SentencePieceTokenizer, "training_pairs", 100)
    seen = []
    train = vocabulary.train_vocabulary

    def watched(problem, texts, path, in_subprocess):
        seen.extend(texts)
        train(problem, seen, path, in_subprocess)

    monkeypatch.setattr(vocabulary, "train_vocabulary", watched)
    mixed = problem(corpus("a", 5000, 1.0), corpus("b", 80, 4.0), corpus("c", 9, 5.0))
    generate(mixed, tmp_path, workers=1)
    counts = collections.Counter(text.split()[0] for text in seen)
    assert (counts["a"], counts["b"], counts["c"]) == (10, 40, 9)


def test_a_tag_moves_the_links():
    pair = AlignedPair("the dog", "der Hund", ((0, 0), (1, 1)))
    (tagged,) = Corpus("a", lambda: [pair], tag="<2de>")()
    assert tagged == ("<2de> the dog", "der Hund")
    assert tagged.links == ((1, 0), (2, 1))


ONE = corpus("a", 1)
WEIGHTED = corpus("b", 1, 2.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Corpus("a", list, -1.0), "corpus 'a': its weight must be positive"),
        (lambda: Corpus("a", list, tag="<a b>"), "'<a b>' is not one word"),
        (lambda: Mixture((ONE, ONE)), "the name 'a'"),
        (lambda: Mixture((WEIGHTED, ONE)), "corpus 'b' has a weight and 'a' has none"),
        (lambda: Mixture((WEIGHTED,), temperature=2), "excludes weights"),
        (lambda: Mixture((ONE,), temperature=0.5), "at least 1"),
    ],
)
def test_what_a_mixture_refuses(make, message):
    refused(message, make)


TOML = """
temperature = 2

[[train]]
source = "a.en"
target = "a.de"
tag = "<2de>"

[[train]]
name = "memory"
pairs = "b.tsv"

[[dev]]
source = "a.en"
target = "a.de"
tag = "<2de>"
"""


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "a.en", *(f"dog {i}" for i in range(64)))
    write(tmp_path / "a.de", *(f"Hund {i}" for i in range(64)))
    write(tmp_path / "b.tsv", *(f"cat {i}\tchat {i}" for i in range(16)))
    (tmp_path / "mix.toml").write_text(TOML)
    return tmp_path


def test_a_file_that_names_corpora(folder, capfd):
    sources = read_mixture(folder / "mix.toml")
    assert next(iter(sources["dev"]())) == ("<2de> dog 0", "Hund 0")
    train = list(sources["train"]())
    assert train[63:65] == [("<2de> dog 63", "Hund 63"), ("cat 0", "chat 0")]
    argv = ("datagen", "--problem", "translate_text", "--data_dir", folder / "d")
    argv += ("--mixture", folder / "mix.toml", "--vocab_size", 300)
    assert run_json(capfd, *argv)["examples"] == {"train": 80, "dev": 64}
    manifest = Manifest.open(folder / "d", "translate_text")
    assert manifest.tags == ("<2de>",)
    shares = {
        name: corpus["share"] for name, corpus in manifest.corpora["train"].items()
    }
    assert shares == pytest.approx({"a.en": 8 / 12, "memory": 4 / 12})
    assert manifest.corpora["dev"]["a.en"]["share"] == 1.0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[[train]]", "[[train", "is not TOML"),
        ("temperature", "temp", "there is 'temp', not temperature"),
        ("name =", "nam =", "a corpus has no 'nam'; it has"),
        ('"memory"', "3", "name is a text, not 3"),
        ('pairs = "b.tsv"', "weight = true", "weight is a number, not True"),
        ('pairs = "b.tsv"', 'source = "a.en"', "needs source and target"),
        ('pairs = "b.tsv"', 'pairs = "b.tmx"', "b.tmx: which languages"),
        ("[[dev]]", "[[dev]]\nweight = 2", r"a weight in \[\[dev\]\]"),
        (TOML, "", r"there is no \[\[train\]\]"),
    ],
)
def test_faults_in_the_file(folder, old, new, message):
    (folder / "mix.toml").write_text(TOML.replace(old, new, 1))
    assert str(folder / "mix.toml") in refused(
        message, read_mixture, folder / "mix.toml"
    )
    refused("cannot read", read_mixture, folder / "none.toml")

"""SentencePiece keeps every character, in Python and in the graph alike."""

import collections
import os
import pickle

import numpy as np
import pytest
import tensorflow as tf
from helpers.errors import refused
from helpers.tokenizer_checks import (
    LINES,
    Roundtrip,
    assert_graph_equals_python,
    assert_runs_on_cpu,
    assert_survives_saving,
    random_ids,
    random_lines,
)

from t2t_keras.text.sentence_piece import SentencePieceTokenizer
from t2t_keras.text.tokenizer import load_tokenizer
from t2t_keras.text.vocabulary import EOS, PAD, UNK

CORPUS = [
    f"{subject} {does} {phrase}."
    for subject in ("A dog", "Two dogs", "The old man", "Der Hund", "Das Mädchen")
    for does in ("sees", "is  chasing", "sieht", "jagt")
    for phrase in ("a ball", "the children", "einen Ball", "die Kinder 1234")
]
SYMBOLS = (
    *("S", "/S", "NP", "/NP", "NNP", "NNPS", "VP", "VBZ", "/VP", "SBAR", "SBARQ", "."),
    *(",", "``", "''", '"', "$", "PRP$", "-LRB-", "X" * 40),
)
TREES = ["S NP NNP /NP VP VBZ /VP . /S"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocab") / "text.spm"
    SentencePieceTokenizer.train(CORPUS, path, 400)
    return load_tokenizer(path)


@pytest.fixture(scope="module")
def tree_tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocab") / "trees.spm"
    SentencePieceTokenizer.train(TREES, path, 400, SYMBOLS)
    return load_tokenizer(path)


@pytest.mark.parametrize("line", LINES)
def test_decode_undoes_encode(tokenizer, tree_tokenizer, line):
    for piece_tokenizer in (tokenizer, tree_tokenizer):
        assert piece_tokenizer.decode(piece_tokenizer.encode(line)) == line


def test_ids(tokenizer):
    assert tokenizer.vocab_size == 400
    assert tokenizer.encode("") == [EOS]
    encoded = tokenizer.encode_batch(LINES)
    assert encoded == [tokenizer.encode(line) for line in LINES]
    for ids in encoded:
        assert ids[-1] == EOS
        assert not {PAD, EOS, UNK} & set(ids[:-1])


def test_decode_reads_up_to_the_first_end(tokenizer):
    ids = tokenizer.encode("A dog")
    ignored = tokenizer.encode("sees")
    padded = np.array([PAD, *ids[:-1], PAD, -1, 400, EOS, *ignored])
    assert tokenizer.decode(padded) == "A dog"
    assert tokenizer.decode([]) == tokenizer.decode([EOS, *ignored]) == ""


def test_pickles_and_saves(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "copy.spm")
    copy = SentencePieceTokenizer(tmp_path / "copy.spm")
    for restored in (copy, pickle.loads(pickle.dumps(tokenizer))):
        assert restored.encode_batch(CORPUS) == tokenizer.encode_batch(CORPUS)


def test_a_symbol_is_one_piece(tree_tokenizer):
    assert len(tree_tokenizer.encode("S NP NNP /NP")) == 4 + 1
    ids = [tree_tokenizer.encode(symbol) for symbol in SYMBOLS]
    assert all(len(row) == 2 for row in ids)
    assert len({row[0] for row in ids}) == len(SYMBOLS)
    together = tree_tokenizer.encode(" ".join(SYMBOLS))
    assert together == [row[0] for row in ids] + [EOS]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
def test_the_same_texts_give_the_same_bytes_on_any_number_of_cores(tmp_path):
    cores = os.sched_getaffinity(0)
    SentencePieceTokenizer.train(iter(CORPUS), tmp_path / "many.spm", 400)
    os.sched_setaffinity(0, {min(cores)})
    try:
        SentencePieceTokenizer.train(CORPUS, tmp_path / "one.spm", 400)
    finally:
        os.sched_setaffinity(0, cores)
    many, single = (tmp_path / name for name in ("many.spm", "one.spm"))
    assert many.read_bytes() == single.read_bytes()


@pytest.mark.parametrize(
    ("texts", "size", "symbols", "message"),
    [
        ([], 400, (), "no text to train"),
        (["", ""], 400, (), "no text to train"),
        (CORPUS, 270, (), r"270 tokens is too small for .* at least \d+; raise"),
        (CORPUS, 2, (), "2 tokens is too small"),
        (CORPUS, 0, (), "0 tokens is too small"),
        (TREES, 400, ("S", "N P"), "'N P' is not one word"),
        (TREES, 400, ("",), "'' is not one word"),
    ],
)
def test_training_errors(tmp_path, texts, size, symbols, message):
    train = SentencePieceTokenizer.train
    refused(message, train, texts, tmp_path / "v.spm", size, symbols)
    assert os.listdir(tmp_path) == []


def test_files_without_a_vocabulary_are_refused(tmp_path):
    (tmp_path / "text.spm").write_text("hello")
    for name, message in (
        ("absent.spm", r"cannot read the vocabulary .*absent\.spm"),
        ("text.spm", "text.spm is not a SentencePiece model"),
        ("vocab.txt", "vocab.txt: .* ends in .spm.* no reader"),
    ):
        refused(message, load_tokenizer, tmp_path / name)


@pytest.mark.parametrize("fixture_name", ["tokenizer", "tree_tokenizer"])
def test_graph_equals_python_on_strange_lines(fixture_name, request):
    tokenizer = request.getfixturevalue(fixture_name)
    ids = random_ids(tokenizer, 2000, favoured=range(3, 262))
    lines = [*LINES, *CORPUS, *random_lines(2000)]
    assert_graph_equals_python(tokenizer, tokenizer.graph(), lines, ids)


def test_graph_is_saved_and_runs_on_the_cpu(tokenizer, tmp_path):
    assert_survives_saving(tokenizer, tmp_path)
    assert_runs_on_cpu(tokenizer.graph())


def test_vocabularies_that_one_process_loads_are_kept_apart(
    tokenizer, tree_tokenizer, tmp_path
):
    """The two of an export, and those of two exports."""
    tokenizers = (tokenizer, tree_tokenizer)
    expected = [vocabulary.encode("the dog") for vocabulary in tokenizers]
    assert expected[0] != expected[1]
    modules = []
    for name, order in (("a", tokenizers), ("b", tokenizers[::-1])):
        module = tf.Module()
        module.parts = [Roundtrip(vocabulary.graph()) for vocabulary in order]
        tf.saved_model.save(module, str(tmp_path / name))
        modules.append(tf.saved_model.load(str(tmp_path / name)))
    texts = tf.constant(["the dog"])
    for module, ids in zip(modules, (expected, expected[::-1]), strict=True):
        encoded = [part.encode(texts).numpy()[0].tolist() for part in module.parts]
        assert encoded == ids


# BPE-dropout: the same texts in other pieces.


@pytest.fixture(scope="module")
def ab_tokenizer(tmp_path_factory):
    """A vocabulary of ab, _ab and _a, in this order."""
    path = tmp_path_factory.mktemp("vocab") / "ab.spm"
    SentencePieceTokenizer.train(["ab ab ab"] * 9, path, 300, symbols=["xyz"])
    return SentencePieceTokenizer(path)


def test_every_merge_is_left_out_with_the_probability(ab_tokenizer):
    """Of _ a b the merges are a b -> ab, or else _ a -> _a, and then _ab or none."""
    assert len(ab_tokenizer.encode("ab")) == 2
    segmentations = [ab_tokenizer.sample("ab", 0.3, seed) for seed in range(4000)]
    lengths = collections.Counter(len(ids) - 1 for ids in segmentations)
    probability_of_one = 0.7
    probability_of_two = 0.3 * 0.7  # a b is merged; it is overlooked, but _ a is not
    expected = {1: probability_of_one * 0.7 + probability_of_two * 0.7, 3: 0.3 * 0.3}
    for length, probability in expected.items():
        assert lengths[length] / 4000 == pytest.approx(probability, abs=0.03)
    assert {ab_tokenizer.decode(ids) for ids in segmentations} == {"ab"}
    assert segmentations == [
        ab_tokenizer.sample("ab", 0.3, seed) for seed in range(4000)
    ]


def test_without_dropout_the_pieces_match_sentencepiece(tmp_path):
    SentencePieceTokenizer.train(
        LINES, tmp_path / "a.spm", 420, symbols=["NP", "NPS", "/S"]
    )
    ab_tokenizer = SentencePieceTokenizer(tmp_path / "a.spm")
    for line in [*LINES, *random_lines(6), "NPS NP NPX /S aNP", "NP  /S"]:
        assert ab_tokenizer.sample(line, 0.0, 1) == ab_tokenizer.encode(line), line
        for seed in range(3):
            assert ab_tokenizer.decode(ab_tokenizer.sample(line, 0.3, seed)) == line


def test_symbols_remain_whole(ab_tokenizer):
    symbol = ab_tokenizer.encode("xyz")
    assert len(symbol) == 2
    assert all(ab_tokenizer.sample("xyz", 0.9, seed) == symbol for seed in range(50))

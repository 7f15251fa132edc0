"""Bracket symbols: the constraint of the search, and the repair of other outputs."""

import functools
import random
import re

import numpy as np
import pytest
import tensorflow as tf
from helpers.decoding_models import (
    EOS,
    TableModel,
    all_targets,
    log_probs_of,
    numpy_of,
    outputs,
    penalty,
    searcher,
    transformer,
)
from helpers.errors import refused

from t2t_keras.decoding.beam_search import beam_search
from t2t_keras.decoding.constraint import AllOf, BannedTokens
from t2t_keras.problems.parsing.balanced_brackets import (
    MAX_DEPTH,
    MAX_OPENERS,
    BalancedBrackets,
    BracketTokens,
)
from t2t_keras.problems.parsing.graph import word_kinds
from t2t_keras.problems.parsing.linearise import SYMBOLS, Brackets, linearise, restore
from t2t_keras.problems.parsing.tree import parse_tree

# PAD, EOS, and at 2 and 7 pieces that are not symbols.
PIECES = ("", "", "?", "S", "/S", "n", "v", "?", "P", "/P")
VOCAB = len(PIECES)
WORD = PIECES.index("n")


class Vocabulary:
    """A tokenizer of whole words."""

    def __init__(self, pieces=PIECES):
        self.pieces = pieces
        self.vocab_size = len(pieces)

    def encode(self, text):
        if text in self.pieces:
            return [self.pieces.index(text), EOS]
        return [*text, EOS]


TABLES = BracketTokens.from_symbols(("S", "/S", "P", "/P", "n", "v"), Vocabulary())


def is_tree(ids, words):
    """Whether the pieces are a tree over `words` words: its nodes fold into one."""
    *ids, last_id = ids or [0]
    text = "".join(f"{PIECES[i]} " for i in ids)
    folded, leaves = re.subn(r"\b[nv] ", "x ", text)
    replacements = 1
    while replacements:
        folded, replacements = re.subn(r"(?<!/)([SP]) (x )+/\1 ", "x ", folded)
    return (last_id, folded, leaves) == (EOS, "x ", words)


@functools.cache
def every_target(limit):
    """All sequences of the symbols but "v", ending in EOS."""
    symbols = [3, 4, 5, 8, 9]
    targets = []
    for *ids, _ in all_targets(7, limit):
        targets.append([*(symbols[i - 2] for i in ids), EOS])
    return targets


def constraint(words, limits):
    kinds = tf.sequence_mask(words, dtype=tf.int32)
    return BalancedBrackets(TABLES, kinds, tf.constant(limits, tf.int32))


def test_equals_the_best_of_all_trees():
    """A beam that holds everything finds what exhaustive search finds."""
    model = transformer(VOCAB)
    softmax = model.softmax_embedding.weights[0]
    noise = np.random.default_rng(0).normal(size=softmax.shape)
    softmax.assign_add(noise.astype("float32"))
    sources = [[3, 4, 2, 5, 1], [2, 1, 0, 0, 0], [5, 5, 1, 0, 0]]
    words = [2, 1, 3]
    limit = 8
    n = 5
    allowed = AllOf([constraint(words, [limit] * 3), BannedTokens([6], VOCAB)])
    search = searcher(model, allowed, trace=False)
    hypotheses = search(sources, limit, beam_size=600, alpha=0.3, n_best=n)
    for row, source in enumerate(sources):
        trees = [
            target
            for target in every_target(limit)
            if target.count(WORD) == words[row] and is_tree(target, words[row])
        ]
        assert len(trees) >= n
        scores = log_probs_of(model, source, trees)
        scores = scores / [penalty(len(t), 0.3) for t in trees]
        best = np.argsort(-scores)[:n]
        assert outputs(hypotheses, row) == [trees[i] for i in best]
        np.testing.assert_allclose(hypotheses.scores[row], scores[best], atol=1e-4)


def random_table(count, steps, seed, scale=3.0, vocab=VOCAB):
    """Logits of random sentences."""
    generator = np.random.default_rng(seed)
    table = generator.normal(scale=scale, size=(count, steps, vocab, vocab))
    return TableModel(tf.constant(table, tf.float32))


def tree_searcher(model, beam_size, alpha):
    """The constrained search of a model, traced once, all hypotheses returned."""
    row = tf.TensorSpec([None], tf.int32)

    @tf.function(input_signature=[row, row, row], autograph=False)
    def search(sentences, words, limits):
        kinds = tf.sequence_mask(words, dtype=tf.int32)
        options = {"beam_size": beam_size, "n_best": beam_size, "max_length": limits}
        options |= {"constraint": BalancedBrackets(TABLES, kinds, limits)}
        return beam_search(model, sentences[:, None], alpha=alpha, **options)

    return lambda *arrays: numpy_of(search(*(np.array(a, np.int32) for a in arrays)))


@pytest.mark.parametrize("beam_size", [1, 4])
def test_any_model_yields_trees(beam_size):
    """Thousands of outputs, of models that would write anything."""
    rows = 400
    longest = 40
    generator = np.random.default_rng(beam_size)
    words = generator.integers(1, 12, rows)
    limits = words + 3 + generator.integers(0, longest - 15, rows)
    model = random_table(rows, longest, beam_size)
    hypotheses = tree_searcher(model, beam_size, 0.3)(range(rows), words, limits)
    assert hypotheses.lengths[:, 0].all()
    targets = [(t, row) for row in range(rows) for t in outputs(hypotheses, row) if t]
    assert len(targets) > 0.9 * rows * beam_size
    for target, row in targets:
        assert is_tree(target, words[row]), [PIECES[i] for i in target]
        assert len(target) <= limits[row]


def test_a_model_of_openers_only_is_stopped_in_time():
    """Chains end at the constraint's bounds, and all words still have their place."""
    logits = np.zeros((1, 200, VOCAB, VOCAB), np.float32)
    logits[..., [3, 8]] = [50, 49]
    search = tree_searcher(TableModel(tf.constant(logits)), 2, 0.0)
    for room in (3, 6, 150):
        target = outputs(search([0], [20], [20 + room]), 0)[0]
        assert is_tree(target, 20)
        openers = np.isin(target, [3, 8])
        assert openers[: min(MAX_OPENERS, (room - 1) // 2)].all()
        assert not openers[: MAX_OPENERS + 1].all()
        depth = np.cumsum(openers) - np.cumsum(np.isin(target, [4, 9]))
        assert depth.max() == min(MAX_DEPTH, (room - 1) // 2)


def test_punctuation_has_the_tags_of_punctuation():
    """Whatever the model's probabilities are."""
    pieces = ("", "", "S", "/S", "NN", "VB", ",", "``", "-LRB-")
    tables = BracketTokens.from_symbols(pieces[2:], Vocabulary(pieces))
    words = ["a", ",", "-", "(", "--", "]", "c", "-"]
    kind_of = {"NN": "n", "VB": "n", ",": "m", "``": "m", "-LRB-": "b"}
    kinds = word_kinds(tf.ragged.constant([words] * 20))
    model = random_table(20, 25, 3, vocab=len(pieces))
    limits = tf.fill([20], 25)
    options = {"beam_size": 3, "alpha": 0.3, "max_length": limits}
    options["constraint"] = BalancedBrackets(tables, kinds, limits)
    hypotheses = numpy_of(beam_search(model, tf.range(20)[:, None], **options))
    for row in range(20):
        (target,) = outputs(hypotheses, row)
        tags = [pieces[i] for i in target if tables.leaf[i]]
        assert "".join(kind_of[tag] for tag in tags) == "nmnbmbnn"


def test_symbols_that_are_not_brackets_are_refused():
    message = "needs a problem whose symbols are opening"
    refused(message, BracketTokens.from_symbols, ("S", "n"), Vocabulary())
    message = "needs symbols of one token each, but 'XP'"
    refused(message, BracketTokens.from_symbols, ("S", "/S", "n", "XP"), Vocabulary())


BRACKETS = Brackets.from_symbols(SYMBOLS)


REPAIRS = [
    # Trees, which stay as they are; also with a label that is not the problem's.
    ("a b .", "S NP NN /NP VP VB /VP . /S", None),
    ("a b", "ODD NN NP NN /NP /ODD", None),
    # Left open: closed with the constituent around, or at the end.
    ("a b", "S NP NN VP VB /VP /S", "S NP NN VP VB /VP /NP /S"),
    # Closers of nothing, and constituents of nothing.
    ("a b", "S NP NN /NP /VP /NP NN /S /S", "S NP NN /NP NN /S"),
    # Leaves too many, leaves too few.
    ("a", "S NP NN /NP VP VB /VP . /S", "S NP NN /NP /S"),
    ("a b , .", "S NP NN /NP /S", "S NP NN /NP NN , . /S"),
    # Of another vocabulary, or of characters that would break the brackets.
    ("a .", "S ( junk /junk) /S", "S NN . /S"),
]


@pytest.mark.parametrize(("words", "symbols", "repaired"), REPAIRS)
def test_repair(words, symbols, repaired):
    result = BRACKETS.repair(words.split(), symbols.split())
    assert " ".join(result) == (repaired or symbols)


def test_any_symbols_are_repaired_to_a_tree_with_exactly_the_words():
    generator = random.Random(1)
    symbols = ("S", "NP", "/S", "/NP", "NN", ".", "X1", "/X1", "(", "/)", "/", "((")
    for _ in range(3_000):
        words = [generator.choice("ab.,'") for _ in range(generator.randint(1, 6))]
        output = generator.choices(symbols, k=generator.randint(0, 14))
        fixed = BRACKETS.repair(words, output)
        tree = restore(words, fixed)
        assert linearise(tree) == fixed
        assert tree.words() == words
        assert parse_tree(tree.format()) == tree
        assert BRACKETS.repair(words, fixed) == fixed

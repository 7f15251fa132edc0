"""Texts that are too long are split and joined, and nothing is lost."""

import random

import pytest
import tensorflow as tf
from tokenizer_checks import LINES as HARD_LINES
from tokenizer_checks import random_lines

from t2t_keras.text.sentence_piece import SentencePieceTokenizer
from t2t_keras.text.sentences import join_outputs, mark_sentence_ends, split_long_text

EOS = 1

ENGLISH = (
    "Dr. Smith came at 10. He said: “Yes!” Then? (No.) J. S. Bach, Mrs. X... left."
)

SPLIT = {
    ENGLISH: [
        *("Dr. Smith came at 10. He said: “Yes!”", " Then?", " (No.)"),
        *(" J. S. Bach, Mrs. X...", " left."),
    ],
    "Er kam am 3. Mai, z. B. „ja.“ Dann?": ["Er kam am 3. Mai, z. B. „ja.“", " Dann?"],
    "今日は。元気？「はい。」はい": ["今日は。", "元気？", "「はい。」", "はい"],
    "مرحبا؟ نعم. لا۔ اچھا": ["مرحبا؟", " نعم.", " لا۔", " اچھا"],
    "राम आया। सीता गई॥ ठीक": ["राम आया।", " सीता गई॥", " ठीक"],
    "3.5 and e.g. this, a.b.c! x.y": ["3.5 and e.g. this, a.b.c!", " x.y"],
    "a\u200b.\u200b bb.\u3000c 🙂. d": ["a\u200b.\u200b bb.", "\u3000c 🙂.", " d"],
    "a\nbb\nc.\nd": ["a", " bb", " c.", " d"],
    "": [""],
    "...": ["..."],
    "Nr. 5 vs. (Mr. X) “Dr. Y”. 7": ["Nr. 5 vs. (Mr. X) “Dr. Y”.", " 7"],
    "the Xvs. 123. 12. xa. Ж. б": ["the Xvs.", " 123.", " 12. xa.", " Ж. б"],
    "a!?）」 b。) c‼ d": ["a!?）」", " b。)", " c‼", " d"],
}


def strings(texts):
    return [text.decode() for text in texts.numpy()]


def sentences(text):
    return tf.strings.split(mark_sentence_ends(tf.constant(text)), "\n")


@pytest.mark.parametrize("text", SPLIT)
def test_sentence_ends(text):
    assert strings(sentences(text)) == SPLIT[text]


def test_every_mark_and_quote_is_known():
    closing = "\"'‘’‚‛“”«»‹›)]}〉》」』】〕＂＇）］｝｣"
    ends = [f"ab{mark} b" for mark in ".!?…؟۔।॥։።‼⁇⁈⁉"]
    ends += [f"ab{mark}b" for mark in "。！？｡"]
    ends += [f"ab{mark}{quote} b" for mark in ".。" for quote in closing]
    no_ends = [f"{opening}Dr. b" for opening in "-([{\"'‘’‚‛“”„‟«»."]
    marked = strings(mark_sentence_ends(tf.constant([*ends, *no_ends])))
    counts = [text.count("\n") for text in marked]
    assert counts == [1] * len(ends) + [0] * len(no_ends)


def letters(texts):
    """A tokenizer: each character but white space is a token."""
    ids = [[ord(c) for c in text if not c.isspace()] for text in strings(texts)]
    return tf.ragged.constant([[*row, EOS] for row in ids], tf.int32, ragged_rank=1)


def parts_by_hand(text, most):
    """Greedy parts, each the longest that ends a sentence, or else a word."""
    words = []  # (the word, whether it ends a sentence)
    for sentence in strings(sentences(text)):
        words += [(word, False) for word in sentence.split()]
        if words:
            words[-1] = (words[-1][0], True)
    parts = []
    while words:
        size, best, end = 0, 0, 0
        for i, (word, is_end) in enumerate(words, 1):
            size += len(word)
            if size > most:
                break
            best, end = i, i if is_end else end
        stop = end or best or 1
        part = "".join(word for word, _ in words[:stop])
        parts += [part[i : i + most] for i in range(0, len(part), most)]
        words = words[stop:]
    return parts


@pytest.mark.parametrize("most", [1, 7, 30])
def test_parts_are_as_long_as_possible(most):
    pick = random.Random(most)
    units = [*"ab.!。 ", "  ", ". ", " Mr", "\n", "\t", "日本語", "verylongword " * 2]
    texts = ["".join(pick.choices(units, k=pick.randrange(1, 60))) for _ in range(25)]
    for text in [ENGLISH, *texts]:
        rows = split_long_text(tf.constant(text), letters, most + 1).to_list()
        assert all(row[-1] == EOS for row in rows)
        found = ["".join(map(chr, row[:-1])) for row in rows]
        assert found == parts_by_hand(text, most), repr(text)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    texts = [*SPLIT, "the old dog reads a book . it rains ."] * 3
    path = tmp_path_factory.mktemp("vocab") / "v.spm"
    SentencePieceTokenizer.train(texts, path, 400)
    return SentencePieceTokenizer(path)


def visible(text):
    return "".join(text.split())


def test_no_text_is_lost(tokenizer):
    """In the graph as in Python; every part obeys the limit."""
    texts = [*HARD_LINES, *random_lines(20), *(text * 9 for text in SPLIT)]
    texts = [text.replace("\n", " ") for text in texts if text.strip()]
    graph = tokenizer.graph()

    def encode(texts):
        ids = tokenizer.encode_batch(strings(texts))
        return tf.ragged.constant(ids, tf.int32, ragged_rank=1)

    @tf.function(input_signature=[tf.TensorSpec([], tf.string)])
    def in_graph(text):
        return split_long_text(text, graph.encode, 20)

    for text in texts:
        parts = split_long_text(tf.constant(text), encode, 20).to_list()
        assert max(map(len, parts)) <= 20
        assert parts == in_graph(tf.constant(text)).to_list()
        if max(map(len, parts)) < 20:  # no word was cut
            assert visible("".join(map(tokenizer.decode, parts))) == visible(text)
    # A word that is too long: its parts follow each other.
    word = "x日ж" * 40
    parts = split_long_text(tf.constant(f"the {word} dog"), encode, 20).to_list()
    tokens = [token for part in parts for token in part[:-1]]
    assert visible(tokenizer.decode([*tokens, EOS])) == f"the{word}dog"


def test_all_parts_have_the_tag_of_their_text(tmp_path):
    texts = ["the old dog reads a book . it rains ."] * 3
    tags = ["<2de>", "<2f.r>"]
    SentencePieceTokenizer.train(texts, tmp_path / "v.spm", 400, symbols=tags)
    tokenizer = SentencePieceTokenizer(tmp_path / "v.spm")
    graph = tokenizer.graph()

    @tf.function(input_signature=[tf.TensorSpec([], tf.string)])
    def in_graph(text):
        return split_long_text(text, graph.encode, 20, tags)

    long = "It rains . " * 9
    for text, tag in [
        (f"<2de> {long}", "<2de> "),
        (f"<2f.r>  {long}", "<2f.r> "),
        (f"<2fxr> {long}", ""),
        (f"the <2de> {long}", ""),
        (long, ""),
    ]:
        parts = in_graph(tf.constant(text)).to_list()
        assert max(map(len, parts)) <= 20
        decoded = [tokenizer.decode(part) for part in parts]
        assert len(decoded) > 2 and all(part.startswith(tag) for part in decoded)
        assert parts == tokenizer.encode_batch(decoded)  # also one token each
        joined = "".join(part.removeprefix(tag) for part in decoded)
        assert visible(joined) == visible(text.removeprefix(tag))


def test_outputs_are_joined():
    parts = [["Ein Hund.", "Ja."], ["", "x", "", "y"], ["犬。", "猫。", "a"], [""], []]
    joined = join_outputs(tf.ragged.constant(parts, tf.string))
    assert strings(joined) == ["Ein Hund. Ja.", "x y", "犬。猫。a", "", ""]

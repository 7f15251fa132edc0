"""Texts are split into sentences, or to fit, and joined; nothing is lost."""

import random
import time

import pytest
import tensorflow as tf
from helpers.tokenizer_checks import LINES as HARD_LINES
from helpers.tokenizer_checks import random_lines

from t2t_keras.text import sentences
from t2t_keras.text.sentence_piece import SentencePieceTokenizer
from t2t_keras.text.sentences_graph import (
    join_outputs_graph,
    mark_sentence_ends_graph,
    split_long_text_graph,
    split_sentences_graph,
)

EOS = 1

ENGLISH = (
    "Dr. Smith came at 10. He said: “Yes!” Then? (No.) J. S. Bach, Mrs. X... left."
)

# "|" stands between sentences.
SENTENCES = """
Dr. Smith came at 10. He said: “Yes!”| Then?| (No.)| J. S. Bach, Mrs. X... left.
Mr. Smith, Mrs. Jones and Prof. Lee met Gen. Grant at St. Paul.| It was 3.5 km off.
See e.g. Fig. 3, Vol. II, No. 5, approx. 20 pp. in all, i.e. much.| Yes.
The U.S. President spoke at 5 p.m. in Washington, D.C. on Monday.| He left.
The answer is no.| Then he left.| No.| It was No. 5.
He works at Apple Inc. in California.| It rains.
J. R. R. Tolkien wrote it.| I read it.
Wait... what?| Well... I don't know.| So … she came.
What?!| No way!| Really?| Yes!!!| Go!
"Stop!" he said.| “Really?” she asked.| He left (at last.)| She stayed.
He said “No.”| “Yes,” she said.| [It rained.]| The end
No mark at the end
Hello. 🙂| Bye! :)
Hello. !!!
... Then it rained.
1. The dog runs.| 2. The cat sits.
Visit www.example.com or a.b.c! today.| Pay $3.50.| Then go.
THE DOG RUNS.| THE CAT SITS.
hello there.| how are you?| see e.g. this, approx. five... or so.| fine
a dog runs .| the man , who sits , left .| it is 3.5 km !| why ?
he said : " yes . " the man left .| it rained . . . and then ?
a man runs.| the man sits.
Er kam am 3. Oktober, z. B. um 5 Uhr, bzw. am 19. Mai, ca. 3 Std. später.| Dann?
Das 100. Tor fiel, d. h. usw. ging es weiter.| „Ja.“| Ludwig XIV. und Abb. 3 fehlen.
„Wirklich?“, fragte er.| „Nein!“ – rief sie.| Vgl. S. 5, Nr. 3, Dipl. Ing. Maier.
M. Dupont et Mme. Martin sont là.| « Quoi ? » dit-il.| « Rien. »| Il partit.
El Sr. García vive en EE. UU. con la Sra. Pérez.| ¿Qué tal?| ¡Hola!
Il sig. Rossi e il dott. Bianchi.| Sì.
А. С. Пушкин родился в 1799 г. в Москве, т. е. там.| Да.
Dhr. Jansen kwam, bijv. om 5 uur.| Ja.
يا د. أحمد.| كيف حالك؟| نعم.| لا۔| اچھا
राम आया।| सीता गई॥| ठीक
今日は。|元気？|「はい。」と言った。|「はい。」|「いいえ。」
他说：“你好。”然后走了。|她哭了！|（真的？）|「是……吗？」
次に行く．|π は 3．14。
Բարեւ։| Այո։
ab!| (cd!)| 'ef!'| »gh!«| ij
"""
SPLIT = {
    line.replace("|", ""): line.split("|") for line in SENTENCES.strip().split("\n")
}
SPLIT |= {
    "a\nBb\nc.\nd": ["a", " Bb", " c.", " d"],
    "": [""],
    "...": ["..."],
    "a\u200b.\u200b Ba.\u3000C 🙂. d": ["a\u200b.\u200b Ba.", "\u3000C 🙂. d"],
}


def strings(texts):
    return [text.decode() for text in texts.numpy()]


def sentences_of(text):
    return tf.strings.split(mark_sentence_ends_graph(tf.constant([text])), "\n")[0]


@pytest.mark.parametrize("text", SPLIT)
def test_sentence_ends(text):
    assert sentences.mark_sentence_ends(text).split("\n") == SPLIT[text]
    assert strings(sentences_of(text)) == SPLIT[text]


def test_every_mark_and_quote_is_known():
    closing = "\"'‘’‚‛“”«»‹›)]}〉》」』】〕＂＇）］｝｣"
    texts = [f"Ab{mark} B" for mark in ".!?…؟۔।॥։።‼⁇⁈⁉።។᠃။" if mark != "…"]
    texts += [f"Ab{mark}b" for mark in "。！？｡"]
    texts += [f"Ab.{quote} B" for quote in closing]
    texts += [f"Ab。{quote} B" for quote in "\"'’”)]〉》」』】〕＂＇）］｝｣"]
    no_ends = [f"{opening}Dr. B" for opening in "-([{\"'‘’‚‛“”„‟«»."]
    no_ends += ["Ab… B", "Ab... B", "Ab.B", "Ab!", "Ab. b", "Ab. , B", "A. B", "12. B"]
    marked = strings(mark_sentence_ends_graph(tf.constant([*texts, *no_ends])))
    counts = [text.count("\n") for text in marked]
    assert counts == [1] * len(texts) + [0] * len(no_ends)


def random_texts(count):
    """Texts of marks, quotes and short words, which are hard to split."""
    units = [*"ab.!?。！．1A “”\"'()-…é", ". ", ".", " . ", "...", "Mr.", " 3. ", "\n"]
    units += [*"日「」🙂É»«Жж\xa0", "No. ", "II. ", ", ", "؟ ", "<2de> ", "<2f.r> "]
    pick = random.Random(1)
    return ["".join(pick.choices(units, k=pick.randrange(1, 40))) for _ in range(count)]


@pytest.mark.parametrize("tags", [(), ("<2de>", "<2f.r>")])
def test_python_and_the_graph_find_the_same_sentences(tags):
    texts = [*SPLIT, *HARD_LINES, *random_lines(50), *random_texts(2000)]
    texts += [f"<2de> {text}" for text in SPLIT]
    by_graph = split_sentences_graph(tf.constant(texts), tags).to_list()
    for text, graph in zip(texts, by_graph, strict=True):
        by_python = sentences.split_sentences(text, tags)
        assert [part.decode() for part in graph] == by_python
        assert by_python == [text] or all(part.strip() for part in by_python)
        if not tags:
            assert visible("".join(by_python)) == visible(text)


def test_all_sentences_have_the_tag_of_their_text():
    tags = ["<2de>", "<2fr>"]
    for text, parts in {
        "<2de> It rains. He left.": ["<2de> It rains.", "<2de> He left."],
        "<2fr>  It rains!\nIt is late": ["<2fr> It rains!", "<2fr> It is late"],
        "<2de>  It rains.": ["<2de>  It rains."],
        "The <2de> dog. It rains.": ["The <2de> dog.", "It rains."],
    }.items():
        assert sentences.split_sentences(text, tags) == parts


def test_a_text_of_one_sentence_is_unchanged():
    texts = ["  A  dog.\t", "", " ", "\n", "It rains. \n", "A dog\u2028", "\u200b"]
    texts += ["It rains. \u200b", "It rains.\n\u200b\n", "\ufeff! It rains. \0"]
    for text in texts:
        assert sentences.split_sentences(text) == [text]
        assert strings(split_sentences_graph(tf.constant([text])).values) == [text]


@pytest.mark.parametrize(
    "unit", ["!", ". ", "a. ", "Aa. ", "« ", "\xa0", "! ←", "。", "(", "- ", "I", "''"]
)
def test_splitting_takes_linear_time(unit):
    for start in ("", "Aa. ", "Aa."):
        start_time = time.process_time()
        sentences.split_sentences(f"{start}{unit * 30_000}x")
        assert time.process_time() - start_time < 1


def letters(texts):
    """A tokenizer: each character but white space is a token."""
    rows = []
    for text in strings(texts):
        rows.append([ord(character) for character in text if not character.isspace()])
        rows[-1].append(EOS)
    return tf.ragged.constant(rows, tf.int32, ragged_rank=1)


def parts_by_hand(text, max_length):
    """Greedy parts, each the longest that ends a sentence, or else a word."""
    words = []  # (the word, whether it ends a sentence)
    for sentence in strings(sentences_of(text)):
        words += [(word, False) for word in sentence.split()]
        if words:
            words[-1] = (words[-1][0], True)
    parts = []
    while words:
        size = 0
        best = 0
        last_end = 0
        for i, (word, is_end) in enumerate(words, 1):
            size += len(word)
            if size > max_length:
                break
            best = i
            last_end = i if is_end else last_end
        stop = last_end or best or 1
        part = "".join(word for word, _ in words[:stop])
        parts += [part[i : i + max_length] for i in range(0, len(part), max_length)]
        words = words[stop:]
    return parts


@pytest.mark.parametrize("max_length", [1, 7, 30])
def test_parts_are_as_long_as_possible(max_length):
    pick = random.Random(max_length)
    units = [*"ab.!。 ", "  ", ". ", " Mr", "\n", "\t", "日本語", "verylongword " * 2]
    texts = ["".join(pick.choices(units, k=pick.randrange(1, 60))) for _ in range(12)]
    for text in [ENGLISH, *texts]:
        rows = split_long_text_graph(
            tf.constant(text), letters, max_length + 1
        ).to_list()
        assert all(row[-1] == EOS for row in rows)
        parts = ["".join(map(chr, row[:-1])) for row in rows]
        assert parts == parts_by_hand(text, max_length), repr(text)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    texts = [*SPLIT, "the old dog reads a book . it rains ."] * 3
    path = tmp_path_factory.mktemp("vocab") / "v.spm"
    SentencePieceTokenizer.train(texts, path, 500)
    return SentencePieceTokenizer(path)


def visible(text):
    return "".join(text.split())


def test_no_text_is_lost(tokenizer):
    """In the graph as in Python; every part obeys the limit."""
    texts = [*HARD_LINES, *random_lines(5), *(text * 9 for text in [*SPLIT][::12])]
    texts = [text.replace("\n", " ") for text in texts if text.strip()]
    graph = tokenizer.graph()

    def encode(texts):
        ids = tokenizer.encode_batch(strings(texts))
        return tf.ragged.constant(ids, tf.int32, ragged_rank=1)

    @tf.function(input_signature=[tf.TensorSpec([], tf.string)], autograph=False)
    def in_graph(text):
        return split_long_text_graph(text, graph.encode, 20)

    for text in texts:
        parts = split_long_text_graph(tf.constant(text), encode, 20).to_list()
        assert max(map(len, parts)) <= 20
        assert parts == in_graph(tf.constant(text)).to_list()
        if max(map(len, parts)) < 20:  # no word was cut
            assert visible("".join(map(tokenizer.decode, parts))) == visible(text)
    # A word that is too long: its parts follow each other.
    word = "x日ж" * 40
    parts = split_long_text_graph(tf.constant(f"the {word} dog"), encode, 20).to_list()
    tokens = [token for part in parts for token in part[:-1]]
    assert visible(tokenizer.decode([*tokens, EOS])) == f"the{word}dog"


def test_all_parts_have_the_tag_of_their_text(tmp_path):
    texts = ["the old dog reads a book . it rains ."] * 3
    tags = ["<2de>", "<2f.r>"]
    SentencePieceTokenizer.train(texts, tmp_path / "v.spm", 400, symbols=tags)
    tokenizer = SentencePieceTokenizer(tmp_path / "v.spm")
    graph = tokenizer.graph()

    @tf.function(input_signature=[tf.TensorSpec([], tf.string)], autograph=False)
    def in_graph(text):
        return split_long_text_graph(text, graph.encode, 20, tags)

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
    joined = join_outputs_graph(tf.ragged.constant(parts, tf.string))
    assert strings(joined) == ["Ein Hund. Ja.", "x y", "犬。猫。a", "", ""]

"""The subwords of tensor2tensor, against what tensor2tensor itself computed."""

import json
import random

import pytest
import tensorflow as tf
from helpers.decoding_models import LINES as SENTENCES
from helpers.reference import reference
from helpers.tokenizer_checks import (
    LINES,
    assert_graph_equals_python,
    assert_runs_on_cpu,
    assert_survives_saving,
    assert_words_are_spelled,
    random_ids,
    random_lines,
)

from t2t_keras.errors import UserError
from t2t_keras.plugins.interop.t2t.subword_training import (
    SubwordLearner,
    count_tokens,
    train_subwords,
)
from t2t_keras.plugins.interop.t2t.subwords import (
    SubwordTokenizer,
    escape_token,
    join_tokens,
    split_tokens,
    unescape_token,
)
from t2t_keras.text.tokenizer import load_tokenizer
from t2t_keras.text.vocabulary import EOS, PAD

VOCABULARIES = {
    name: f"oracle/misc/subword_{name}.vocab"
    for name in ("mincount2", "mincount20", "target300", "target2000_maxlen6")
}
for size in ("8k.8192", "32k.32768"):
    file = f"vocab.translate_ende_wmt{size}.subwords"
    VOCABULARIES[f"released:{file}"] = file
SPELLING = ["\\", "_", "u", ";", *"0123456789"]
PIECES = ["<pad>_", "<EOS>_", "ab", "abc_", "ab_", *"abc", *SPELLING, *"<>padEOS"]


@pytest.fixture(scope="module")
def oracle():
    return json.loads(reference("t2t/oracle/misc/subword.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocab") / "small.subwords"
    return make_tokenizer(path, [f"'{piece}'" for piece in dict.fromkeys(PIECES)])


def make_tokenizer(path, lines):
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return SubwordTokenizer(path)


def spelled(tokenizer, text):
    return [tokenizer.pieces[i] for i in tokenizer.encode(text)[:-1]]


def test_tokens(oracle):
    assert [split_tokens(text) for text in oracle["sentences"]] == oracle["tokens"]
    assert [join_tokens(row) for row in oracle["tokens"]] == oracle["detokenized"]


@pytest.mark.parametrize("name", VOCABULARIES)
def test_ids_match_tensor2tensor(oracle, name, tmp_path):
    path = reference(f"t2t/{VOCABULARIES[name]}")
    tokenizer = SubwordTokenizer(path)
    expected = oracle["vocabs"][name]
    assert tokenizer.vocab_size == expected["size"]
    encoded = tokenizer.encode_batch(oracle["sentences"])
    assert encoded == [[*ids, EOS] for ids in expected["ids"]]
    assert [tokenizer.decode(ids) for ids in expected["ids"]] == expected["decoded"]
    for ids, _, stripped in expected["decode_random"]:
        while ids[-1] in (PAD, EOS):
            ids.pop()
        # In the middle, tensor2tensor shows special pieces as text; here, they end it.
        if PAD not in ids and EOS not in ids:
            assert tokenizer.decode([*ids, EOS, PAD]) == stripped
    tokenizer.save(tmp_path / "copy.subwords")
    assert (tmp_path / "copy.subwords").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("minimum", [2, 5, 20])
def test_learning_equals_tensor2tensor(minimum):
    path = reference(f"t2t/oracle/misc/subword_mincount{minimum}.vocab")
    assert learner().learn(minimum) == SubwordTokenizer(path).pieces


@pytest.mark.parametrize("size", [300, pytest.param(1000, marks=pytest.mark.slow)])
def test_learning_a_size_equals_tensor2tensor(size):
    path = reference(f"t2t/oracle/misc/subword_target{size}.vocab")
    assert learner().learn_size(size) == SubwordTokenizer(path).pieces


def learner():
    text = reference("t2t/oracle/misc/subword_corpus.txt").read_text("utf-8")
    return SubwordLearner(count_tokens(text.split("\n")))


def test_escapes():
    assert escape_token("a_\\é", set("a\\_u;0123456789")) == "a\\u\\\\\\233;_"
    assert escape_token("\n", set("a")) == "\\10;_"
    assert unescape_token("a\\u\\\\\\233;") == "a_\\é"
    assert unescape_token("\\\\233;\\") == "\\233;\\"
    # Code points that do not exist; more digits than Python reads as a number.
    for digits in ("1114112", "55296", "9" * 5000):
        assert unescape_token(f"\\{digits};") == "〓"
    assert unescape_token("\\" + "0" * 50 + "65;") == "A"


def test_decode_reads_up_to_the_first_end(small):
    ids = small.encode("abc a")
    assert small.decode([PAD, *ids[:-1], -1, 10_000, EOS, 5]) == "abc a"
    # Half a token, and nothing between two ends of tokens.
    assert small.decode([5, small.pieces.index("_"), small.pieces.index("_"), 6]) == (
        "a b"
    )


def test_a_piece_said_twice_has_the_later_id(tmp_path):
    pieces = ["<pad>", "<EOS>", "ab_", "", "ab_"]
    pieces += dict.fromkeys([*"<>padEOSb", *SPELLING])
    tokenizer = make_tokenizer(tmp_path / "v.subwords", pieces)
    assert tokenizer.encode("ab") == [4, EOS]
    assert tokenizer.graph().encode(tf.constant(["ab"])).to_list() == [[4, EOS]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no piece for the single character '0'"),
        (b"'a_'\n'\xe9_'\n", "line 2: byte 0xe9 is not valid UTF-8"),
        ("\n".join([*SPELLING, "xy"]).encode(), "no piece for .* character 'x'"),
    ],
)
def test_files_without_a_vocabulary_are_refused(tmp_path, content, message):
    (tmp_path / "v.subwords").write_bytes(content)
    with pytest.raises(UserError, match=message):
        load_tokenizer(tmp_path / "v.subwords")


def test_training_and_loading(tmp_path):
    path = tmp_path / "v.subwords"
    texts = ["the dog sees the dogs", "the cat, the cats", "two\nli\0nes"] * 20
    train_subwords(iter(texts), path, 60)
    tokenizer = load_tokenizer(path)
    assert tokenizer.pieces[:2] == ["<pad>_", "<EOS>_"]
    assert "" not in tokenizer.pieces  # what a newline in a piece would leave
    assert spelled(tokenizer, "the dog") == ["the_", "dog_"]
    for line in [*texts, *LINES]:
        assert tokenizer.decode(tokenizer.encode(line)) == line
    encoded = tokenizer.graph().encode(tf.constant(texts))
    assert encoded.to_list() == tokenizer.encode_batch(texts)
    with pytest.raises(UserError, match="no text to train the vocabulary"):
        train_subwords(["", ""], tmp_path / "none.subwords", 60)
    assert not (tmp_path / "none.subwords").exists()


def test_graph_equals_python_on_strange_lines(small):
    # Ids that spell escapes, valid and not.
    favoured = [small.pieces.index(piece) for piece in SPELLING]
    ids = random_ids(small, 2000, favoured)
    lines = [*LINES, *random_lines(800)]
    assert_graph_equals_python(small, small.graph(), lines, ids)


def test_graph_equals_python_for_every_kind_of_character(small):
    # Letters and numbers are told by Python's Unicode tables, not TensorFlow's.
    codes = [*range(0x3000), *range(0x3000, 0x110000, 211)]
    lines = [f"a{chr(c)}b" for c in codes if not 0xD800 <= c < 0xE000]
    encoded = small.graph().encode(tf.constant(lines))
    assert encoded.to_list() == small.encode_batch(lines)


def test_graph_equals_python_on_sentences():
    """With tensor2tensor's largest vocabulary."""
    tokenizer = SubwordTokenizer(reference(f"t2t/{[*VOCABULARIES.values()][-1]}"))
    lines = reference("multi30k/val.de").read_text("utf-8").split("\n")
    ids = random_ids(tokenizer, 1000)
    assert_graph_equals_python(tokenizer, tokenizer.graph(), lines, ids)


def test_graph_is_saved_and_runs_on_the_cpu(small, tmp_path):
    assert_survives_saving(small, tmp_path)
    assert_runs_on_cpu(small.graph())


def test_words_of_tokens(tmp_path):
    train_subwords(SENTENCES * 2, tmp_path / "v.subwords", 150)
    # A token of punctuation may have several words.
    texts = [*SENTENCES, "日本 a", "  two  spaces ", "ab\tcd\u3000ef"]
    texts = [text for text in texts if "—" not in text]
    assert_words_are_spelled(SubwordTokenizer(tmp_path / "v.subwords"), texts)


# Symbols: one piece each, which tensor2tensor has not.

SYMBOLS = ["S", "/S", "NP", "/NP", "PRP$", "''", ".", ",", "-LRB-", "ADVP|PRT", "<"]


@pytest.fixture(scope="module")
def with_symbols(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocab") / "symbols.subwords"
    texts = ["S NP DT /NP . /S", "NP /NPX Spring /NP"]
    train_subwords(texts, path, 60, symbols=SYMBOLS)
    return SubwordTokenizer(path)


def test_a_symbol_is_one_piece(with_symbols):
    text = " ".join(SYMBOLS)
    ids = with_symbols.encode(text)
    assert ids == [*range(2, 2 + len(SYMBOLS)), EOS]
    assert with_symbols.decode(ids) == text
    # Only a whole word is.
    assert not set(with_symbols.encode("SS S/ ''. /S. \\<S>")) & set(ids[:-1])


def test_the_graph_keeps_symbols_whole(with_symbols):
    pick = random.Random(0)
    words = [*SYMBOLS, "a", "SS", "''.", "\\<S>", "", "_", "é/"]
    lines = [" ".join(pick.choices(words, k=pick.randrange(9))) for _ in range(300)]
    ids = random_ids(with_symbols, 300, range(2, 2 + len(SYMBOLS)))
    lines += random_lines(100)
    assert_graph_equals_python(with_symbols, with_symbols.graph(), lines, ids)


@pytest.mark.parametrize("symbol", ["", "a b", "a_b", "\\"])
def test_symbols_that_cannot_be_pieces(tmp_path, symbol):
    with pytest.raises(UserError, match="is not one word without"):
        train_subwords(["a"], tmp_path / "v.subwords", 60, symbols=[symbol])

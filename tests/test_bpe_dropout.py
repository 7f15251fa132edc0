"""BPE-dropout: the same texts in other pieces."""

import collections

import pytest
from tokenizer_checks import LINES, random_lines

from t2t_keras.text.sentence_piece import SentencePieceTokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """A vocabulary of ab, _ab and _a, in this order."""
    path = tmp_path_factory.mktemp("vocab") / "ab.spm"
    SentencePieceTokenizer.train(["ab ab ab"] * 9, path, 300, symbols=["xyz"])
    return SentencePieceTokenizer(path)


def test_every_merge_is_left_out_with_the_probability(tokenizer):
    """Of _ a b the merges are a b -> ab, or else _ a -> _a, and then _ab or none."""
    assert len(tokenizer.encode("ab")) == 2
    found = [tokenizer.sample("ab", 0.3, seed) for seed in range(4000)]
    lengths = collections.Counter(len(ids) - 1 for ids in found)
    first, second = 0.7, 0.3 * 0.7  # a b is merged; it is overlooked, but _ a is not
    expected = {1: first * 0.7 + second * 0.7, 3: 0.3 * 0.3}
    for length, probability in expected.items():
        assert lengths[length] / 4000 == pytest.approx(probability, abs=0.03)
    assert {tokenizer.decode(ids) for ids in found} == {"ab"}
    assert found == [tokenizer.sample("ab", 0.3, seed) for seed in range(4000)]


def test_without_dropout_the_pieces_are_those_of_sentencepiece(tmp_path):
    SentencePieceTokenizer.train(
        LINES, tmp_path / "a.spm", 420, symbols=["NP", "NPS", "/S"]
    )
    tokenizer = SentencePieceTokenizer(tmp_path / "a.spm")
    for line in [*LINES, *random_lines(300), "NPS NP NPX /S aNP", "NP  /S"]:
        assert tokenizer.sample(line, 0.0, 1) == tokenizer.encode(line), line
        for seed in range(3):
            assert tokenizer.decode(tokenizer.sample(line, 0.3, seed)) == line


def test_symbols_stay_whole(tokenizer):
    symbol = tokenizer.encode("xyz")
    assert len(symbol) == 2
    assert all(tokenizer.sample("xyz", 0.9, seed) == symbol for seed in range(50))

"""The tokenizers of whole tokens and of bytes."""

import pytest
from helpers.errors import refused
from helpers.tokenizer_checks import (
    LINES,
    assert_graph_equals_python,
    assert_runs_on_cpu,
    random_ids,
    random_lines,
)

from t2t_keras.plugins.interop.t2t.tokens import ByteTokenizer, TokenTokenizer
from t2t_keras.text.tokenizer import load_tokenizer


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory):
    directory = tmp_path_factory.mktemp("vocab")
    tokens = ["<pad>", "<EOS>", "<UNK>", "a", "dog", "日", "\\u", "é"]
    (directory / "v.tokens").write_text("\n".join(tokens) + "\n")
    ByteTokenizer.train((), directory / "v.bytes", 258)
    return [load_tokenizer(directory / name) for name in ("v.tokens", "v.bytes")]


@pytest.mark.parametrize("index", [0, 1])
def test_the_graph_does_the_same(tokenizers, index):
    tokenizer = tokenizers[index]
    lines = [*LINES, *random_lines(300), "a dog\x85日\u3000é", "a\x1cdog"]
    ids = random_ids(tokenizer, 300, [3, 4, 199, 170, 1])
    assert_graph_equals_python(tokenizer, tokenizer.graph(), lines, ids)
    assert_runs_on_cpu(tokenizer.graph())


def test_invalid_token_vocabularies_are_refused(tmp_path):
    path = tmp_path / "v.tokens"
    for content, message in {
        b"a\nb\nc\n": "must begin with <pad>, <EOS>",
        b"<pad>\n<EOS>\n": "must begin with",
        b"<pad>\n<EOS>\n<UNK>\na\na\n": "has the token 'a' twice",
        b"\xff": "is not UTF-8",
    }.items():
        path.write_bytes(content)
        refused(message, TokenTokenizer, path)
    path.write_text("a")
    refused("is not the vocabulary of bytes", ByteTokenizer, path)
    refused("is not trained", TokenTokenizer.train, ["a"], path, 9)
    refused("has no symbols such as 'x'", ByteTokenizer.train, (), path, 258, ["x"])
    refused("has 258 tokens, not 300", ByteTokenizer.train, (), path, 300)

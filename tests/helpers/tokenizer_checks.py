"""Lines that break tokenizers, and what every tokenizer must do with them."""

import random
import re

import numpy as np
import tensorflow as tf

from t2t_keras.text.alignment import words_of_tokens

LINES = (
    *("", " ", "  ", "   ", " a", "a ", "  a  b   c  ", "\t", "a\tb", "\ta\t", "\r"),
    *("A dog runs.", "Ein Hund läuft!", "3,5 % / 10_000", "_", "__a_ _", "\\", "\\u"),
    *("\\65;", "a\\_b", ";", "<pad>", "</s>", "<unk>", "<EOS>", "<0x41>", " <s> "),
    # SentencePiece's mark for a space, and what it is escaped with.
    *("▁", "▁a", "a▁b", "a ▁ b", " ▁▁S ▁ S▁S", "\x1b", "\x1b0", "\x1b1▁", "\x1b\x1b01"),
    *("e\u0301 \u0301", "é", "ﬁ ½ Å K", "नमस्ते தமிழ்", "שלום עליכם", "日本 語", "𠀀龘"),
    *("👩‍👩‍👧‍👦 😀", "\u00a0a\u00a0", "\u3000", "a\u2028b\u2029\x85", "\ufeffa"),
    *("\ufffd", "\uffff\ufffe", "\U0010ffff", "\U00031350\U0001123f", "\x00"),
    *("a\x00b", "\x7f\x1a"),
    *("⁇", "▂", " ⁇ ", "x" * 3000, "日" * 500, "- " * 500),
)


def random_lines(count: int, seed: int = 0) -> list[str]:
    """Lines of characters that mean something to a tokenizer."""
    pick = random.Random(seed)
    characters = "   aSé\\u_;019.,<>/\t\r\x00\x1b01▁\u0301\u00a0\u3013日龘😀\U00031350"
    return [
        "".join(pick.choices(characters, k=pick.randrange(16))) for _ in range(count)
    ]


def random_ids(tokenizer, count: int, favoured=(), seed: int = 0) -> np.ndarray:
    """Rows of ids, some outside the vocabulary; half are taken from `favoured`."""
    pick = np.random.default_rng(seed)
    ids = pick.integers(-2, tokenizer.vocab_size + 3, [count, 12])
    if len(favoured):
        favoured_ids = pick.choice(np.asarray(favoured), ids.shape)
        ids = np.where(pick.random(ids.shape) < 0.8, favoured_ids, ids)
    return ids.astype(np.int32)


def assert_graph_equals_python(tokenizer, graph, lines, ids) -> None:
    """The graph encodes the lines and decodes the ids as Python does."""
    expected = tokenizer.encode_batch(lines)
    encoded = graph.encode(tf.constant(lines))
    assert encoded.dtype == tf.int32
    assert encoded.to_list() == expected
    decoded = [text.decode() for text in graph.decode(encoded.to_tensor()).numpy()]
    assert decoded == [tokenizer.decode(row) for row in expected]
    decoded = [text.decode() for text in graph.decode(tf.constant(ids)).numpy()]
    assert decoded == [tokenizer.decode(row) for row in ids]


def ascii_words(text: str) -> list[str]:
    """The words of a text as aligners count them, which ASCII white space separates."""
    return [*filter(None, re.split("[ \t\n\r\f\v]", text))]


def assert_words_are_spelled(tokenizer, texts) -> None:
    """The tokens of a word alone spell that word and the white space before it."""
    for text in texts:
        expected_words = ascii_words(text)
        ids = tokenizer.encode(text)
        words = words_of_tokens(tokenizer, ids)
        assert len(words) == len(ids) and words[-1] is None
        spelled = [word for word in words if word is not None]
        assert spelled == sorted(spelled)
        assert set(spelled) == set(range(len(expected_words)))
        for word, expected in enumerate(expected_words):
            own_ids = [i for i, w in zip(ids, words, strict=True) if w == word]
            assert ascii_words(tokenizer.decode(own_ids)) == [expected]


class Roundtrip(tf.Module):
    """Holds a tokenizer as a served model does."""

    def __init__(self, tokenizer) -> None:
        super().__init__()
        self.tokenizer = tokenizer

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def encode(self, texts):
        return self.tokenizer.encode(texts).to_tensor()

    @tf.function(
        input_signature=[tf.TensorSpec([None, None], tf.int32)], autograph=False
    )
    def decode(self, ids):
        return self.tokenizer.decode(ids)


def assert_survives_saving(tokenizer, directory) -> None:
    """A SavedModel of the graph tokenizer gives the same ids and texts."""
    tf.saved_model.save(Roundtrip(tokenizer.graph()), str(directory))
    loaded = tf.saved_model.load(str(directory))
    lines = ["A dog runs.", "", "  ▁ 日本\\_"]
    ids = loaded.encode(tf.constant(lines))
    assert [row[: row.index(1) + 1] for row in ids.numpy().tolist()] == (
        tokenizer.encode_batch(lines)
    )
    assert [text.decode() for text in loaded.decode(ids).numpy()] == lines


def assert_runs_on_cpu(graph) -> None:
    """Every operation is pinned; an accelerator has no string operations."""
    module = Roundtrip(graph)
    for function in (module.encode, module.decode):
        for operation in function.get_concrete_function().graph.get_operations():
            # `to_tensor` is the test's own; its operations come after the tokenizer's.
            free = operation.type in ("Placeholder", "Identity", "NoOp", "Const")
            if not free and "RaggedToTensor" not in operation.name:
                assert "CPU" in operation.device, operation.name

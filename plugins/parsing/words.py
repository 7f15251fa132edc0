"""Vocabularies of whole words, of which every word of a text is one token."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from t2t_keras.option import UserError
from t2t_keras.text.tokenizer import (
    EOS,
    UNK,
    read_vocabulary,
    text_ids,
    write_vocabulary,
)

if TYPE_CHECKING:
    from .words_graph import WordGraph

SPECIAL = ("<pad>", "</s>", "<unk>")  # the pieces of PAD, EOS and UNK

# Applied in turn, they reduce a word to its shape: `BMP-4` to `A-0`, `Tissues` to `Aa`.
# Other characters than ASCII's count as small letters. Python's `re` and TensorFlow's
# RE2 interpret the patterns in the same way.
SHAPE = (
    (r"[0-9][0-9.,:/%+-]*", "0"),
    (r"[^\x00-\x60\x7b-\x7f]+", "a"),
    (r"[A-Z]+", "A"),
)
ENDINGS = (4, 3, 2, 1)  # numbers of letters, the longest ending first

_RARE = 5  # words that occur so often or less tell which classes there are
_LEAST_CLASS, _LEAST_WORD = 15, 2  # occurrences of what becomes a token


class WordTokenizer:
    """A tokenizer for texts whose words single spaces separate, as in a treebank.

    A word that is not in the vocabulary becomes the token of a class of words, by its
    shape and its last letters: `phosphorylated` becomes `<a-ated>`. Therefore an
    unknown source has as many tokens as words; it cannot be restored from them. The
    Berkeley parser has such classes (Petrov et al., ACL 2006).

    Args:
        path: the `.words` file: one token per line, in the order of ids.

    Raises:
        UserError: the file is absent, is not UTF-8 or is of another kind.
    """

    suffix: ClassVar[str] = ".words"
    training_pairs: ClassVar[int] = 10_000_000

    def __init__(self, path: Path) -> None:
        try:
            self.pieces = read_vocabulary(path).decode("utf-8").split("\n")[:-1]
        except UnicodeDecodeError:
            raise UserError(f"{path} is not UTF-8, so not a vocabulary") from None
        if tuple(self.pieces[: len(SPECIAL)]) != SPECIAL:
            raise UserError(
                f"{path} is not a vocabulary of words: it does not begin with "
                f"{', '.join(SPECIAL)}"
            )
        self._ids = {
            piece: i for i, piece in enumerate(self.pieces) if i >= len(SPECIAL)
        }

    @staticmethod
    def train(
        texts: Iterable[str], path: Path, vocab_size: int, symbols: Sequence[str] = ()
    ) -> None:
        """Writes a vocabulary; equal texts give equal files.

        It has the symbols, the classes that occur at least 15 times among words of at
        most 5 occurrences, and the most frequent words, of two occurrences or more.

        Args:
            texts: training lines.
            path: the `.words` file to write.
            vocab_size: the most tokens. A small corpus gives fewer.
            symbols: words that are always a token.

        Raises:
            UserError: there is no text, or the vocabulary is too small for the symbols.
        """
        words = Counter(word for text in texts for word in text.split(" ") if word)
        if not words:
            raise UserError(f"no text to train the vocabulary {path} on")
        least = len(SPECIAL) + len(symbols)
        if vocab_size < least:
            raise UserError(
                f"a vocabulary of {vocab_size} tokens is too small for {path}: its "
                f"symbols need {least}; raise vocab_size"
            )
        classes: Counter[str] = Counter()
        for word, count in words.items():
            if count <= _RARE and word not in symbols:
                classes.update(dict.fromkeys(word_classes(word), count))
        tokens = [
            *SPECIAL,
            *symbols,
            *_frequent(classes, _LEAST_CLASS),
            *_frequent(words, _LEAST_WORD),
        ]
        tokens = list(dict.fromkeys(tokens))[:vocab_size]
        write_vocabulary(path, "".join(f"{token}\n" for token in tokens).encode())

    @property
    def vocab_size(self) -> int:
        """Number of tokens."""
        return len(self.pieces)

    def token_bytes(self) -> list[bytes]:
        """Returns what each token adds to a text, which begins with a space."""
        return [f" {piece}".encode() for piece in self.pieces]

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, EOS last."""
        return [*(self._id(word) for word in text.split(" ") if word), EOS]

    def _id(self, word: str) -> int:
        """Returns the id of a word or, if it has none, of its first class that has."""
        if (known := self._ids.get(word)) is not None:
            return known
        ids = map(self._ids.get, word_classes(word))
        return next((i for i in ids if i is not None), UNK)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encodes every text as `encode` does."""
        return [self.encode(text) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of the ids before the first EOS."""
        return " ".join(self.pieces[i] for i in text_ids(ids, self.vocab_size))

    def graph(self) -> "WordGraph":
        """Returns this tokenizer as TensorFlow operations."""
        from .words_graph import WordGraph

        return WordGraph(self.pieces)

    def save(self, path: Path) -> None:
        """Writes the vocabulary file."""
        write_vocabulary(path, "".join(f"{piece}\n" for piece in self.pieces).encode())


def word_classes(word: str) -> Iterator[str]:
    """Yields the classes of a word, the smallest first: `<a-ated>`, ..., `<a>`."""
    shape = word
    for pattern, letter in SHAPE:
        shape = re.sub(pattern, letter, shape)
    for length in ENDINGS:
        if re.fullmatch(ending_pattern(length), word):
            yield f"<{shape}-{word[-length:]}>"
    yield f"<{shape}>"


def ending_pattern(length: int) -> str:
    """Returns the pattern of words with an ending of so many small letters."""
    return rf".+([a-z]{{{length}}})"


def _frequent(counts: Counter[str], least: int) -> list[str]:
    """Returns what occurs at least so often, the most frequent first."""
    kept = [word for word, count in counts.items() if count >= least]
    return sorted(kept, key=lambda word: (-counts[word], word))

"""A word-level tokenizer, with classes of words that are out of its vocabulary."""

import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from t2t_keras.errors import UserError
from t2t_keras.files.text_files import decoded_lines
from t2t_keras.text.tokenizer import WordListTokenizer
from t2t_keras.text.vocabulary import UNK, read_vocabulary, write_vocabulary

if TYPE_CHECKING:
    from .words_graph import WordGraph


# The pieces of PAD, EOS and UNK.
SPECIAL = ("<pad>", "</s>", "<unk>")

# Replacements, applied in this order, that turn a word into its shape: `BMP-4` becomes
# `A-0`, and `Tissues` becomes `Aa`. Non-ASCII characters count as lower-case letters.
# Python's `re` and TensorFlow's RE2 interpret the patterns in the same way.
SHAPE = (
    (r"[0-9][0-9.,:/%+-]*", "0"),
    (r"[^\x00-\x60\x7b-\x7f]+", "a"),
    (r"[A-Z]+", "A"),
)
# The lengths of endings in letters, longest first.
ENDINGS = (4, 3, 2, 1)


def word_classes(word: str) -> Iterator[str]:
    """Yields the classes of a word, most specific first: `<a-ated>`, ..., `<a>`."""
    shape = word
    for pattern, letter in SHAPE:
        shape = re.sub(pattern, letter, shape)
    for length in ENDINGS:
        if re.fullmatch(ending_pattern(length), word):
            yield f"<{shape}-{word[-length:]}>"
    yield f"<{shape}>"


def ending_pattern(length: int) -> str:
    """Returns a pattern for words that end in `length` lower-case ASCII letters.

    At least one character must precede the ending, which is group 1.
    """
    return rf".+([a-z]{{{length}}})"


# Classes are counted over words with at most this many occurrences.
_RARE = 5
# Minimum numbers of occurrences with which a class or a word becomes a token.
_MIN_CLASS_COUNT = 15
_MIN_WORD_COUNT = 2


class WordTokenizer(WordListTokenizer):
    """A word-level tokenizer for texts split into words by spaces, as in a treebank.

    An out-of-vocabulary word becomes the token of a word class, which depends on its
    shape and its last letters: `phosphorylated` becomes `<a-ated>`. If none of its
    classes is in the vocabulary, it becomes `<unk>`. So every text has one token per
    word, but decoding does not restore out-of-vocabulary words. The Berkeley parser
    has similar classes (Petrov et al., ACL 2006).

    Args:
        path: the `.words` file, with one token per line, in the order of the ids.

    Raises:
        UserError: the file is missing, is not UTF-8 or is not such a vocabulary.
    """

    suffix: ClassVar[str] = ".words"
    training_pairs: ClassVar[int] = 10_000_000

    def __init__(self, path: Path) -> None:
        content = io.BytesIO(read_vocabulary(path))
        super().__init__(decoded_lines(content, str(path)))
        if tuple(self.pieces[: len(SPECIAL)]) != SPECIAL:
            raise UserError(
                f"{path} is not a vocabulary of words: it does not begin with "
                f"{', '.join(SPECIAL)}"
            )
        words = self.pieces[len(SPECIAL) :]
        self._ids = {word: i for i, word in enumerate(words, len(SPECIAL))}

    @staticmethod
    def train(
        texts: Iterable[str], path: Path, vocab_size: int, symbols: Sequence[str] = ()
    ) -> None:
        """Writes a vocabulary; the same texts always give the same file.

        After the special tokens and the symbols come the word classes, then the words,
        both sorted by frequency. A class is included if its rare words have at least 15
        occurrences in total; a word is rare if it occurs at most 5 times. A word is
        included if it occurs at least twice. The list is truncated to `vocab_size`. So
        the words of the training data that become classes are those that occur once.

        Args:
            texts: training lines.
            path: the `.words` file to write.
            vocab_size: maximum number of tokens; a small corpus gives fewer.
            symbols: words that are always in the vocabulary.

        Raises:
            UserError: there is no text, or the vocabulary is too small for the symbols.
        """
        words = Counter(word for text in texts for word in text.split(" ") if word)
        if not words:
            raise UserError(f"no text to train the vocabulary {path} on")
        min_size = len(SPECIAL) + len(symbols)
        if vocab_size < min_size:
            raise UserError(
                f"a vocabulary of {vocab_size} tokens is too small for {path}: its "
                f"symbols need {min_size}; raise vocab_size"
            )
        classes: Counter[str] = Counter()
        for word, count in words.items():
            if count <= _RARE and word not in symbols:
                classes.update(dict.fromkeys(word_classes(word), count))
        tokens = [
            *SPECIAL,
            *symbols,
            *_frequent(classes, _MIN_CLASS_COUNT),
            *_frequent(words, _MIN_WORD_COUNT),
        ]
        tokens = list(dict.fromkeys(tokens))[:vocab_size]
        _write(tokens, path)

    def split_words(self, text: str) -> list[str]:
        """Returns what single spaces separate."""
        return [word for word in text.split(" ") if word]

    def word_id(self, word: str) -> int:
        """Returns the id of a word, or of its most specific class, or UNK."""
        if word in self._ids:
            return self._ids[word]
        for word_class in word_classes(word):
            if word_class in self._ids:
                return self._ids[word_class]
        return UNK

    def graph(self) -> "WordGraph":
        """Returns this tokenizer as TensorFlow operations."""
        from .words_graph import WordGraph

        return WordGraph(self.pieces)

    def save(self, path: Path) -> None:
        """Writes the vocabulary file."""
        _write(self.pieces, path)


def _write(tokens: Iterable[str], path: Path) -> None:
    """Writes a vocabulary file."""
    write_vocabulary(path, "".join(f"{token}\n" for token in tokens).encode())


def _frequent(counts: Counter[str], min_count: int) -> list[str]:
    """Returns the keys with at least `min_count` occurrences, most frequent first."""
    words = [word for word, count in counts.items() if count >= min_count]
    return sorted(words, key=lambda word: (-counts[word], word))

"""The classes of out-of-vocabulary words, in Python and as patterns for the graph."""

import re
from collections.abc import Iterator

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

"""Parts of a text that its translation must keep: addresses, markup, numbers.

The patterns are regular expressions of RE2, and `find_protected` is of TensorFlow's
operations. So Python and an exported model run the same code.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from t2t_keras.blank_text import WHITE_SPACE

if TYPE_CHECKING:
    import tensorflow as tf

# What an address does not end in, since it belongs to the sentence around it.
_LAST = r"[^\s<>\"'.,;:!?()\[\]{}]"

KINDS = {
    "url": rf"(?:(?:https?|ftp)://|www\.)[^\s<>\"]*{_LAST}",
    "email": r"[\w.%+-]+@[\w-]+(?:\.[\w-]+)+",
    "markup": r"</?[A-Za-z][^<>]*>|&(?:[A-Za-z]+|#\w+);|\{\{[^{}]*\}\}|\{\w*\}|%[sd]",
    "number": r"\p{Nd}+(?:[.,:/-]\p{Nd}+)*",
    "symbol": r"(?:\p{So}[\x{FE0F}\x{200D}\x{1F3FB}-\x{1F3FF}]*)+",
}
UNKNOWN = "unknown"  # characters that the source's vocabulary does not have


def protected_pattern(kinds: Sequence[str], pieces: Sequence[str]) -> str:
    """Returns the regular expression of the protected parts.

    Where two kinds begin at the same place, the one that `KINDS` has first wins.

    Args:
        kinds: names in `KINDS`, or `UNKNOWN`.
        pieces: the tokens of the source's vocabulary.
    """
    patterns = [KINDS[name] for name in KINDS if name in kinds]
    if UNKNOWN in kinds:
        codes = sorted({ord(character) for character in "".join(pieces)})
        characters = "".join(rf"\x{{{code:X}}}" for code in codes)
        patterns.append(f"[^{characters}{WHITE_SPACE}]+")
    return "|".join(patterns)


def find_protected(texts: "tf.Tensor", pattern: str) -> "tf.RaggedTensor":
    """Returns the parts [B, (M)] of texts [B] that match a pattern, in their order."""
    import tensorflow as tf

    from t2t_keras.text.graph_ids import CPU

    with tf.device(CPU):
        texts = tf.strings.regex_replace(texts, "[\x00\x01]", " ")
        marked = tf.strings.regex_replace(texts, f"({pattern})", "\x00\\1\x01")
        # Each part but the first begins with something that was found.
        parts = tf.strings.split(marked, "\x00")[:, 1:]
        protected = tf.strings.regex_replace(parts.values, "(?s)\x01.*", "")
        return parts.with_values(protected)

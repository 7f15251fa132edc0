"""White space, invisible characters, and texts that consist of them."""

import re

# For character classes of regular expressions: what `str.strip` removes.
WHITE_SPACE = "\t-\r\x1c- \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
# What `str.strip` removes from a text, for `tf.strings.regex_replace`.
WHITE_ENDS = rf"\A[{WHITE_SPACE}]+|[{WHITE_SPACE}]+\z"

# For character classes of regular expressions: control characters, those that Unicode
# calls default ignorable (zero-width spaces and joiners, marks of direction, variation
# selectors, fillers of Hangul, tags), the frame of interlinear annotations, and the
# blank pattern of Braille. Both Python and RE2 read the escapes.
INVISIBLE = (
    r"\x00-\x08\x0e-\x1b\x7f-\x9f"
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
# What a blank text consists of, see `is_blank`.
BLANK = f"[{WHITE_SPACE}{INVISIBLE}]*"
_VISIBLE = re.compile(f"[^{WHITE_SPACE}{INVISIBLE}]")


def is_blank(text: str) -> bool:
    """Returns whether a text has nothing but white space and invisible characters.

    In other texts invisible characters stay, because a zero-width joiner, for example,
    belongs to the spelling of a word.
    """
    return _VISIBLE.search(text) is None

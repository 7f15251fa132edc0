"""Splits a sentence into words as in the Penn Treebank."""

import re

# Python's `re` and TensorFlow's RE2 interpret all patterns in the same way, because the
# SavedModel applies the same list.

# Characters that would be read as brackets of the tree.
BRACKETS = ((r"\(", "-LRB-"), (r"\)", "-RRB-"))
BRACES = ((r"\{", "-LCB-"), (r"\}", "-RCB-"))  # only in raw text, as in the Treebank

# Splits a raw sentence into words by Robert MacIntyre's script for the Treebank
# (tokenizer.sed), except that 1,000 and 10:30, AT&T and US$ stay whole, as in the
# Treebank, and that typographic quotes count as quotes.
TOKENIZATION = (
    ("“", " `` "),
    ("”", " '' "),
    ("‘", " ` "),
    ("’", "'"),
    (r'^"', "`` "),
    (r'([ (\[{<])"', r"\1`` "),
    (r"(\.\.\.|…)", " ... "),
    (r"([:,])([^0-9])", r" \1 \2"),
    (r"([:,])$", r" \1"),
    (r"([;@#%?!\[\](){}<>])", r" \1 "),
    (r"([A-Z]*\$)([0-9.])", r"\1 \2"),
    # U.S. at the end is an abbreviation and a full stop.
    (r"([A-Za-z]\.[A-Za-z]\.)([ \])}>\"']*)$", r"\1 . \2"),
    # Only the last full stop ends a sentence; the others belong to abbreviations.
    (r"([^.])\.([ \])}>\"']*)$", r"\1 . \2"),
    ("(--|–|—)", r" \1 "),
    (r"^(.*)$", r" \1 "),
    ('"', " '' "),
    (r"([^'])' ", r"\1 ' "),
    (r"'([sSmMdD]) ", r" '\1 "),
    (r"'(ll|LL|re|RE|ve|VE) ", r" '\1 "),
    (r"(n't|N'T) ", r" \1 "),
    (r"\b([Cc]an)(not)\b", r"\1 \2"),
    (r"\b([Gg]im|[Ll]em)(me)\b", r"\1 \2"),
    (r"\b([Gg]on|[Ww]an)(na)\b", r"\1 \2"),
    (r"\b([Gg]ot)(ta)\b", r"\1 \2"),
    (r" ('[Tt])(is|was)\b", r" \1 \2"),
)


# ASCII white space separates words; other space, such as a no-break space, does not.
_SINGLE_SPACES = ((r"[\t-\r ]+", " "), ("^ ", ""), (" $", ""))


def rules(raw: bool) -> tuple[tuple[str, str], ...]:
    """Returns the (pattern, replacement) pairs that `treebank_text` applies in turn."""
    tokenization = (*TOKENIZATION, *_SINGLE_SPACES, *BRACES) if raw else ()
    return (*_SINGLE_SPACES, *tokenization, *BRACKETS)


def treebank_text(text: str, raw: bool = False) -> str:
    """Returns the words of a sentence, separated by single spaces.

    Args:
        text: the sentence, with white space between words; "(" and ")" are replaced by
            the Treebank's -LRB- and -RRB-.
        raw: whether the text is raw, so that punctuation must be split from words.
    """
    for pattern, replacement in rules(raw):
        text = re.sub(pattern, replacement, text, flags=re.ASCII)
    return text

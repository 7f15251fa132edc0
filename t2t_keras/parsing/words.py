"""The words of a sentence to parse, as the Penn Treebank has them."""

import re

# All patterns are such that Python's `re` and TensorFlow's RE2 understand them alike:
# the SavedModel applies the same list.

# The characters that would be taken for brackets of the tree.
BRACKETS = ((r"\(", "-LRB-"), (r"\)", "-RRB-"))
BRACES = ((r"\{", "-LCB-"), (r"\}", "-RCB-"))  # of raw text, as in the Treebank

# From a raw sentence to words: Robert MacIntyre's script for the Treebank
# (tokenizer.sed), but that 1,000 and 10:30, AT&T and US$ stay whole, as they are in the
# Treebank, and that typographic quotes are quotes.
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


# Words stand between ASCII white space; a no-break space, say, is part of a word.
_SINGLE_SPACES = ((r"[\t-\r ]+", " "), ("^ ", ""), (" $", ""))


def rules(raw: bool) -> tuple[tuple[str, str], ...]:
    """Returns the (pattern, replacement) pairs that `treebank_text` applies in turn."""
    tokenization = (*TOKENIZATION, *_SINGLE_SPACES, *BRACES) if raw else ()
    return (*_SINGLE_SPACES, *tokenization, *BRACKETS)


def treebank_text(text: str, raw: bool = False) -> str:
    """Returns the words of a sentence with one space between any two.

    Args:
        text: with white space between words; "(" and ")" are written as the Treebank
            writes them, -LRB- and -RRB-.
        raw: the text is as people write it, punctuation is to be split from words.
    """
    for pattern, replacement in rules(raw):
        text = re.sub(pattern, replacement, text, flags=re.ASCII)
    return text

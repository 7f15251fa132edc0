"""Words of the Penn Treebank: splitting a sentence, and finding punctuation.

EVALB leaves out punctuation by its tag, and cannot score a sentence if it leaves out
other words than in the gold tree. `mark_tags` is for parses without tags; for parses
with tags, the kinds of words keep a model from tagging a comma as a noun.
"""

import re
from collections.abc import Sequence

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


# The tags of punctuation marks in the Penn Treebank.
TAG_OF_MARK = {
    **dict.fromkeys((".", "?", "!"), "."),
    **dict.fromkeys((":", ";", "--", "...", "…", "—"), ":"),
    **dict.fromkeys(("''", '"', "”"), "''"),
    **dict.fromkeys(("``", "`", "“", "‘"), "``"),
    **dict.fromkeys(("-LRB-", "-LSB-", "-LCB-", "(", "[", "{"), "-LRB-"),
    **dict.fromkeys(("-RRB-", "-RSB-", "-RCB-", ")", "]", "}"), "-RRB-"),
    ",": ",",
}
DASHES = ("-", "–")  # not punctuation in a compound (wild - type), the usual case
APOSTROPHES = ("'", "’")
OPENING = ("`", "‘")

# Kinds of words and tags, as bits. EVALB keeps brackets and leaves out marks.
WORD = 1
MARK = 2
BRACKET = 4
KIND_OF_TAG = {
    **dict.fromkeys(TAG_OF_MARK.values(), MARK),
    **dict.fromkeys(("-LRB-", "-RRB-"), BRACKET),
}


def mark_tags(words: Sequence[str]) -> list[str | None]:
    """Returns the tag of each punctuation mark, and None for other words.

    A colon between numbers (`diluted 1 : 200`) or next to another is not a mark. An
    apostrophe is a quotation mark if there is a matching one; otherwise it is the
    genitive of a plural (`the firms ' new bank`) or a prime (`the 3 ' end`).
    """
    tags = [TAG_OF_MARK.get(word) for word in words]
    if _is_glossary_entry(words):
        tags[1] = ":"
    is_open = False  # whether a quotation in single marks is open
    for i, word in enumerate(words):
        if word in OPENING:
            is_open = True
        elif word == ":" and 0 < i < len(words) - 1:
            previous = words[i - 1]
            following = words[i + 1]
            between_digits = previous[-1:].isdecimal() and following[:1].isdecimal()
            if between_digits or ":" in (previous, following):
                tags[i] = None
        elif word in APOSTROPHES:
            tags[i] = _apostrophe(words, i, is_open)
            if tags[i] is not None:
                is_open = not is_open
    return tags


def _is_glossary_entry(words: Sequence[str]) -> bool:
    """Returns whether words explain an acronym: `AER - apical ectodermal ridge`."""
    if len(words) < 3 or words[1] not in DASHES or words[-1] == ".":
        return False
    return words[0][1:] != words[0][1:].lower() and words[2].islower()


def _apostrophe(words: Sequence[str], i: int, is_open: bool) -> str | None:
    """Returns `` or '' if the apostrophe is a quotation mark, else None."""
    previous = words[i - 1] if i else ""
    following = words[i + 1] if i + 1 < len(words) else ""
    if previous.isdecimal():
        return None
    if is_open or previous in (".", ",", "?", "!") or following in ("", "''"):
        return "''"
    if previous.endswith("s"):
        return None
    return "``" if any(word in APOSTROPHES for word in words[i + 2 :]) else None

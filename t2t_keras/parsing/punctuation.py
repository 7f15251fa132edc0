"""Which words of a sentence are punctuation, where a parse does not say so.

EVALB leaves punctuation out by its tag and cannot score a sentence of which it leaves
out other words than it does in the gold tree. `mark_tags` is for parses without tags;
the kinds of words keep those with tags from calling a comma a noun.
"""

from collections.abc import Sequence

# What the Penn Treebank calls its punctuation marks.
TAG_OF_MARK = {
    **dict.fromkeys((".", "?", "!"), "."),
    **dict.fromkeys((":", ";", "--", "...", "…", "—"), ":"),
    **dict.fromkeys(("''", '"', "”"), "''"),
    **dict.fromkeys(("``", "`", "“", "‘"), "``"),
    **dict.fromkeys(("-LRB-", "-LSB-", "-LCB-", "(", "[", "{"), "-LRB-"),
    **dict.fromkeys(("-RRB-", "-RSB-", "-RCB-", ")", "]", "}"), "-RRB-"),
    ",": ",",
}
DASHES = ("-", "–")  # in a compound (wild - type), mostly, and then no punctuation
APOSTROPHES = ("'", "’")
OPENING = ("`", "‘")

# Kinds of words and of their tags, as bits. EVALB keeps brackets, and leaves out marks.
WORD, MARK, BRACKET = 1, 2, 4
KIND_OF_TAG = {
    **dict.fromkeys(TAG_OF_MARK.values(), MARK),
    **dict.fromkeys(("-LRB-", "-RRB-"), BRACKET),
}


def mark_tags(words: Sequence[str]) -> list[str | None]:
    """Returns the tag of each word that is a punctuation mark; None for other words.

    A colon between numbers (`diluted 1 : 200`) or beside another one is none. An
    apostrophe is a quotation mark if there is another one that it can belong to, and
    else the genitive of a plural (`the firms ' new bank`) or a prime (`the 3 ' end`).
    """
    tags = [TAG_OF_MARK.get(word) for word in words]
    if _is_glossary_entry(words):
        tags[1] = ":"
    is_open = False  # a quotation in single marks
    for i, word in enumerate(words):
        if word in OPENING:
            is_open = True
        elif word == ":" and 0 < i < len(words) - 1:
            before, after = words[i - 1], words[i + 1]
            numbers = before[-1:].isdecimal() and after[:1].isdecimal()
            if numbers or ":" in (before, after):
                tags[i] = None
        elif word in APOSTROPHES:
            tags[i] = _apostrophe(words, i, is_open)
            if tags[i] is not None:
                is_open = not is_open
    return tags


def _is_glossary_entry(words: Sequence[str]) -> bool:
    """Whether the words explain an acronym: `AER - apical ectodermal ridge`."""
    if len(words) < 3 or words[1] not in DASHES or words[-1] == ".":
        return False
    return words[0][1:] != words[0][1:].lower() and words[2].islower()


def _apostrophe(words: Sequence[str], i: int, is_open: bool) -> str | None:
    """Returns `` or '' where the apostrophe is a quotation mark."""
    before = words[i - 1] if i else ""
    after = words[i + 1] if i + 1 < len(words) else ""
    if before.isdecimal():
        return None
    if is_open or before in (".", ",", "?", "!") or after in ("", "''"):
        return "''"
    if before.endswith("s"):
        return None
    return "``" if any(word in APOSTROPHES for word in words[i + 2 :]) else None

"""Splits texts into sentences or shorter parts, and joins the outputs.

A text that is too long is split at the last sentence end that fits, so that a part has
as many whole sentences as possible; if none fits, between words (at white space); and a
single word that is too long is cut between its tokens. So no part of a text is lost,
but white space around the parts.

The rules are careful: in doubt a text is not split. A sentence ends

- at a line break;
- after `. ! ? …` and their counterparts in other scripts, with the closing quotes and
  parentheses that follow, if white space follows and then something that can begin a
  sentence: neither a small letter nor a comma or the like. But it does not end after an
  ellipsis, a single letter and a period ("J. S. Bach", "z. B.", "U.S."), a number of up
  to three digits and a period ("am 3. Mai"), a Roman number, or an abbreviation;
- after the full-width marks of Chinese and Japanese, with or without white space.

Where a text has no capital letter at all, small letters begin sentences, and a period
between two spaces, as tokenized text has it, ends a sentence whatever follows.

Each rule is a pattern and its replacement, for both RE2 and Python, and the rules are
applied in order to one line. They insert a line break after each mark that may end a
sentence, and remove it where it does not. Every rule takes time in proportion to the
length of the line.
"""

import bisect
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from t2t_keras.text.vocabulary import EOS

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


def _letters(category: str) -> str:
    """Returns the Latin, Greek, Cyrillic and Armenian letters of a Unicode category.

    Args:
        category: "Lu" or "Ll".

    Returns:
        The content of a character class.
    """
    blocks = ((0x41, 0x250), (0x370, 0x588), (0x1E00, 0x2000))
    letters = []
    for start, stop in blocks:
        for character in map(chr, range(start, stop)):
            if unicodedata.category(character) == category:
                letters.append(character)
    return "".join(letters)


# Contents of character classes. White space within a line:
SPACE = WHITE_SPACE.replace("\t-\r", "\t\x0b-\r")
CAPITAL = _letters("Lu")
SMALL = _letters("Ll")
# Letters that may be initials: also Hebrew and Arabic.
_INITIAL = f"{CAPITAL}{SMALL}\u00aa\u00ba\u05d0-\u05ea\u0621-\u064a"
_CONSONANT = "bcdfghjklmnpqrstvwxz\u00df\u00e7\u00f1\u0107\u010d\u010f\u0142\u0144"
_CONSONANT += (
    "\u0148\u0159\u015b\u0161\u0165\u017a\u017c\u017e\u0431-\u0434\u0436\u0437"
)
_CONSONANT += "\u043a-\u043d\u043f-\u0442\u0444-\u0449"
# Marks that end a sentence before white space: Latin, Greek, Armenian, Arabic, Urdu,
# Devanagari, Burmese, Ethiopic, Khmer and Mongolian ones.
_MARK = ".!?\u2026\u037e\u0589\u061f\u06d4\u0964\u0965\u104b\u1362\u17d4\u1803\u203c"
_MARK += "\u2047-\u2049"
_WIDE_MARK = "\u3002\uff01\uff1f\uff61"  # they need no white space
_ELLIPSIS = "\u2026"
_WIDE_PERIOD = "\uff0e"  # it is also a decimal point
# Quotes and parentheses between the mark and the end:
_WIDE_CLOSING = (
    "\u3009\u300b\u300d\u300f\u3011\u3015\uff02\uff07\uff09\uff3d\uff5d\uff63"
)
_CLOSING = "\"'\u2018-\u201d\u00ab\u00bb\u2039\u203a)\\]}" + _WIDE_CLOSING
_AFTER_WIDE = f"\"'\u2019\u201d)\\]{_WIDE_CLOSING}"
_DETACHED = ")\\]}\u201d\u00bb"  # those that also close after white space
_QUOTE = "\"'`\u00b4\u2018-\u201f\u00bb\u2039\u203a"
# What may stand between the end of a sentence and the first letter of the next:
_OPENING = f"{_QUOTE}\u00ab(\\[{{\u00a1\u00bf\\-\u2010-\u2015"
_WIDE_OPENING = (
    "\u201c\u2018\u3008\u300a\u300c\u300e\u3010\u3014\uff08\uff3b\uff5b\uff62"
)
# What cannot begin a sentence:
_INNER = ",;:)\\]}%&/*+=<>|\u00b7" + _MARK + _WIDE_MARK + _WIDE_CLOSING
_INNER += "\u3001\uff0c\uff1a\uff1b"
# Symbols, such as emoji, which belong to the sentence before them:
_SYMBOL = "\u2190-\u2bff\ufe0f\u200d\U0001f000-\U0001faff"
# What a sentence cannot consist of: no letters or digits.
_NO_WORD = f"{SPACE}!-/:-@\\[-`{{-~\u00a1-\u00a9\u00ab-\u00b4\u00b6-\u00b9\u00bb\u00bf"
_NO_WORD += f"\u2010-\u206f{_SYMBOL}{_MARK}{_WIDE_MARK}{_WIDE_CLOSING}\u3000-\u3004"
_NO_WORD += _WIDE_OPENING + INVISIBLE
# What may precede an abbreviation, besides the beginning of the line:
_BEFORE = f"{SPACE}.\\-\u2010-\u2015/(\\[{{\"'\u2018-\u201f\u00ab\u00bb"
# Han, Hiragana, Katakana.
_KANJI = "\u3005-\u3007\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_KANJI += "\U00020000-\U0003ffff"


# Abbreviations that usually stand before a name or within a sentence. Those without a
# vowel need not be listed, such as "Mr", "bzw" or "Nr".
_ABBREVIATIONS = (
    "mr|mrs|ms|dr|prof|profa|gen|sen|rep|gov|pres|capt|col|maj|adm|rev|hon|messrs|"
    "supt|jr|sr|st|ste|ave|co|inc|corp|dept|univ|assn|vs|cf|eg|ie|al|approx|ca|viz|"
    "resp|incl|excl|"  # English
    "abb|aufl|abt|allg|dipl|ing|inh|einschl|evtl|exkl|frl|geb|gest|ggf|inkl|insb|mio|"
    "sog|tel|usf|zzgl|"  # German
    "mme|mmes|mlle|mlles|env|av|"  # French
    "sra|srta|dra|ud|uds|vd|vds|gral|lic|avda|dna|do\u00f1a|ee|uu|ff|aa|"  # Spanish
    "sig|sigg|dott|avv|arch|mons|geom|rag|exmo|exma|"  # Italian, Portuguese
    "dhr|mevr|bijv|ir|nl|"  # Dutch
    "bl|dvs|osv|"  # Swedish, Danish
    "ul|im|godz|np|tzw|tzn|in\u017c|\u015bw|nap\u0159|tzv|tj|"  # Polish, Czech
    "\u0443\u043b|\u0438\u043c|\u0440\u0443\u0431|\u0442\u044b\u0441|"
    "\u043f\u0440\u043e\u0444|\u0430\u043a\u0430\u0434|\u0440\u0435\u0434|"  # Russian
    "\u0921\u0949"  # Hindi
)
# Abbreviations before a number.
_NUMBERED = (
    "no|nos|fig|figs|vol|vols|ch|chap|sec|sect|art|arts|par|ref|refs|eq|eqs|ed|abs|kap|"
    "anm|ziff|tab|est|bd|p\u00e1g|p\u00e1gs|n\u00fam|cap|pag|op|"
    "jan|feb|mar|apr|aug|sept|oct|okt|nov|dec|dez|janv|f\u00e9vr|juil|ao\u00fbt|d\u00e9c"
)
_SHORT = "|".join(
    (
        f"[{_INITIAL}]",
        "[IVXLC]{2,6}",
        f"[{_CONSONANT}{_CONSONANT.upper()}][{_CONSONANT}]{{1,4}}",
        f"(?i:{_ABBREVIATIONS})",
    )
)
_FIRST = rf"(?:\A|[{_BEFORE}])"
# "am 3. Mai", "am 3.10. um", but not "it costs 3.50. Then".
_ORDINAL = (
    rf"(?:\A|[{_BEFORE.replace('.', '')}])(?:[0-3]?[0-9]\.[01]?[0-9]|[0-9]{{1,3}})"
)
_NUMBER = rf"[(\[#]?[0-9]|[IVXLC]+(?:[{SPACE},;:)]|\z)"

_Rules = tuple[tuple[str, str], ...]


class SentenceRules(NamedTuple):
    """The rules, in order.

    Attributes:
        initial: rules for every line.
        capital: a pattern that a line with a capital letter has.
        cased: rules for lines with a capital letter.
        final: rules for every line.
    """

    initial: _Rules
    capital: str
    cased: _Rules
    final: _Rules


RULES = SentenceRules(
    initial=(
        # A mark and what belongs to it: "?!", "...", ".”", ". . .", ". )", "! 🙂".
        (
            f"([{_MARK}](?:[{_MARK}{_CLOSING}{_SYMBOL}]|"
            f"[{SPACE}]+[{_MARK}{_DETACHED}{_SYMBOL}])*)",
            r"\1" "\n",
        ),
        # What belongs to the word after it: "! »Ja!«", "! ...and".
        (
            rf"([^{SPACE}])([{SPACE}]+[{_MARK}{_DETACHED}{_SYMBOL}]"
            rf"[{_MARK}{_CLOSING}{_SYMBOL}]*)\n([^{SPACE}])",
            r"\1" "\n" r"\2\3",
        ),
        (rf"\n([^{SPACE}]|\z)", r"\1"),
        # An ellipsis.
        (rf"((?:\.[{SPACE}]*\.|{_ELLIPSIS})[{_CLOSING}{SPACE}]*)\n", r"\1"),
        (rf"((?:{_FIRST}(?:{_SHORT})|{_ORDINAL})\.)\n", r"\1"),
        (rf"({_FIRST}(?i:{_NUMBERED})\.)\n([{SPACE}]+(?:{_NUMBER}))", r"\1\2"),
    ),
    capital=f"[{CAPITAL}]",
    cased=((rf"\n([{SPACE}{_OPENING}]*[{SMALL}])", r"\1"),),
    final=(
        (rf"([^{SPACE}.\n][{SPACE}]+\.)([{SPACE}])", r"\1" "\n" r"\2"),
        (f"([{_WIDE_MARK}][{_WIDE_MARK}{_AFTER_WIDE}]*)", r"\1" "\n"),
        (f"([{_KANJI}]{_WIDE_PERIOD})", r"\1" "\n"),
        # 「はい。」と is one sentence.
        (rf"([{_AFTER_WIDE}])\n([^{SPACE}{_WIDE_OPENING}\n])", r"\1\2"),
        (rf"\n([{SPACE}]*(?:[{_INNER}]|\z))", r"\1"),
        # A quote between two spaces may belong to either side.
        (rf"\n([{SPACE}]+[{_QUOTE}]+(?:[{SPACE}]|\z))", r"\1"),
        (rf"\n([{_NO_WORD}]*(?:\n|\z))", r"\1"),
        (rf"\A([{_NO_WORD}]*)\n", r"\1"),
    ),
)

# Scripts without spaces between words: CJK characters and their punctuation.
WITHOUT_SPACES = "\u2e80-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff01-\uff65"
WITHOUT_SPACES += "\U00020000-\U0003ffff"


def _compiled(rules: _Rules) -> list[tuple[re.Pattern[str], str]]:
    r"""Returns rules for Python, whose end of a text is `\Z`."""
    return [(re.compile(pattern.replace(r"\z", r"\Z")), new) for pattern, new in rules]


_INITIAL_RULES, _CASED_RULES, _FINAL_RULES = (
    _compiled(rules) for rules in (RULES.initial, RULES.cased, RULES.final)
)
_HAS_CAPITAL = re.compile(RULES.capital).search
# A line without it is one sentence.
_MAY_END = re.compile(
    f"[{_MARK}][{_CLOSING}{_SYMBOL}]*[{SPACE}]|[{_WIDE_MARK}{_WIDE_PERIOD}]"
)


def mark_sentence_ends(text: str) -> str:
    """Does what `sentences_graph.mark_sentence_ends_graph` does, in Python."""
    return "\n ".join(map(_marked_line, text.split("\n")))


def _marked_line(line: str) -> str:
    """Returns a line with a line break after each sentence that another one follows."""
    if not _MAY_END.search(line):
        return line
    cased = _CASED_RULES if _HAS_CAPITAL(line) else []
    for pattern, replacement in [*_INITIAL_RULES, *cased, *_FINAL_RULES]:
        line = pattern.sub(replacement, line)
    return line


def tag_pattern(tags: Sequence[str]) -> str:
    """Returns a pattern of a tag, in a group, at the beginning of a text.

    Args:
        tags: the tags, at least one.
    """
    names = "|".join(map(re.escape, tags))
    return rf"\A[{WHITE_SPACE}]*({names})[{WHITE_SPACE}]+"


def _tag_and_body(text: str, tags: Sequence[str]) -> tuple[str, str]:
    """Returns the tag of a text, "" if there is none, and the rest of the text."""
    match = re.match(tag_pattern(tags), text) if tags else None
    return (match[1], text[match.end() :]) if match else ("", text)


def split_sentences(text: str, tags: Sequence[str] = ()) -> list[str]:
    """Returns the sentences of a text, without white space at their ends.

    Args:
        text: the text.
        tags: words of which one may precede the text; every sentence then begins with
            it.

    Returns:
        The text itself, unchanged, unless it has several sentences.
    """
    tag, body = _tag_and_body(text, tags)
    prefix = f"{tag} " if tag else ""
    sentences = []
    for part in mark_sentence_ends(body).split("\n"):
        sentence = part.strip()
        if not is_blank(sentence):
            sentences.append(f"{prefix}{sentence}")
    return sentences if len(sentences) > 1 else [text]


def split_long_text(
    text: str,
    encode_batch: Callable[[Sequence[str]], list[list[int]]],
    max_length: int,
    tags: Sequence[str] = (),
) -> list[list[int]]:
    """Returns the ids of the parts of a text, each ending in EOS.

    Args:
        text: the text.
        encode_batch: maps texts to their ids, EOS last.
        max_length: the largest number of tokens in a part, EOS included; at least 2.
        tags: words, one of which may precede the text; every part then begins with it.
    """
    tag_text, body = _tag_and_body(text, tags)
    tag = encode_batch([tag_text])[0][:-1] if tag_text else []
    words: list[str] = []
    # The indices of the words that begin sentences, and the number of words.
    boundaries = [0]
    for sentence in mark_sentence_ends(body).split("\n"):
        words += re.sub(f"([{WHITE_SPACE}]+)", r"\n\1", sentence).split("\n")
        boundaries.append(len(words))
    # The tokenizers add a space before each text.
    ids = encode_batch([word.removeprefix(" ") for word in words])
    total = [0, *itertools.accumulate(len(row) - 1 for row in ids)]
    limit = max(max_length - 1 - len(tag), 1)
    bounds = [0]
    while (start := bounds[-1]) < len(words):
        fitting = bisect.bisect_right(total, total[start] + limit) - 1
        sentence_end = boundaries[bisect.bisect_right(boundaries, fitting) - 1]
        word_end = max(fitting, start + 1)
        bounds.append(sentence_end if sentence_end > start else word_end)
    parts = ["".join(words[a:b]).strip() for a, b in itertools.pairwise(bounds)]
    rows = []
    for ids_of_part in encode_batch(parts):
        tokens = ids_of_part[:-1]
        # A word that is too long is cut between its tokens.
        for i in range(0, len(tokens), limit):
            rows.append([*tag, *tokens[i : i + limit], EOS])
    return rows


def join_outputs(outputs: Iterable[str]) -> str:
    """Joins the outputs for the parts of a text; none of them has a line break."""
    text = "\n".join(filter(None, outputs))
    return re.sub(f"([{WITHOUT_SPACES}])\n", r"\1", text).replace("\n", " ")

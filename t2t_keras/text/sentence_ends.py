"""Where sentences end: regular expressions for both RE2 and Python.

A sentence ends

- at a line break;
- after `. ! ? …`, their counterparts in other scripts (Arabic, Urdu, Devanagari,
  Armenian, Ethiopic), and closing quotes and parentheses, if white space follows: but
  not after a single letter and a period ("J. S. Bach", "z. B."), a number of one or two
  digits and a period ("am 3. Mai"), or an abbreviation that usually stands before a
  name or a number (`ABBREVIATIONS`);
- after the full-width marks of Chinese and Japanese and closing quotes, whatever
  follows.
"""

from t2t_keras.problem import WHITE_SPACE

# Character classes, besides `WHITE_SPACE`. Marks that end a sentence before white
# space, and marks that always end it:
MARK = ".!?\u2026\u061f\u06d4\u0964\u0965\u0589\u1362\u203c\u2047-\u2049"
_WIDE_MARK = "\u3002\uff01\uff1f\uff61"
# Quotes and parentheses between the mark and the end:
CLOSING = "\"'\u2018-\u201d\u00ab\u00bb\u2039\u203a)\\]}\u3009\u300b\u300d\u300f\u3011"
CLOSING += "\u3015\uff02\uff07\uff09\uff3d\uff5d\uff63"
# Characters that may precede an abbreviation:
_BEFORE = WHITE_SPACE + ".\\-(\\[{\"'\u2018-\u201f\u00ab\u00bb"
# Latin, Greek, Cyrillic.
_LETTER = "A-Za-z\u00aa\u00b5\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f"
_LETTER += "\u0386\u0388-\u0481\u048a-\u052f"

ABBREVIATIONS = (
    "Mr|Mrs|Ms|Dr|Prof|St|Gen|Sen|Rep|Capt|Lt|vs|cf|approx|ca|No|Nos|Nr|Fig|Vol|Ch|pp|"
    "Abb|Bd|bzw|vgl|bspw|evtl|Hr|Fr|Mme|Mlle|Sr|Sra"
)
_SHORT = "|".join((f"[{_LETTER}]", "[0-9][0-9]?", ABBREVIATIONS))

# Patterns and their replacements, in order. They insert a line break between sentences;
# a line break in the text becomes "\n ".
SENTENCE_ENDS = (
    ("\n", "\n "),
    (f"([{MARK}][{MARK}{CLOSING}]*)([{WHITE_SPACE}])", r"\1" "\n" r"\2"),
    (f"([{_WIDE_MARK}][{_WIDE_MARK}{CLOSING}]*)", r"\1" "\n"),
    (rf"((?:\A|[{_BEFORE}])(?:{_SHORT})\.)" "\n", r"\1"),
)

# Scripts without spaces between words: CJK characters and their punctuation.
WITHOUT_SPACES = "\u2e80-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff01-\uff65"
WITHOUT_SPACES += "\U00020000-\U0003ffff"

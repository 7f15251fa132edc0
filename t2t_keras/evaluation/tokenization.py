"""Which of sacreBLEU's tokenizations BLEU takes for a language.

Where words are separated by spaces it is 13a. In Chinese, Japanese, Thai and the like a
whole sentence would be one word for 13a, and BLEU would be zero.
"""

import functools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from t2t_keras.console import say
from t2t_keras.errors import UserError, first_line

if TYPE_CHECKING:
    from sacrebleu.metrics import BLEU

# sacreBLEU's tokenizations; "none" is for text that is tokenized already.
BleuTokens = Literal[
    "13a",
    "intl",
    "zh",
    "ja-mecab",
    "ko-mecab",
    "char",
    "flores101",
    "flores200",
    "none",
]

# sacreBLEU's defaults by language. Its default for any other language is 13a.
_DEFAULTS: dict[str, BleuTokens] = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}

# Other languages without spaces between words, and their scripts.
_WITHOUT_DEFAULT = {
    "th": "Thai",
    "lo": "Lao",
    "km": "Khmer",
    "my": "Myanmar",
    "bo": "Tibetan",
    "dz": "Tibetan",
}

# The codes of ISO 639-2 and 639-3, as in FLORES, and of the other Chinese languages.
_TWO_LETTERS = {
    **dict.fromkeys(("zho", "chi", "cmn", "yue", "wuu", "hak", "gan", "lzh"), "zh"),
    **{"jpn": "ja", "kor": "ko", "tha": "th", "lao": "lo", "khm": "km"},
    **{"mya": "my", "bur": "my", "bod": "bo", "tib": "bo", "dzo": "dz"},
}

# Scripts that only one language uses, or mostly one. Japanese also uses Han.
_SCRIPTS = {
    "zh": r"\p{Han}",
    "ja": r"[\p{Hiragana}\p{Katakana}]",
    "th": r"\p{Thai}",
    "lo": r"\p{Lao}",
    "km": r"\p{Khmer}",
    "my": r"\p{Myanmar}",
    "bo": r"\p{Tibetan}",
}
# At least this share of the letters of Japanese text is kana; about half is usual.
_KANA_IN_JAPANESE = 0.05
# The language is guessed from so many texts.
GUESSING_TEXTS = 500


def short_code(language: str) -> str:
    """Returns the first part of a code, in two letters: "zh" for "zh_CN" or "cmn"."""
    code, *subtags = re.split("[-_]", language.lower())
    if "latn" in subtags:  # such as Chinese in Pinyin, which has spaces
        return ""
    return _TWO_LETTERS.get(code, code)


def is_unspaced(language: str) -> bool:
    """Returns whether a language is written without spaces between words."""
    return short_code(language) in {"zh", "ja", *_WITHOUT_DEFAULT}


# The languages that have another tokenization than 13a, in two letters.
OTHER_LANGUAGES = frozenset({*_DEFAULTS, *_WITHOUT_DEFAULT})


def has_tokenization(language: str) -> bool:
    """Returns whether a language has another tokenization than 13a."""
    return short_code(language) in OTHER_LANGUAGES


def guessed_language(texts: Sequence[str]) -> str | None:
    """Returns the language that the script of texts tells, if it has no spaces.

    Returns:
        None if most of the letters are of a script with spaces between words.
    """
    import regex

    text = "".join(texts[:GUESSING_TEXTS])
    letters = len(regex.findall(r"\p{L}", text))
    counts = {}
    for language, script in _SCRIPTS.items():
        counts[language] = len(regex.findall(rf"(?=\p{{L}}){script}", text))
    if 2 * sum(counts.values()) <= letters:
        return None
    if counts["ja"] >= _KANA_IN_JAPANESE * letters:
        return "ja"
    return max(counts, key=lambda language: counts[language])


def tokenization(language: str | None, references: Sequence[str] = ()) -> BleuTokens:
    """Returns the tokenization that sacreBLEU takes for a target language.

    Where it has none that works, the tokens are characters, and a line on standard
    error says so, once.

    Args:
        language: the code of the language, such as "zh" or "zh_CN"; None: unknown.
        references: texts from which an unknown language without spaces is guessed.
    """
    if language is None:
        language = guessed_language(references)
        if language is None:
            return "13a"
        _say_once(
            "BLEU: the target language is not known; by its script it may be "
            f"'{language}', whose tokenization is taken (--language sets the language)"
        )
    code = short_code(language)
    if code in _WITHOUT_DEFAULT:
        _say_once(
            f"BLEU: language '{language}' has no spaces between words and sacreBLEU no "
            "default for it, so characters are the tokens (char); --tokenize flores200 "
            "splits into subwords"
        )
        return "char"
    tokens = _DEFAULTS.get(code, "13a")
    if tokens.endswith("-mecab") and not _is_installed(tokens):
        _say_once(
            f"BLEU: {tokens}, sacreBLEU's tokenization for '{language}', needs MeCab, "
            "which is not installed, so characters are the tokens (char): "
            f'pip install "sacrebleu[{code}]"'
        )
        return "char"
    return tokens


@functools.cache
def _is_installed(tokens: BleuTokens) -> bool:
    from sacrebleu.metrics import BLEU

    try:
        BLEU(tokenize=tokens)
    except Exception:  # MeCab is missing, or has another dictionary
        return False
    return True


@functools.cache
def _say_once(message: str) -> None:
    say(message)


def sacrebleu(tokens: BleuTokens, effective_order: bool = False) -> "BLEU":
    """Returns sacreBLEU's metric with one of its tokenizations.

    Raises:
        UserError: what the tokenization needs is not installed, or cannot be loaded.
    """
    from sacrebleu.metrics import BLEU

    try:
        # `force` turns off the warning that the text looks tokenized.
        return BLEU(tokenize=tokens, force=True, effective_order=effective_order)
    except Exception as error:
        if tokens.endswith("-mecab"):
            extra = tokens.removesuffix("-mecab")
            raise UserError(
                f"tokenization {tokens} needs MeCab with sacreBLEU's dictionary: "
                f'pip install "sacrebleu[{extra}]"'
            ) from None
        raise UserError(
            f"tokenization {tokens}: sacreBLEU cannot load it: {first_line(error)}"
        ) from None

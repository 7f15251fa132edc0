"""The scripts of Moses with which text is tokenised for published BLEU scores."""

import re
from collections.abc import Sequence
from typing import Final

import regex
from sacremoses import MosesPunctNormalizer, MosesTokenizer
from sacremoses.corpus import NonbreakingPrefixes

from t2t_keras.errors import UserError

# Codes of the languages whose abbreviations sacremoses has.
LANGUAGES: Final = tuple(sorted(set(NonbreakingPrefixes().available_langs.values())))

_LAST_FULL_STOP = re.compile(r"(?<=\S)\.\s*$")
_LETTER = regex.compile(r"\p{Alphabetic}")
_HYPHEN = re.compile(rb"(\S)-(\S)")


class _Tokenizer(MosesTokenizer):
    """sacremoses' tokeniser, corrected where tokenizer.perl differs.

    sacremoses has fewer letters (Chinese ones only in Chinese text), counts control
    characters as spaces, and does not separate the full stop of an abbreviation that
    ends the sentence.
    """

    DEDUPLICATE_SPACE = regex.compile(r"\s+"), " "
    PAD_NOT_ISALNUM = regex.compile(r"([^\p{Alnum}\s.'`,\-])"), r" \1 "

    def handles_nonbreaking_prefixes(self, text: str) -> str:
        return super().handles_nonbreaking_prefixes(_LAST_FULL_STOP.sub(" .", text))

    def isanyalpha(self, text: str) -> bool:
        return bool(_LETTER.search(text))


def tokenize(texts: Sequence[str], language: str) -> list[str]:
    """Tokenises and escapes as `tokenizer.perl -l {language}`.

    It is the same for German, English, French and most other languages. sacremoses
    lacks the script's special rules for Catalan, Finnish, Irish, Swedish and Tetum.

    Returns:
        As many texts, their tokens separated by spaces.

    Raises:
        UserError: the language is not one of `LANGUAGES`.
    """
    check_language(language)
    tokenizer = _Tokenizer(language)
    return [tokenizer.tokenize(text, return_str=True, escape=True) for text in texts]


def check_language(language: str) -> None:
    """Raises a UserError unless the language is one of `LANGUAGES`."""
    if language not in LANGUAGES:
        raise UserError(
            f"--language: '{language}' has no tokeniser; give one of "
            f"{', '.join(LANGUAGES)}"
        )


def replace_unicode_punctuation(texts: Sequence[str]) -> list[str]:
    """Replaces as replace-unicode-punctuation.perl does; it leaves „, « and ‘."""
    replace = MosesPunctNormalizer().replace_unicode_punct
    # The script turns the full-width 1 into a quote, unlike the other digits.
    return [replace(text.replace("１", '"')) for text in texts]


def split_compounds(texts: Sequence[str]) -> list[str]:
    """Makes a hyphen within a word a token, `##AT##-##AT##`, as get_ende_bleu.sh does.

    Its regular expression consumes a byte, not a character, on either side of a hyphen.
    In `a-b-c` the second hyphen has no byte left; in `vis-à-vis` both are split.
    """
    return [
        _HYPHEN.sub(rb"\1 ##AT##-##AT## \2", text.encode()).decode() for text in texts
    ]

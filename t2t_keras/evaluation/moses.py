"""The Moses scripts that tokenize text for published BLEU scores."""

import re
from collections.abc import Sequence
from typing import Final

import regex
from sacremoses import MosesPunctNormalizer, MosesTokenizer
from sacremoses.corpus import NonbreakingPrefixes

from t2t_keras.errors import UserError
from t2t_keras.evaluation.tokenization import OTHER_LANGUAGES

# Codes of the languages for which sacremoses has a list of abbreviations.
LANGUAGES: Final = tuple(sorted(set(NonbreakingPrefixes().available_langs.values())))

_LAST_FULL_STOP = re.compile(r"(?<=\S)\.\s*$")
_LETTER = regex.compile(r"\p{Alphabetic}")
_HYPHEN = re.compile(rb"(\S)-(\S)")


class _Tokenizer(MosesTokenizer):
    """sacremoses' tokenizer, corrected where tokenizer.perl differs.

    That has more letters, no control characters among spaces, and separates the full
    stop of an abbreviation that ends the sentence.
    """

    DEDUPLICATE_SPACE = regex.compile(r"\s+"), " "
    PAD_NOT_ISALNUM = regex.compile(r"([^\p{Alnum}\s.'`,\-])"), r" \1 "

    def handles_nonbreaking_prefixes(self, text: str) -> str:
        return super().handles_nonbreaking_prefixes(_LAST_FULL_STOP.sub(" .", text))

    def isanyalpha(self, text: str) -> bool:
        return bool(_LETTER.search(text))


def tokenize(texts: Sequence[str], language: str) -> list[str]:
    """Tokenizes and escapes texts as `tokenizer.perl -l {language}` does.

    The result is the same for German, English, French and most other languages, but
    sacremoses lacks the special rules for Catalan, Finnish, Irish, Swedish and Tetum.

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
            f"--language: '{language}' has no tokenizer; give one of "
            f"{', '.join(sorted({*LANGUAGES, *OTHER_LANGUAGES}))}"
        )


def replace_unicode_punctuation(texts: Sequence[str]) -> list[str]:
    """Does what replace-unicode-punctuation.perl does; „, « and ‘ stay."""
    replace = MosesPunctNormalizer().replace_unicode_punct
    # The script of 2017 turns the full-width 1 into a quote, unlike the other digits;
    # Moses changed it in 2019.
    return [replace(text.replace("１", '"')) for text in texts]


def split_compounds(texts: Sequence[str]) -> list[str]:
    """Replaces hyphens in words by ` ##AT##-##AT## `, as get_ende_bleu.sh does.

    Its regular expression consumes a byte, not a character, on either side of a hyphen.
    So the second hyphen in `a-b-c` stays, but both in `vis-à-vis` are replaced.
    """
    return [
        _HYPHEN.sub(rb"\1 ##AT##-##AT## \2", text.encode()).decode() for text in texts
    ]

"""BLEU in the conventions that the field quotes, which differ by more than a point."""

import re
from collections.abc import Sequence
from typing import Any

from t2t_keras.errors import UserError

# Only ASCII white space ends a word here, as in the Perl scripts of the paper's time.
_HYPHEN = re.compile(r"(\S)-(\S)", re.ASCII)


def bleu_scores(
    hypotheses: Sequence[str], references: Sequence[str], language: str = "de"
) -> dict[str, Any]:
    """Returns the corpus BLEU of detokenised text, in percent.

    Args:
        hypotheses: one a sentence.
        references: one a sentence.
        language: of both, for the tokeniser of `tokenized_compound_split`.

    Returns:
        `sacrebleu_13a`: sacreBLEU's default.
        `sacrebleu_intl`: its international tokenisation. tensor2tensor's `t2t-bleu`
            is the same, except that it is not 0 where no n-gram of some length
            matches or is possible.
        `sacrebleu_13a_lc`: the default without case.
        `tokenized_compound_split`: the paper's convention, see `paper_tokenize`. It
            is not comparable with the others.
        `signature`: sacreBLEU's signature of `sacrebleu_13a`.

    Raises:
        UserError: there are no sentences, or not as many of one as of the other, or
            the language is not a code of two or three letters.
    """
    from sacrebleu.metrics import BLEU

    if len(hypotheses) != len(references):
        raise UserError(
            f"BLEU: there are {len(hypotheses)} hypotheses and {len(references)} "
            "references; line n of one must belong to line n of the other"
        )
    if not hypotheses:
        raise UserError("BLEU: there are no sentences to score")

    def score(metric: BLEU, ours: Sequence[str], theirs: Sequence[str]) -> float:
        return metric.corpus_score(list(ours), [list(theirs)]).score

    default = BLEU()
    scores: dict[str, Any] = {
        "sacrebleu_13a": score(default, hypotheses, references),
        "sacrebleu_intl": score(BLEU(tokenize="intl"), hypotheses, references),
        "sacrebleu_13a_lc": score(BLEU(lowercase=True), hypotheses, references),
        # What multi-bleu.perl computes: nothing is smoothed. `force` tells sacreBLEU
        # that the text is meant to be tokenised.
        "tokenized_compound_split": score(
            BLEU(tokenize="none", smooth_method="none", force=True),
            paper_tokenize(hypotheses, language),
            paper_tokenize(references, language),
        ),
    }
    return {**scores, "signature": str(default.get_signature())}


def paper_tokenize(texts: Sequence[str], language: str = "de") -> list[str]:
    """Tokenises as tensor2tensor's get_ende_bleu.sh, with which the paper scored.

    Unicode punctuation is replaced by ASCII's, the Moses tokeniser splits and escapes,
    and a hyphen within a word becomes a word of its own, `##AT##-##AT##`.

    Raises:
        UserError: the language is not a code of two or three letters.
    """
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    if not re.fullmatch(r"[a-z]{2,3}", language):
        raise UserError(
            f"BLEU: '{language}' is not a language's code; give one such as de or fr"
        )
    normalizer = MosesPunctNormalizer(language)
    tokenizer = MosesTokenizer(language)
    tokenized: list[str] = []
    for text in texts:
        plain = normalizer.replace_unicode_punct(text)
        words = tokenizer.tokenize(plain, return_str=True, escape=True)
        tokenized.append(_HYPHEN.sub(r"\1 ##AT##-##AT## \2", words))
    return tokenized

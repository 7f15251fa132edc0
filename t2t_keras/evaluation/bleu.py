"""BLEU in the conventions that the field quotes, which differ by more than a point.

Beside it chrF and TER, and for every figure the signature that says how it was made.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from t2t_keras.errors import UserError
from t2t_keras.problem import BleuTokens

if TYPE_CHECKING:
    from sacrebleu.metrics import BLEU

# Only ASCII white space ends a word here, as in the Perl scripts of the paper's time.
_HYPHEN = re.compile(r"(\S)-(\S)", re.ASCII)


def sacrebleu(tokens: BleuTokens) -> "BLEU":
    """Returns sacreBLEU's metric with one of its tokenisations.

    "none" is for text that is tokenised already: words are what spaces separate.
    """
    from sacrebleu.metrics import BLEU

    # `force`: no warning that the text looks tokenised where it is meant to be.
    return BLEU(tokenize=tokens, force=tokens == "none")


def corpus_bleu(
    hypotheses: Sequence[str], references: Sequence[str], tokens: BleuTokens = "13a"
) -> float:
    """Returns sacreBLEU's corpus score, in percent."""
    return sacrebleu(tokens).corpus_score(list(hypotheses), [list(references)]).score


def bleu_scores(
    hypotheses: Sequence[str],
    references: Sequence[str],
    language: str = "de",
    tokens: BleuTokens = "13a",
) -> dict[str, Any]:
    """Returns the corpus scores of a translation, in percent.

    Args:
        hypotheses: one a sentence, detokenised unless `tokens` is "none".
        references: one a sentence, likewise.
        language: of both, for the tokeniser of `tokenized_compound_split`.
        tokens: one more of sacreBLEU's tokenisations to score with.

    Returns:
        `sacrebleu_13a`: sacreBLEU's default.
        `sacrebleu_intl`: its international tokenisation. tensor2tensor's `t2t-bleu`
            is the same, except that it is not 0 where no n-gram of some length
            matches or is possible.
        `sacrebleu_13a_lc`: the default without case.
        `sacrebleu_{tokens}`: with the tokenisation that was asked for.
        `tokenized_compound_split`: the paper's convention, see `paper_tokenize`. It
            is not comparable with the others.
        `chrf`: chrF2, the F-score of character n-grams.
        `ter`: edits for each word of the reference, phrases moved at the cost of one;
            the lower the better, and it may exceed 100.
        `signature`: sacreBLEU's signature of `sacrebleu_13a`.
        `signatures`: of every figure, by its name.

    Raises:
        UserError: there are no sentences, or not as many of one as of the other, or
            the language is not a code of two or three letters.
    """
    from sacrebleu.metrics import BLEU, CHRF, TER

    if len(hypotheses) != len(references):
        raise UserError(
            f"BLEU: there are {len(hypotheses)} hypotheses and {len(references)} "
            "references; line n of one must belong to line n of the other"
        )
    if not hypotheses:
        raise UserError("BLEU: there are no sentences to score")
    metrics = {
        "sacrebleu_13a": sacrebleu("13a"),
        "sacrebleu_intl": sacrebleu("intl"),
        "sacrebleu_13a_lc": BLEU(lowercase=True),
        f"sacrebleu_{tokens}": sacrebleu(tokens),
        "chrf": CHRF(),
        "ter": TER(),
    }
    scores: dict[str, Any] = {
        name: metric.corpus_score(list(hypotheses), [list(references)]).score
        for name, metric in metrics.items()
    }
    # What multi-bleu.perl computes: nothing is smoothed.
    name = "tokenized_compound_split"
    metrics[name] = BLEU(tokenize="none", smooth_method="none", force=True)
    ours, theirs = (paper_tokenize(text, language) for text in (hypotheses, references))
    scores[name] = metrics[name].corpus_score(ours, [theirs]).score

    signatures = {name: str(it.get_signature()) for name, it in metrics.items()}
    # sacreBLEU knows nothing of the tokenisation that went before.
    signatures[name] = signatures[name].replace("tok:none", f"tok:paper-{language}")
    return {
        **scores,
        "signature": signatures["sacrebleu_13a"],
        "signatures": signatures,
    }


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

"""BLEU in the conventions that the field quotes, which differ by more than a point.

Beside it chrF and TER, and for every score the signature that says how it was made.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from t2t_keras.errors import UserError
from t2t_keras.metrics import Metrics

if TYPE_CHECKING:
    from sacrebleu.metrics import BLEU

BleuTokens = Literal["13a", "intl", "zh", "char", "none"]  # sacreBLEU's names

_ASCII_QUOTES = str.maketrans(
    dict.fromkeys("„“”‟«»", '"') | dict.fromkeys("‚‘’‛‹›", "'")
)


@dataclasses.dataclass(frozen=True)
class Bleu(Metrics):
    """BLEU of a problem whose outputs are text, in percent.

    Attributes:
        bleu_tokens: how sacreBLEU splits the text into words for the score during
            training; "none" where it is tokenised already.
        languages: codes of the source's and the target's language, the latter for the
            tokeniser of the paper's BLEU.

    Raises:
        UserError: sacreBLEU has no such tokenisation.
    """

    bleu_tokens: BleuTokens = "13a"
    languages: tuple[str, str] = ("en", "de")

    selection_metric = "bleu"

    def __post_init__(self) -> None:
        names = get_args(BleuTokens)
        if self.bleu_tokens not in names:
            raise UserError(
                f"bleu_tokens must be one of {', '.join(names)}, not "
                f"'{self.bleu_tokens}'"
            )

    def score(
        self, sources: Sequence[str], outputs: Sequence[str], references: Sequence[str]
    ) -> dict[str, float]:
        """Returns "bleu": sacreBLEU's corpus score with `bleu_tokens`."""
        return {"bleu": corpus_bleu(outputs, references, self.bleu_tokens)}

    def report(
        self, sources: Sequence[str], outputs: Sequence[str], references: Sequence[str]
    ) -> dict[str, dict[str, Any]]:
        """Returns `bleu_scores` under "bleu"."""
        from t2t_keras.metrics.moses import LANGUAGES

        target = self.languages[1]
        language = target if target in LANGUAGES else None
        return {"bleu": bleu_scores(outputs, references, language, self.bleu_tokens)}

    def settings(self) -> dict[str, Any]:
        """Returns `bleu_tokens`."""
        return {"bleu_tokens": self.bleu_tokens}


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
    language: str | None = None,
    tokens: BleuTokens = "13a",
) -> dict[str, Any]:
    """Returns the corpus scores of a translation, in percent.

    Args:
        hypotheses: one per sentence, detokenised unless `tokens` is "none".
        references: one per sentence, likewise.
        language: code of both, one of `moses.LANGUAGES`; None: not known, and no
            score with "tokenized" in its name is reported.
        tokens: one more of sacreBLEU's tokenisations to score with.

    Returns:
        `sacrebleu_13a`: sacreBLEU's default.
        `sacrebleu_intl`: its international tokenisation. tensor2tensor's `t2t-bleu`
            is the same, except that it is not 0 where no n-gram of some length
            matches or is possible.
        `sacrebleu_13a_lc`: the default without case.
        `sacrebleu_{tokens}`: with the tokenisation that was asked for.
        `tokenized_compound_split`: of German, the score of get_ende_bleu.sh, the
            script of the paper's authors, see `paper_tokenize`.
        `tokenized_compound_split_ascii_quotes`: of German, the same with the quotes of
            both sides in ASCII.
        `tokenized`: of any other language, both sides tokenised by Moses and nothing
            else. No score with "tokenized" in its name is comparable with another.
        `chrf`: chrF2, the F-score of character n-grams.
        `ter`: edits for each word of the reference, phrases moved at the cost of one;
            the lower the better, and it may exceed 100.
        `language`: as given.
        `signature`: sacreBLEU's signature of `sacrebleu_13a`.
        `signatures`: of every score, by its name.

    Raises:
        UserError: there are no sentences, or not as many of one as of the other, or
            the language has no tokeniser.
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
    signatures = {name: str(it.get_signature()) for name, it in metrics.items()}

    # What multi-bleu.perl computes: nothing is smoothed.
    multi_bleu = BLEU(tokenize="none", smooth_method="none", force=True)
    for name, label, ours, theirs in _tokenized(hypotheses, references, language):
        scores[name] = multi_bleu.corpus_score(ours, [theirs]).score
        # sacreBLEU knows nothing of the tokenisation that went before.
        signature = str(multi_bleu.get_signature())
        signatures[name] = signature.replace("tok:none", f"tok:{label}")
    return {
        **scores,
        "language": language,
        "signature": signatures["sacrebleu_13a"],
        "signatures": signatures,
    }


def paper_tokenize(
    hypotheses: Sequence[str], references: Sequence[str], ascii_quotes: bool = False
) -> tuple[list[str], list[str]]:
    """Tokenises German as tensor2tensor's get_ende_bleu.sh, the paper's script, does.

    Unicode punctuation becomes ASCII in the hypotheses only; then, on both sides, the
    Moses tokeniser splits and escapes, and a hyphen within a word becomes a token,
    `##AT##-##AT##`.

    Args:
        hypotheses: detokenised.
        references: detokenised.
        ascii_quotes: whether the quotes of both sides, „ and « among them, become
            ASCII first: without it, a reference that has “ matches no output. The
            paper's numbers are said to be of such references (tensor2tensor issue 317).

    Returns:
        The tokenised hypotheses and references.
    """
    from t2t_keras.metrics import moses

    hypotheses = moses.replace_unicode_punctuation(hypotheses)
    if ascii_quotes:
        hypotheses = [text.translate(_ASCII_QUOTES) for text in hypotheses]
        references = [text.translate(_ASCII_QUOTES) for text in references]
    return (
        moses.split_compounds(moses.tokenize(hypotheses, "de")),
        moses.split_compounds(moses.tokenize(references, "de")),
    )


def _tokenized(
    hypotheses: Sequence[str], references: Sequence[str], language: str | None
) -> Iterator[tuple[str, str, list[str], list[str]]]:
    """Yields name, label of the tokenisation, hypotheses and references."""
    if language is None:
        return
    if language == "de":
        name, label = "tokenized_compound_split", "get_ende_bleu"
        yield name, label, *paper_tokenize(hypotheses, references)
        ascii_quotes = paper_tokenize(hypotheses, references, ascii_quotes=True)
        yield f"{name}_ascii_quotes", f"{label}-ascii-quotes", *ascii_quotes
        return
    from t2t_keras.metrics import moses

    hypotheses = moses.tokenize(hypotheses, language)
    references = moses.tokenize(references, language)
    yield "tokenized", f"moses-{language}", hypotheses, references

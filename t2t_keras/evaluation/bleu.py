"""BLEU by several conventions in use, which differ by more than a point.

Also chrF and TER, and a signature for every score, which tells how it was computed.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from t2t_keras.option import UserError
from t2t_keras.problem import CorpusMetric, Metrics, Problem

if TYPE_CHECKING:
    import numpy as np
    from sacrebleu.metrics import BLEU
    from sacrebleu.metrics.base import Metric

BleuTokens = Literal["13a", "intl", "zh", "char", "none"]  # sacreBLEU's names

_ASCII_QUOTES = str.maketrans(
    dict.fromkeys("„“”‟«»", '"') | dict.fromkeys("‚‘’‛‹›", "'")
)


@dataclasses.dataclass(frozen=True)
class Bleu(Metrics):
    """BLEU, in percent, for problems whose outputs are text.

    Attributes:
        bleu_tokens: sacreBLEU's tokenization for the score during training; "none" if
            the text is tokenized already.
        languages: language codes of source and target; the target's selects the
            tokenizer for tokenized BLEU. None: those of the problem, or unknown, and
            then there is no tokenized BLEU.

    Raises:
        UserError: sacreBLEU has no such tokenization.
    """

    bleu_tokens: BleuTokens = "13a"
    languages: tuple[str, str] | None = None

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
        metric = sacrebleu(self.bleu_tokens)
        return {"bleu": metric.corpus_score(list(outputs), [list(references)]).score}

    def report(
        self, sources: Sequence[str], outputs: Sequence[str], references: Sequence[str]
    ) -> dict[str, dict[str, Any]]:
        """Returns `bleu_scores` under "bleu"."""
        from t2t_keras.evaluation.moses import LANGUAGES

        target = self.languages[1] if self.languages else None
        language = target if target in LANGUAGES else None
        return {"bleu": bleu_scores(outputs, references, language, self.bleu_tokens)}

    def corpus_metrics(self) -> "tuple[SacrebleuMetric, ...]":
        """Returns BLEU with `bleu_tokens`, and chrF2."""
        from sacrebleu.metrics import CHRF

        # Without it, BLEU of a sentence of fewer than four words is 0.
        sentence = sacrebleu(self.bleu_tokens, effective_order=True)
        return (
            SacrebleuMetric("bleu", sacrebleu(self.bleu_tokens), sentence),
            SacrebleuMetric("chrf", CHRF(), CHRF()),
        )

    def reversed(self) -> "Bleu":
        """Returns the same with the languages swapped."""
        languages = self.languages and self.languages[::-1]
        return dataclasses.replace(self, languages=languages)

    def settings(self) -> dict[str, Any]:
        """Returns `bleu_tokens`."""
        return {"bleu_tokens": self.bleu_tokens}


def metrics_of(problem: Problem) -> Metrics:
    """Returns the metrics of a problem, BLEU in its languages by default."""
    metrics = problem.metrics or Bleu()
    if isinstance(metrics, Bleu) and metrics.languages is None:
        return dataclasses.replace(metrics, languages=problem.languages)
    return metrics


@dataclasses.dataclass(frozen=True)
class SacrebleuMetric(CorpusMetric):
    """A metric of sacreBLEU, by the methods with which it tests differences itself.

    Attributes:
        name: the name in tables.
        metric: sacreBLEU's metric.
        sentence_metric: the metric for single sentences, with the same statistics.
    """

    name: str
    metric: "Metric"
    sentence_metric: "Metric"

    def statistics(
        self, sources: Sequence[str], outputs: Sequence[str], references: Sequence[str]
    ) -> "np.ndarray":
        """Returns sacreBLEU's counts of n-grams, integers [N, n]."""
        import numpy as np

        found = self.metric._extract_corpus_statistics(outputs, [references])
        return np.array(found)

    def score(self, statistics: "np.ndarray") -> float:
        """Returns sacreBLEU's corpus score."""
        counts = cast("list[Any]", statistics)  # sacreBLEU's tests pass arrays, too
        return self.metric._compute_score_from_stats(counts).score

    def sentence_score(self, statistics: "np.ndarray") -> float:
        """Returns sacreBLEU's score of a sentence."""
        counts = cast("list[Any]", statistics)
        return float(self.sentence_metric._compute_score_from_stats(counts).score)

    def settings(self) -> dict[str, str]:
        """Returns sacreBLEU's settings, such as {"case": "mixed", "tok": "13a"}."""
        # A signature can be made once the number of references is known.
        info = self.metric._SIGNATURE_TYPE(vars(self.metric) | {"num_refs": 1}).info
        return {
            name: value
            for name, value in info.items()
            if value is not None and name not in ("nrefs", "version")
        }


def sacrebleu(tokens: BleuTokens, effective_order: bool = False) -> "BLEU":
    """Returns sacreBLEU's metric with one of its tokenizations.

    "none" is for text that is tokenized already: spaces separate the words.
    """
    from sacrebleu.metrics import BLEU

    # `force`: no warning that the text looks tokenized.
    return BLEU(tokenize=tokens, force=True, effective_order=effective_order)


def bleu_scores(
    hypotheses: Sequence[str],
    references: Sequence[str],
    language: str | None = None,
    tokens: BleuTokens = "13a",
) -> dict[str, Any]:
    """Returns the corpus scores of a translation, in percent.

    Args:
        hypotheses: one text per sentence, detokenized unless `tokens` is "none".
        references: one text per sentence, detokenized likewise.
        language: language code of both, one of `moses.LANGUAGES`; None: unknown, and
            no score with "tokenized" in its name is reported.
        tokens: a sacreBLEU tokenization for an additional score.

    Returns:
        `sacrebleu_13a`: sacreBLEU's default.
        `sacrebleu_intl`: its international tokenization. tensor2tensor's `t2t-bleu`
            is the same, except that it is not 0 where no n-gram of some length
            matches or is possible.
        `sacrebleu_13a_lc`: the default, ignoring case.
        `sacrebleu_{tokens}`: the score with the tokenization `tokens`.
        `tokenized_compound_split`: only for German, the score by get_ende_bleu.sh, the
            script of the paper's authors, see `paper_tokenize`.
        `tokenized_compound_split_ascii_quotes`: only for German, the same with the
            quotes of both sides replaced by ASCII ones.
        `tokenized`: for any other language, BLEU after tokenization of both sides by
            Moses. No two scores with "tokenized" in their names are comparable.
        `chrf`: chrF2, the F-score of character n-grams.
        `ter`: edits per reference word, where moving a phrase counts as one; lower is
            better, and it may exceed 100.
        `language`: the argument.
        `signature`: sacreBLEU's signature for `sacrebleu_13a`.
        `signatures`: the signatures of all scores, by name.

    Raises:
        UserError: there are no sentences, or the numbers of hypotheses and references
            differ, or there is no tokenizer for the language.
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
        "sacrebleu_13a_lc": BLEU(lowercase=True, force=True),
        f"sacrebleu_{tokens}": sacrebleu(tokens),
        "chrf": CHRF(),
        "ter": TER(),
    }
    scores: dict[str, Any] = {
        name: metric.corpus_score(list(hypotheses), [list(references)]).score
        for name, metric in metrics.items()
    }
    signatures = {name: str(it.get_signature()) for name, it in metrics.items()}

    # BLEU as multi-bleu.perl computes it, without smoothing.
    multi_bleu = BLEU(tokenize="none", smooth_method="none", force=True)
    for name, label, ours, theirs in _tokenized(hypotheses, references, language):
        scores[name] = multi_bleu.corpus_score(ours, [theirs]).score
        # sacreBLEU does not know of the tokenization that went before.
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
    """Tokenizes German as tensor2tensor's get_ende_bleu.sh, the paper's script, does.

    In the hypotheses only, Unicode punctuation is replaced by ASCII. Then, on both
    sides, the Moses tokenizer splits and escapes the text, and a hyphen within a word
    becomes the token `##AT##-##AT##`.

    Args:
        hypotheses: detokenized texts.
        references: detokenized texts.
        ascii_quotes: whether to replace quotes such as „ and « by ASCII ones on both
            sides first: otherwise “ in a reference matches no output. The paper's
            scores are said to use such references (tensor2tensor issue 317).

    Returns:
        The tokenized hypotheses and references.
    """
    from t2t_keras.evaluation import moses

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
    """Yields name, label of the tokenization, hypotheses and references."""
    if language is None:
        return
    if language == "de":
        name, label = "tokenized_compound_split", "get_ende_bleu"
        yield name, label, *paper_tokenize(hypotheses, references)
        ascii_quotes = paper_tokenize(hypotheses, references, ascii_quotes=True)
        yield f"{name}_ascii_quotes", f"{label}-ascii-quotes", *ascii_quotes
        return
    from t2t_keras.evaluation import moses

    hypotheses = moses.tokenize(hypotheses, language)
    references = moses.tokenize(references, language)
    yield "tokenized", f"moses-{language}", hypotheses, references

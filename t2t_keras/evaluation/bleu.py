"""BLEU by several conventions, chrF and TER, each with a signature of its settings."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast, get_args

from t2t_keras.console import say
from t2t_keras.errors import UserError, quantity
from t2t_keras.evaluation.tokenization import (
    BleuTokens,
    is_unspaced,
    sacrebleu,
    short_code,
    tokenization,
)
from t2t_keras.metrics import CorpusMetric, Metrics
from t2t_keras.problem import Problem

if TYPE_CHECKING:
    import numpy as np
    from sacrebleu.metrics.base import Metric

# The longest text for which TER is computed, which takes some ten seconds then: the
# time grows with the square of the number of words.
_TER_WORDS = 5_000

_ASCII_QUOTES = str.maketrans(
    dict.fromkeys("„“”‟«»", '"') | dict.fromkeys("‚‘’‛‹›", "'")
)


@dataclasses.dataclass(frozen=True)
class Bleu(Metrics):
    """BLEU, in percent, for problems whose outputs are text.

    Attributes:
        bleu_tokens: sacreBLEU's tokenization during training; "none": the text is
            tokenized already; None: by the target language (`tokenization`).
        languages: language codes of source and target; None: the problem's. If they
            are unknown, there is no tokenized BLEU.

    Raises:
        UserError: sacreBLEU has no such tokenization.
    """

    bleu_tokens: BleuTokens | None = None
    languages: tuple[str, str] | None = None

    selection_metric = "bleu"

    def __post_init__(self) -> None:
        names = get_args(BleuTokens)
        if self.bleu_tokens is not None and self.bleu_tokens not in names:
            raise UserError(
                f"bleu_tokens must be one of {', '.join(names)}, not "
                f"'{self.bleu_tokens}'"
            )

    @property
    def target_language(self) -> str | None:
        """The language code of the outputs; None: unknown."""
        return (self.languages[1] or None) if self.languages else None

    def score(
        self, sources: Sequence[str], outputs: Sequence[str], references: Sequence[str]
    ) -> dict[str, float]:
        """Returns "bleu": sacreBLEU's corpus score with `bleu_tokens`."""
        tokens = self.bleu_tokens or tokenization(self.target_language, references)
        score = sacrebleu(tokens).corpus_score(list(outputs), [list(references)]).score
        return {"bleu": score}

    def report(
        self, sources: Sequence[str], outputs: Sequence[str], references: Sequence[str]
    ) -> dict[str, dict[str, object]]:
        """Returns `bleu_scores` under "bleu"."""
        language = self.target_language
        return {"bleu": bleu_scores(outputs, references, language, self.bleu_tokens)}

    def corpus_metrics(self) -> "tuple[SacrebleuMetric, ...]":
        """Returns BLEU with `bleu_tokens`, and chrF2."""
        from sacrebleu.metrics import CHRF

        tokens = self.bleu_tokens or tokenization(self.target_language)
        # Without the effective order, BLEU of a sentence of fewer than four words is 0.
        sentence = sacrebleu(tokens, effective_order=True)
        return (
            SacrebleuMetric("bleu", sacrebleu(tokens), sentence),
            SacrebleuMetric("chrf", CHRF(), CHRF()),
        )

    def reversed(self) -> "Bleu":
        """Returns the same with the languages swapped."""
        languages = self.languages and self.languages[::-1]
        return dataclasses.replace(self, languages=languages)

    def settings(self) -> dict[str, object]:
        """Returns `bleu_tokens`, or if it is None, the target language's."""
        tokens = self.bleu_tokens or tokenization(self.target_language)
        return {"bleu_tokens": tokens}


def metrics_of(problem: Problem, references: Sequence[str] = ()) -> Metrics:
    """Returns the metrics of a problem, BLEU in its languages by default.

    If the target language is unknown, the script of the references decides how BLEU is
    tokenized.
    """
    metrics = problem.metrics or Bleu()
    if not isinstance(metrics, Bleu):
        return metrics
    if metrics.languages is None:
        metrics = dataclasses.replace(metrics, languages=problem.languages)
    if references and metrics.bleu_tokens is None:
        tokens = tokenization(metrics.target_language, references)
        metrics = dataclasses.replace(metrics, bleu_tokens=tokens)
    return metrics


def with_bleu(
    problem: Problem,
    option: str,
    tokens: BleuTokens | None = None,
    language: str | None = None,
) -> Problem:
    """Returns the problem with another tokenization or target language of its BLEU.

    Raises:
        UserError: the problem is not scored by BLEU, which `option` asks for.
    """
    metrics = metrics_of(problem)
    if not isinstance(metrics, Bleu):
        raise UserError(f"{option}: problem '{problem.name}' is not scored by BLEU")
    languages = metrics.languages
    if language:
        languages = (languages[0] if languages else "", language)
    tokens = tokens or metrics.bleu_tokens
    changed = dataclasses.replace(metrics, bleu_tokens=tokens, languages=languages)
    return problem.replace(metrics=changed)


@dataclasses.dataclass(frozen=True)
class SacrebleuMetric(CorpusMetric):
    """A metric of sacreBLEU, by the methods with which it tests differences itself.

    Single sentences may have another metric, with the same statistics.
    """

    name: str
    metric: "Metric"
    sentence_metric: "Metric"

    def statistics(
        self, sources: Sequence[str], outputs: Sequence[str], references: Sequence[str]
    ) -> "np.ndarray":
        """Returns sacreBLEU's counts of n-grams, integers [N, n]."""
        import numpy as np

        statistics = self.metric._extract_corpus_statistics(outputs, [references])
        return np.array(statistics)

    def score(self, statistics: "np.ndarray") -> float:
        """Returns sacreBLEU's corpus score."""
        counts = cast("list[Any]", statistics)  # sacreBLEU's tests also pass arrays
        return self.metric._compute_score_from_stats(counts).score

    def sentence_score(self, statistics: "np.ndarray") -> float:
        """Returns sacreBLEU's score of a sentence."""
        counts = cast("list[Any]", statistics)
        return float(self.sentence_metric._compute_score_from_stats(counts).score)

    def settings(self) -> dict[str, str]:
        """Returns sacreBLEU's settings, such as {"case": "mixed", "tok": "13a"}."""
        # sacreBLEU needs the number of references for a signature.
        info = self.metric._SIGNATURE_TYPE(vars(self.metric) | {"num_refs": 1}).info
        settings = {}
        for name, value in info.items():
            if value is not None and name not in ("nrefs", "version"):
                settings[name] = value
        return settings


def bleu_scores(
    hypotheses: Sequence[str],
    references: Sequence[str],
    language: str | None = None,
    tokens: BleuTokens | None = None,
) -> dict[str, object]:
    """Returns the corpus scores of a translation, in percent.

    Args:
        hypotheses: one text per sentence, detokenized unless `tokens` is "none".
        references: one text per sentence, detokenized unless `tokens` is "none".
        language: language code of both; None: unknown.
        tokens: a sacreBLEU tokenization; None: its default for the language.

    Returns:
        `sacrebleu_13a`, sacreBLEU's default; `sacrebleu_13a_lc` ignores case.
        `sacrebleu_intl`, as tensor2tensor's `t2t-bleu`, which however is not 0 if no
            n-gram of some length matches.
        `sacrebleu_{tokens}`, which counts in languages without spaces.
        For German `tokenized_compound_split` (see `paper_tokenize`), and the same with
            `_ascii_quotes`; for other languages `tokenized`, by Moses. No two of them
            are comparable.
        `chrf`: chrF2; `ter`: edits per reference word, lower is better, unless a text
            is too long for it.
        `language`, `signature` of `sacrebleu_13a`, and `signatures` of all by name.

    Raises:
        UserError: there are no sentences, the numbers of hypotheses and references
            differ, or the tokenization is not installed.
    """
    from sacrebleu.metrics import BLEU, CHRF, TER

    if len(hypotheses) != len(references):
        raise UserError(
            f"BLEU: {quantity(len(hypotheses), 'hypotheses', 'hypothesis')} but "
            f"{quantity(len(references), 'references')}; line n of one must belong to "
            "line n of the other"
        )
    if not hypotheses:
        raise UserError("BLEU: there are no sentences to score")
    tokens = tokens or tokenization(language, references)
    metrics = {
        f"sacrebleu_{tokens}": sacrebleu(tokens),
        "sacrebleu_13a": sacrebleu("13a"),
        "sacrebleu_intl": sacrebleu("intl"),
        "sacrebleu_13a_lc": BLEU(lowercase=True, force=True),
        "chrf": CHRF(),
    }
    if not _too_long_for_ter(hypotheses, references):
        metrics["ter"] = TER()
    scores: dict[str, object] = {}
    signatures: dict[str, str] = {}
    for name, metric in metrics.items():
        score = metric.corpus_score(list(hypotheses), [list(references)])
        scores[name] = score.score
        signatures[name] = str(metric.get_signature())
        if name == f"sacrebleu_{tokens}" and not score.totals[-1]:
            say("BLEU: no output has four tokens, so BLEU is 0; see chrF")

    # BLEU as multi-bleu.perl computes it, without smoothing.
    multi_bleu = BLEU(tokenize="none", smooth_method="none", force=True)
    for name, label, tokenized, tokenized_references in _tokenized(
        hypotheses, references, language
    ):
        scores[name] = multi_bleu.corpus_score(tokenized, [tokenized_references]).score
        # sacreBLEU does not know of the earlier tokenization.
        signature = str(multi_bleu.get_signature())
        signatures[name] = signature.replace("tok:none", f"tok:{label}")
    return {
        **scores,
        "language": language,
        "signature": signatures["sacrebleu_13a"],
        "signatures": signatures,
    }


def _too_long_for_ter(hypotheses: Sequence[str], references: Sequence[str]) -> bool:
    """Returns whether a text is too long for TER, and says so."""
    for line, pair in enumerate(zip(hypotheses, references, strict=True), start=1):
        words = max(len(text.split()) for text in pair)
        if words > _TER_WORDS:
            say(
                f"TER is left out: line {line:,} has {words:,} words, for which it "
                "would take minutes or hours; write one sentence per line"
            )
            return True
    return False


def paper_tokenize(
    hypotheses: Sequence[str], references: Sequence[str], ascii_quotes: bool = False
) -> tuple[list[str], list[str]]:
    """Tokenizes German as tensor2tensor's get_ende_bleu.sh, the paper's script, does.

    In the hypotheses only, Unicode punctuation is replaced by ASCII. Then, on both
    sides, the Moses tokenizer splits and escapes the text, and a hyphen within a word
    becomes the token `##AT##-##AT##`.

    With `ascii_quotes`, quotes such as „ and « first become ASCII ones on both sides:
    otherwise “ in a reference matches no output. The paper's scores are said to use
    such references (tensor2tensor issue 317).
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
    from t2t_keras.evaluation import moses

    code = short_code(language or "")
    if code not in moses.LANGUAGES or is_unspaced(code):
        return
    if code == "de":
        name = "tokenized_compound_split"
        label = "get_ende_bleu"
        yield name, label, *paper_tokenize(hypotheses, references)
        ascii_quotes = paper_tokenize(hypotheses, references, ascii_quotes=True)
        yield f"{name}_ascii_quotes", f"{label}-ascii-quotes", *ascii_quotes
        return
    hypotheses = moses.tokenize(hypotheses, code)
    references = moses.tokenize(references, code)
    yield "tokenized", f"moses-{code}", hypotheses, references

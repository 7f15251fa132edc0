"""The rows that `translate` and `score` write for a text."""

import argparse
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from t2t_keras.options import OptionValues

if TYPE_CHECKING:
    from t2t_keras.decoding.outputs import Hypothesis, Score
    from t2t_keras.decoding.translator import Translator


def is_numbered(args: argparse.Namespace, options: OptionValues) -> bool:
    """Returns whether the output has line numbers, ranks and scores."""
    return bool(args.scores or args.token_scores or options.get("n_best", 1) > 1)


def numbered_rows(
    line_number: int,
    hypotheses: "Sequence[Hypothesis]",
    translator: "Translator | None",
) -> Iterator[str]:
    """Yields the lines of `--scores`.

    Args:
        line_number: number of the input, from 1.
        hypotheses: its outputs, best first.
        translator: the translator, for token scores; None: they are not written.
    """
    for rank, hypothesis in enumerate(hypotheses, 1):
        row = f"{line_number}\t{rank}\t{hypothesis.score:.6f}\t{hypothesis.text}"
        if translator is not None:
            row += f"\t{token_scores(translator, hypothesis)}"
        yield f"{row}\n"


def token_scores(translator: "Translator", scored: "Hypothesis | Score") -> str:
    """Returns a list in JSON: the tokens, each with its log-probability."""
    pieces = translator.target_tokenizer.pieces
    pairs = zip(scored.ids, scored.token_log_probs, strict=True)
    rows = [(pieces[token], round(log_prob, 6)) for token, log_prob in pairs]
    return json.dumps(rows, ensure_ascii=False)


def score_row(score: "Score", translator: "Translator | None" = None) -> str:
    """Returns the line of a pair, `log-probability TAB tokens`.

    Args:
        score: the score of the target.
        translator: the translator, for token scores; None: they are not written.
    """
    row = f"{score.log_prob:.6f}\t{score.tokens}"
    return row if translator is None else f"{row}\t{token_scores(translator, score)}"

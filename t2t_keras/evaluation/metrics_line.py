"""Evaluations in a line, as a training and `t2t evaluate` print them."""

from collections.abc import Mapping
from typing import Final

from t2t_keras.quantity import quantity

# The metrics that `Evaluator.loss` returns, of all sentences of a split.
LOSS_METRICS: Final = ("loss", "perplexity", "accuracy")


def counts_line(split: str, sentences: int, decoded: int | None) -> str:
    """Formats how many sentences of a split the loss and the scores cover.

    Args:
        split: the name of the split.
        sentences: the number of its sentences, all of which the loss covers.
        decoded: the number of sentences to decode; None: all; 0: only the loss.

    Returns:
        A line; "": every metric is of all sentences.
    """
    if not decoded or decoded >= sentences:
        return ""
    return (
        f"{split}: nll of all {quantity(sentences, 'sentences')}, scores of the first "
        f"{decoded:,}"
    )


def evaluation_line(step: int, label: str, metrics: dict[str, float]) -> str:
    """Formats an evaluation with its step and label."""
    return " | ".join([f"step {step} {label}", *shown_metrics(metrics)])


def shown_metrics(metrics: Mapping[str, float]) -> list[str]:
    """Formats metrics; the loss, which is not label-smoothed, is called "nll"."""
    shown = []
    for name, value in metrics.items():
        shown_name = "nll" if name == "loss" else name
        shown.append(f"{shown_name} {short_number(value)}")
    return shown


def short_number(value: float) -> str:
    """Formats a number with four significant digits, thousands in full."""
    if abs(value) < 1e-12:  # such as sacreBLEU's score of an untrained model
        return "0"
    return f"{value:.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"

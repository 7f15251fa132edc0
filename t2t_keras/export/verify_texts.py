"""Verification of a text processor: what it does in the graph, and in Python."""

from collections.abc import Sequence

import tensorflow as tf

from t2t_keras.errors import UserError
from t2t_keras.text_processor import TextProcessor


def verify_text_processor(
    processor: TextProcessor,
    sources: Sequence[str],
    targets: Sequence[str],
    raw: bool = False,
) -> None:
    """Compares the methods for the graph with those for Python.

    Texts that the latter refuse or repair are left out.

    Args:
        processor: the text processor of a problem.
        sources: texts in the form of the training data's.
        targets: the target of each source.
        raw: see `TextProcessor.preprocess`.

    Raises:
        UserError: they differ; the message has the first text for which they do.
    """
    for source, target in zip(sources, targets, strict=True):
        try:
            text = processor.preprocess(source, raw)
        except (UserError, ValueError, LookupError):
            continue  # The form of its users is another.
        graph_text = processor.preprocess_graph(tf.constant([source]), raw)[0]
        _require_same(processor, "preprocess", source, text, graph_text)
        output, is_repaired = processor.postprocess(source, target)
        if target and not is_repaired:
            rows = processor.postprocess_graph(
                tf.constant([source]), tf.constant([[target]])
            )
            _require_same(processor, "postprocess", target, output, rows[0, 0])


def _require_same(
    processor: TextProcessor, method: str, text: str, expected: str, actual: tf.Tensor
) -> None:
    """Refuses a method whose result in the graph is not that of Python."""
    result = actual.numpy().decode("utf-8", "replace")
    if result != expected:
        name = type(processor).__name__
        raise UserError(
            f"--verify: the export is refused, because {name}.{method}_graph makes "
            f"'{result}' of '{text}', and {method} '{expected}'; correct one of them, "
            "or give --verify 0 to write the export without verification"
        )

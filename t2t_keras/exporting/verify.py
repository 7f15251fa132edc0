"""Verification: an export is compared with the run before it gets its name.

The text processor in the graph is compared with the one in Python.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from t2t_keras.decoding.engine import Engine, Source
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.errors import UserError
from t2t_keras.problem import TextProcessor
from t2t_keras.text.sentences import is_blank
from t2t_keras.text.vocabulary import EOS

if TYPE_CHECKING:
    import tensorflow as tf

    from t2t_keras.decoding.graph_engine import ModelTranslator


# How far scores may differ: float32 has seven digits, so below -100 it is a share.
TOLERANCE = {"abs_tol": 1e-4, "rel_tol": 1e-6}
MIN_SHARE = 0.25  # of identical outputs, where arithmetic differs


class Output(NamedTuple):
    """The best output for a source.

    Attributes:
        ids: its tokens; EOS is the last, unless the output reached its limit.
        score: its log-probability over the length penalty.
    """

    ids: tuple[int, ...]
    score: float


class Verification:
    """The comparison of an export with the run that it is made from.

        verification = Verification(["A house.", "A dog runs."])
        export_saved_model(translator, "served/1", verify=verification)

    Args:
        texts: sources in the form of the training data's; blank ones are left out.

    Attributes:
        texts: the sources that are compared, longest first.
        identical: for how many of them the export has the outputs of the run.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = [text for text in texts if not is_blank(text)]
        self.identical = 0

    def expect(self, translator: "ModelTranslator", **options: Any) -> None:
        """Translates the sources with the run.

        Args:
            translator: the translator of the run.
            **options: the decoding options of the comparison.
        """
        limit = translator.choose(**options).max_source_length - 1
        tokenizer = translator.source_tokenizer
        encoded = sorted(tokenizer.encode_batch(self.texts), key=len, reverse=True)
        self._sources = [[*ids[:-1][:limit], EOS] for ids in encoded]
        self.texts = [tokenizer.decode(ids) for ids in self._sources]
        self._text_of = translator.target_tokenizer.decode
        with _float32_products():
            # The export's ids are those of whole sources.
            whole_sources = options | {"split_sentences": False}
            n_best_lists = translator.n_best_of_ids(
                self._sources, self.texts, **whole_sources
            )
        self._expected = [Output(best.ids, best.score) for best, *_ in n_best_lists]

    @property
    def outputs(self) -> list[str]:
        """The outputs of the run as text, in the tokenizer's form."""
        return [self._text_of(output.ids) for output in self._expected]

    def expect_greedy(
        self, translator: "ModelTranslator", options: DecodingOptions
    ) -> None:
        """Translates the sources with greedy search, without a length penalty.

        Args:
            translator: the translator of the run.
            options: its `max_source_length` and `extra_length` are used.
        """
        self.expect(
            translator,
            beam_size=1,
            n_best=1,
            alpha=0.0,
            min_length=0,
            max_source_length=options.max_source_length,
            extra_length=options.extra_length,
        )

    def check(
        self, translate: Callable[[list[list[int]]], list[Output]], exact: bool = True
    ) -> None:
        """Translates the sources with the export and compares the outputs.

        Args:
            translate: maps the ids of sources, EOS last, to their outputs.
            exact: whether ids must be equal, and scores up to `TOLERANCE`, for every
                source. Otherwise (rounding to 8 or 16 bits changes some outputs) only
                ids are compared, and a share of `MIN_SHARE` suffices.

        Raises:
            UserError: the outputs differ; the message has the first source for which
                they do.
        """
        if not self.texts:
            return
        with _float32_products():
            outputs = translate(self._sources)
        are_identical = [
            _is_same(expected, output, exact)
            for expected, output in zip(self._expected, outputs, strict=True)
        ]
        self.identical = sum(are_identical)
        count = len(outputs)
        if self.identical >= (count if exact else MIN_SHARE * count):
            return
        index = are_identical.index(False)
        raise UserError(
            f"--verify: the export is refused, because {count - self.identical} of "
            f"{count} outputs differ from the run's: for '{self.texts[index]}' the "
            f"export has {self._described(outputs[index])}, and the run has "
            f"{self._described(self._expected[index])}; report this as a bug, or give "
            "--verify 0 to write the export without verification"
        )

    def _described(self, output: Output) -> str:
        """Returns the text, the score and the ids of an output, for messages."""
        ids = " ".join(map(str, output.ids))
        text = self._text_of(output.ids)
        return f"'{text}' (score {output.score:.5f}, ids {ids})"


def search_of(
    engine: Engine, options: DecodingOptions
) -> Callable[[list[list[int]]], list[Output]]:
    """Returns the search of an engine as a function for `Verification.check`."""

    def translate(sources: list[list[int]]) -> list[Output]:
        outputs = []
        for hypotheses in engine.search([Source(ids, "") for ids in sources], options):
            outputs.append(Output(hypotheses[0].ids, hypotheses[0].score))
        return outputs

    return translate


def _is_same(expected: Output, output: Output, exact: bool) -> bool:
    """Returns whether two outputs agree."""
    if expected.ids != output.ids:
        return False
    return not exact or math.isclose(expected.score, output.score, **TOLERANCE)


@contextlib.contextmanager
def _float32_products() -> Iterator[None]:
    """Keeps GPUs from rounding the factors of float32 products to TensorFloat-32."""
    from tensorflow import config

    was_enabled = config.experimental.tensor_float_32_execution_enabled()
    config.experimental.enable_tensor_float_32_execution(False)
    try:
        yield
    finally:
        config.experimental.enable_tensor_float_32_execution(was_enabled)


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
    import tensorflow as tf

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
    processor: TextProcessor, method: str, text: str, expected: str, actual: "tf.Tensor"
) -> None:
    """Refuses a method whose result in the graph differs from Python's."""
    result = actual.numpy().decode("utf-8", "replace")
    if result != expected:
        name = type(processor).__name__
        raise UserError(
            f"--verify: the export is refused, because {name}.{method}_graph makes "
            f"'{result}' of '{text}', and {method} '{expected}'; correct one of them, "
            "or give --verify 0 to write the export without verification"
        )

"""A LiteRT model as an engine of `Translator`."""

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from t2t_keras.decoding.engine import (
    Progress,
    Source,
    TokenHypothesis,
    TokenScores,
    log_probs_of_scores,
    n_best_tokens,
    refuse_changes,
)
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.errors import UserError
from t2t_keras.export.directory import require_intact
from t2t_keras.export.saved_model_engine import SearchOnlyEngine
from t2t_keras.export.settings import (
    SETTINGS,
    ExportedTranslator,
    TextProcessorSettings,
)
from t2t_keras.problem import TextProcessor
from t2t_keras.text.tokenizer import Tokenizer, load_tokenizer

MODEL = "model.tflite"

# `Translator` itself applies them.
_FREE_OPTIONS = ("batch_tokens", "split_sentences", "truncate")


class LiteRTEngine(SearchOnlyEngine):
    """Computes a model that `export_litert` wrote, sentence by sentence; see `Engine`.

    The search is built into the model, with its beam size and its limits. There are
    no scores of given targets, no attention and no prefixes.

    Args:
        model_path: the file of the model.
        problem_name: name of the problem.
        text_processor: the text processor.
        source_tokenizer: the vocabulary of sources.
        target_tokenizer: the vocabulary of targets.
        options: the decoding options of the export.
    """

    name = "litert"
    graph_name = "a LiteRT model"
    divides_batches = False
    has_fixed_beam = True

    def __init__(
        self,
        model_path: Path,
        problem_name: str,
        text_processor: TextProcessor,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        options: DecodingOptions,
    ) -> None:
        interpreter = Interpreter(model_path=str(model_path), num_threads=1)
        self._run = interpreter.get_signature_runner()
        # The interpreter's tensors are those of one sentence.
        self._lock = threading.Lock()
        self.problem_name = problem_name
        self.text_processor = text_processor
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.options = options

    def check(self, options: DecodingOptions) -> None:
        """Refuses changes of options that are built in."""
        names = vars(options).keys() - set(_FREE_OPTIONS)
        reason = "a LiteRT model has it built in; export it again"
        refuse_changes(options, self.options, sorted(names), reason)

    def search(
        self,
        sources: Sequence[Source],
        options: DecodingOptions,
        progress: Progress | None = None,
    ) -> list[list[TokenHypothesis]]:
        """Returns the n best hypotheses of each source; see `Engine`."""
        self.require_no_prefixes(sources)
        results = []
        for source in sources:
            results.append(self._search_sentence(source.ids))
            if progress is not None:
                progress([source])
        return results

    def score(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        options: DecodingOptions,
    ) -> list[TokenScores]:
        """Refuses to score targets, which the model cannot do."""
        raise UserError("LiteRT computes no scores of targets; load the run directory")

    def _search_sentence(self, ids: Sequence[int]) -> list[TokenHypothesis]:
        """Returns the n best hypotheses of one sentence."""
        with self._lock:
            outputs = self._run(ids=np.array([ids], np.int32))
            rows = outputs["ids"].copy()  # [n, T]
            scores = outputs["scores"].copy()  # [n]
        lengths = np.count_nonzero(rows, axis=1)  # [n]
        log_probs = log_probs_of_scores(scores, lengths, self.options)
        return n_best_tokens(rows, scores, log_probs, lengths)


def load_litert(path: Path) -> ExportedTranslator:
    """Loads an export.

    Raises:
        UserError: an earlier version wrote it, or the problem's text processor is
            unknown.
    """
    require_intact(path)
    settings = TextProcessorSettings.read(path)
    if settings is None:
        raise UserError(
            f"--export_dir: {path} has no {SETTINGS}; export the model again"
        )
    text_processor = settings.make_text_processor()
    if text_processor is None:
        raise UserError(
            f"--export_dir: {path} is of problem '{settings.problem}', which is not "
            "registered; give its --usr_dir"
        )
    engine = LiteRTEngine(
        path / MODEL,
        settings.problem,
        text_processor,
        load_tokenizer(next(path.glob("source.*"))),
        load_tokenizer(next(path.glob("target.*"))),
        DecodingOptions.of_recorded(settings.decoding, path / SETTINGS),
    )
    return ExportedTranslator(engine, settings)

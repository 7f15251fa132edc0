"""A run or an export as the signatures of an export."""

import functools
import math
import threading
from collections.abc import Callable, Mapping, Sequence

from t2t_keras.console import say
from t2t_keras.decoding.engine import Hypothesis
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.decoding.translator import Translator
from t2t_keras.errors import UserError

from .explanation import PHRASES, PREFIXES, Explainer, alternatives, missing_features
from .requests import Options, Outputs


class Unwanted(Exception):
    """Nobody waits for the results any more."""


class ServedModel:
    """A translator with the default options of the server.

    Args:
        translator: the translator of a run or of an export (which has `settings`).
        **options: changes to the default decoding options.

    Attributes:
        defaults: the default values of the options that requests may have.
        divides_batches: whether the engine searches parts of a batch in threads.
        split_sentences: whether texts of several sentences are split into them.
        languages: the codes of the source's and the target's language; None: unknown.
        missing: what the model cannot do, with the reason; see `missing_features`.
    """

    def __init__(self, translator: Translator, **options: object) -> None:
        self._translator = translator
        self.divides_batches: bool = translator.engine.divides_batches
        self._options: Options = options
        resolved = translator.choose(**options)
        names = DecodingOptions.names("is_served")
        # An export may take fewer, such as none that forbids phrases.
        available = getattr(translator, "request_options", names)
        self.defaults = {
            name: getattr(resolved, name) for name in names if name in available
        }
        self.split_sentences: bool = resolved.split_sentences
        self.languages = _languages(translator)
        self.missing = missing_features(translator)
        self._explainer = Explainer(translator, self.missing)

    def predict(
        self,
        signature: str,
        rows: Sequence[Mapping[str, str]],
        options: Options,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> list[Outputs]:
        """Returns the outputs of a signature for each row.

        The server calls this in several threads. A run has the same signatures as an
        export, except for the ids signatures.

        Args:
            signature: the name of the signature.
            rows: the texts of each row.
            options: the decoding options.
            is_wanted: called after each batch; returns whether anybody waits for the
                results.

        Raises:
            UserError: the inputs are impossible, or the model lacks what they need.
            Unwanted: nobody waits any more.
        """

        def advance(count: int) -> None:
            if not is_wanted():
                raise Unwanted

        if signature == "options":
            return [DecodingOptions.inputs(self.defaults, self.defaults)]
        texts = [row["texts"] for row in rows]
        if signature == "score":
            targets = [row["targets"] for row in rows]
            scores = self._translator.score(texts, targets, **self._options)
            return [score._asdict() for score in scores]
        options = self._options | options
        if signature in ("explain", "alternatives"):
            prefixes = [row["prefixes"] for row in rows]
            if signature == "explain":
                return self._explainer.explain(texts, prefixes, options, advance)
            if PREFIXES in self.missing:
                raise UserError(self.missing[PREFIXES])
            return alternatives(self._translator, texts, prefixes, options, advance)
        n_best_lists = self._translator.n_best(texts, advance=advance, **options)
        n = options.get("n_best", self.defaults["n_best"])
        return [_outputs(hypotheses, n) for hypotheses in n_best_lists]


def _languages(translator: Translator) -> list[str] | None:
    """Returns the language codes of source and target, which runs and exports have."""
    has_languages = getattr(translator, "settings", None) or getattr(
        translator, "problem", None
    )
    languages = getattr(has_languages, "languages", None)
    return [*languages] if languages else None


def _outputs(hypotheses: Sequence[Hypothesis], n: int) -> Outputs:
    """Returns the outputs for a row; n - len(hypotheses) of them are empty."""
    padding = n - len(hypotheses)
    return {
        "texts": [*(x.text for x in hypotheses), *[""] * padding],
        "scores": [*(x.score for x in hypotheses), *[-math.inf] * padding],
        "is_truncated": hypotheses[0].is_truncated,
    }


class FallbackModel(ServedModel):
    """A translator, and the exact one for requests with phrases that it refuses.

    These are requests with a glossary or forbidden phrases. The exact translator is
    loaded at the first of them.

    Args:
        translator: the translator with the faster engine.
        load_exact: loads the exact translator.
        **options: changes to the default decoding options.
    """

    def __init__(
        self,
        translator: Translator,
        load_exact: Callable[[], Translator],
        **options: object,
    ) -> None:
        super().__init__(translator, **options)
        self._load_exact = load_exact
        self._refused = [name for name in PHRASES if name in self.missing]
        for name in self._refused:
            del self.missing[name]
        self._lock = threading.Lock()

    @functools.cached_property
    def _exact(self) -> ServedModel:
        try:
            exact = ServedModel(self._load_exact(), **self._options)
        except UserError as error:
            # The request is correct: the training has removed the checkpoint.
            raise RuntimeError(f"the run cannot be loaded: {error}") from error
        say(f"t2t serve: TensorFlow runs requests with {' or '.join(self._refused)}")
        return exact

    def predict(
        self,
        signature: str,
        rows: Sequence[Mapping[str, str]],
        options: Options,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> list[Outputs]:
        """Returns the outputs of a signature for each row; see `ServedModel`.

        Raises:
            UserError: the inputs are impossible.
            RuntimeError: the exact translator cannot be loaded.
        """
        if any(options.get(name) for name in self._refused):
            with self._lock:  # several threads would load it at once
                exact = self._exact
            return exact.predict(signature, rows, options, is_wanted)
        return super().predict(signature, rows, options, is_wanted)

"""A converted run whose run answers what the faster engine cannot."""

import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from t2t_keras.console import say
from t2t_keras.errors import UserError

from .explanation import PHRASES
from .rows import Options, Outputs
from .served_model import ServedModel

if TYPE_CHECKING:
    from t2t_keras.decoding.translator import Translator
    from t2t_keras.export.text_saved_model import TextSavedModel


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
        translator: "Translator | TextSavedModel",
        load_exact: "Callable[[], Translator | TextSavedModel]",
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

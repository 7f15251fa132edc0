"""The hook that writes the page of a run at each report and evaluation."""

import time

from t2t_keras.console import say, say_page
from t2t_keras.evaluation.evaluator import Evaluator
from t2t_keras.run.checkpoint import CheckpointDirectory
from t2t_keras.training.hooks import Hook

from .page import PAGE_NAME, sample_attention, write_page
from .run_facts import RunFacts, read_run
from .sentence_attention import SentenceAttention

# The page is written at most this often, because reading long records takes a while.
_SECONDS_BETWEEN_PAGES = 10.0


class PageHook(Hook):
    """Writes `page.html`; it comes after the hooks that write what it reads.

    Args:
        checkpoints: the checkpoints in the run directory.
        evaluator: the evaluator of dev, whose model gives the attention weights; None:
            there is no dev split.
    """

    def __init__(
        self, checkpoints: CheckpointDirectory, evaluator: Evaluator | None
    ) -> None:
        self._checkpoints = checkpoints
        self._run_dir = checkpoints.directory
        self._path = self._run_dir / PAGE_NAME
        self._evaluator = evaluator
        self._facts: RunFacts | None = None
        self._attention: SentenceAttention | None = None
        self._last_written = 0.0
        self._last_error = ""

    def on_train_begin(self) -> None:
        """Writes the first page, and says where it is."""
        self._write(is_live=True)
        say_page(self._path)

    def on_report(self, step: int, metrics: dict[str, float]) -> None:
        """Writes the page, unless it has just been written."""
        if time.monotonic() - self._last_written > _SECONDS_BETWEEN_PAGES:
            self._write(is_live=True)

    def on_eval(self, step: int, label: str, metrics: dict[str, float]) -> None:
        """Writes the page with the sentences and the attention of this step."""
        if label == "dev":
            self._write(is_live=True, draws_attention=True)

    def close(self) -> None:
        """Writes the page for the last time."""
        self._write(is_live=False)

    def _write(self, is_live: bool, draws_attention: bool = False) -> None:
        """Writes the page; a training of days must not end because that fails."""
        try:
            self._checkpoints.require_place()
            # Only the logs change while the training runs.
            if self._facts is None:
                self._facts = read_run(self._run_dir, warns=False)
            else:
                self._facts = self._facts.updated()
            if draws_attention:
                self._draw_attention(self._facts)
            write_page(self._path, self._facts, self._attention, is_live)
        except Exception as error:
            message = f"the page is not written: {type(error).__name__}: {error}"
            if message != self._last_error:
                say(message)
            self._last_error = message
        self._last_written = time.monotonic()

    def _draw_attention(self, facts: RunFacts) -> None:
        """Computes the attention; without it, the page has all its other sections."""
        if self._evaluator is None:
            return
        try:
            translator = self._evaluator.translator
            self._attention = sample_attention(translator, facts.samples)
        except Exception as error:
            say(f"the page has no attention: {type(error).__name__}: {error}")
            self._evaluator = None

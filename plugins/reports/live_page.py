"""`t2t train --page`: the page of a run, while it is trained."""

from typing import TYPE_CHECKING

from t2t_keras.training.hooks import HookPlugin

if TYPE_CHECKING:
    from t2t_keras.evaluation.evaluator import Evaluator
    from t2t_keras.run.directory import RunDirectory
    from t2t_keras.training.hooks import Hook


def _make_hook(run: "RunDirectory", evaluator: "Evaluator | None") -> "Hook":
    from .page_hook import PageHook

    return PageHook(run.checkpoints, evaluator)


LIVE_PAGE = HookPlugin(
    "write page.html in the run directory, with curves, sentences and attention, and "
    "keep it up to date; a browser shows it without a server",
    _make_hook,
)

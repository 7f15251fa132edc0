"""How a training has ended, and its record, which a start after its end returns."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from t2t_keras.metrics import evaluation_line, shown_metrics
from t2t_keras.run.history import read_history, sessions
from t2t_keras.training.settings import TrainOptions
from t2t_keras.training.strategy import ProcessGroup


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainResult:
    """How a training run ended; a metric is None where there was nothing to measure.

    Attributes:
        step: the number of updates done.
        stopped_by: "train_steps", "patience", "pruned", "max_minutes", "callback",
            "SIGTERM", "SIGINT" or "SIGHUP".
        nll: the negative log-likelihood of a target token in nats, over the steps that
            were reported last; with dropout, so it may be above `dev_nll`.
        loss: the same with label smoothing, which the training minimizes.
        target_tokens_per_s: over the same steps.
        dev_nll: the negative log-likelihood at the last evaluation.
        dev_metrics: at the last evaluation: the problem's metrics, by name.
        dev_best: the metrics of the best evaluation, with its "step".
        dev_average: the metrics of the average of the last checkpoints.
        dev_ema: the metrics of the moving average of the weights.
        process_group: the processes that have trained together, if there were several
            (TF_CONFIG). All have the same `step` and `stopped_by`.
    """

    step: int
    stopped_by: str
    nll: float | None = None
    loss: float | None = None
    target_tokens_per_s: float | None = None
    dev_nll: float | None = None
    dev_metrics: dict[str, float] | None = None
    dev_best: dict[str, float] | None = None
    dev_average: dict[str, float] | None = None
    dev_ema: dict[str, float] | None = None
    # Keeps the strategy alive; destroying it blocks.
    process_group: ProcessGroup = dataclasses.field(
        default_factory=ProcessGroup, repr=False
    )

    def __repr__(self) -> str:
        shown = {} if self.dev_nll is None else {"nll": self.dev_nll}
        dev = ", ".join(shown_metrics(shown | (self.dev_metrics or {})))
        ending = f"step={self.step}, stopped_by={self.stopped_by!r}"
        return f"TrainResult({ending}{dev and f', dev: {dev}'})"

    @classmethod
    def from_metrics(cls, metrics: Mapping[str, object], group: ProcessGroup) -> Self:
        """Returns the result with the metrics that it has fields for."""
        names = {field.name for field in dataclasses.fields(cls)}
        fields: dict[str, Any] = {k: v for k, v in metrics.items() if k in names}
        return cls(**fields, process_group=group)

    @property
    def is_chief(self) -> bool:
        """Whether this process has written the run; of several only one has."""
        return self.process_group.is_chief

    def to_dict(self) -> dict[str, object]:
        """Returns the metrics by name: what `t2t train --json` prints."""
        fields = dict(vars(self))
        del fields["process_group"]
        return fields


# The options on which the results depend.
_OPTIONS = ("eval_sentences", "best_by", "bleu_tokenize", "average_last")
# What each start of a training finds out for itself.
_EVERY_TIME = ("step", "stopped_by", "process_group")


def results(metrics: Mapping[str, object], options: TrainOptions) -> dict[str, object]:
    """Returns what `history.jsonl` keeps of the metrics of `Trainer.train`."""
    names = {field.name for field in dataclasses.fields(TrainResult)}
    recorded = {k: v for k, v in metrics.items() if k in names.difference(_EVERY_TIME)}
    return {"options": _result_options(options), "results": recorded}


def recorded_results(
    run_dir: Path, step: int, stopped_by: str, options: TrainOptions
) -> dict[str, object] | None:
    """Returns the metrics of a training that has ended already.

    Returns:
        The metrics; None: the last session ended otherwise, or had other options.
    """
    earlier = sessions(read_history(run_dir, warns=False))
    ending = {"last_step": step, "stopped_by": stopped_by}
    ending["options"] = _result_options(options)
    if earlier and ending.items() <= earlier[-1].items():
        return earlier[-1].get("results")
    return None


def evaluation_lines(step: int, metrics: Mapping[str, Any]) -> list[str]:
    """Formats the evaluations at the end of a training, as its log had them."""
    last = {"nll": metrics.get("dev_nll")} | (metrics.get("dev_metrics") or {})
    evaluations: dict[str, Any] = {"dev": last if last["nll"] is not None else None}
    for label in ("dev_best", "dev_average", "dev_ema"):
        evaluations[label] = metrics.get(label)
    lines = []
    for label, values in evaluations.items():
        if values:
            numbers = dict(values)
            lines.append(evaluation_line(numbers.pop("step", step), label, numbers))
    return lines


def _result_options(options: TrainOptions) -> dict[str, object]:
    """Returns the options on which the results depend."""
    return {name: getattr(options, name) for name in _OPTIONS}

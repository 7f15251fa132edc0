"""How a training has ended."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from t2t_keras.training.process_group import ProcessGroup


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainResult:
    """How a training has ended; a metric is None where there was nothing to measure.

    Attributes:
        step: the number of updates done.
        stopped_by: "train_steps", "patience", "pruned", "max_minutes", "callback",
            "SIGTERM", "SIGINT" or "SIGHUP".
        loss: for each target token, with label smoothing (so it is above `dev_loss`),
            over the steps that were reported last.
        target_tokens_per_s: over the same steps.
        dev_loss: at the last evaluation, without label smoothing.
        dev_metrics: at the last evaluation: the problem's metrics, by name.
        dev_best: the metrics of the best evaluation, with its "step".
        dev_average: the metrics of the average of the last checkpoints.
        dev_ema: the metrics of the moving average of the weights.
        process_group: the processes that have trained together, if there were several
            (TF_CONFIG). All have the same `step` and `stopped_by`.
    """

    step: int
    stopped_by: str
    loss: float | None = None
    target_tokens_per_s: float | None = None
    dev_loss: float | None = None
    dev_metrics: dict[str, float] | None = None
    dev_best: dict[str, float] | None = None
    dev_average: dict[str, float] | None = None
    dev_ema: dict[str, float] | None = None
    # Keeps the strategy alive; destroying it blocks.
    process_group: ProcessGroup = dataclasses.field(
        default_factory=ProcessGroup, repr=False
    )

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

"""What a sweep is: all settings on which its trials depend."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal, Self

from t2t_keras.options import OptionValues
from t2t_keras.ranged_hparams import Choices, Interval, Range, Value
from t2t_keras.training.settings import TrainOptions

Direction = Literal["maximize", "minimize"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepSettings:
    """The settings of a sweep, which its study keeps.

    Attributes:
        problem: the name of the problem.
        ranges_name: the name of the ranges.
        ranges: the range of each hyper-parameter.
        hparams_set: the set that the trials change.
        hparams: changes to the set for all trials, as text.
        data_dir: the data directory.
        usr_dir: the folder of the user's definitions, if any.
        train_steps: the steps of each trial; None: the set's.
        seed: the seed of each training, and of the search.
        options: the options of each training that differ from `TrainOptions`.
        metric: what the trials are compared by: "loss", or a metric of the problem.
        direction: whether the best value of the metric is the largest.
        startup_trials: number of trials that are drawn at random and not pruned.
        prunes: whether trials that are behind others end early.
        workers: number of trials that may run at a time. A trial depends on the results
            of all trials before the last `workers` - 1 ones, and on no others, so that
            it does not depend on their durations.
    """

    problem: str
    ranges_name: str
    ranges: dict[str, Range]
    hparams_set: str
    hparams: str
    data_dir: str
    usr_dir: str | None
    train_steps: int | None
    seed: int
    options: OptionValues
    metric: str
    direction: Direction
    startup_trials: int
    prunes: bool
    workers: int

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Returns the settings of which `to_json` has made an object."""
        ranges: dict[str, Range] = {}
        for name, values in fields["ranges"].items():
            if "values" in values:
                ranges[name] = Choices(tuple(values["values"]))
            else:
                ranges[name] = Interval(**values)
        return cls(**{**fields, "ranges": ranges})

    def to_json(self) -> dict[str, object]:
        """Returns an object that JSON can write."""
        return dataclasses.asdict(self)

    def shown(self) -> dict[str, str]:
        """Returns the settings for messages, by the names that a user knows."""
        shown: dict[str, str] = {}
        for name, value in vars(self).items():
            if name == "ranges":
                for hparam, ranged in value.items():
                    shown[f"the range of {hparam}"] = str(ranged)
            elif name == "options":
                shown |= {option: str(setting) for option, setting in value.items()}
            elif name == "prunes":
                shown["pruning"] = "on" if value else "off"
            else:
                label = "--ranges" if name == "ranges_name" else name
                shown[label] = "unset" if value in (None, "") else str(value)
        return shown

    @property
    def train_options(self) -> TrainOptions:
        """The options of each training."""
        return TrainOptions(**self.options)

    def hparams_of(self, values: Mapping[str, Value]) -> str:
        """Returns the changes to the set of a trial, as text.

        Args:
            values: the values of the hyper-parameters that have a range.
        """
        changes = [self.hparams] if self.hparams else []
        for name, value in values.items():
            changes.append(f"{name}={value}")
        return ",".join(changes)

    def best(self, scores: Mapping[int, float]) -> int | None:
        """Returns the key of the best finite score, the first among equals."""
        sign = 1 if self.direction == "maximize" else -1
        finite = {key: sign * x for key, x in scores.items() if math.isfinite(x)}
        return max(finite, key=lambda key: (finite[key], -key), default=None)

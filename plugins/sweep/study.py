"""The study of a sweep: its settings, and its trials in a journal of Optuna.

Optuna's journal is made for disks that machines share, so that any number of processes
may work on one study. It has no heartbeat. Instead, the process that trains a trial
holds a lock in the run directory. A running trial whose lock nobody holds was lost; it
is tried again with the same values, from its last checkpoint.
"""

import contextlib
import dataclasses
import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.exceptions import ExperimentalWarning, OptunaError
from optuna.storages import JournalStorage, RetryHeartbeatStaleTrialCallback
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState, create_trial

from t2t_keras import registry
from t2t_keras.errors import UserError, first_line, short_repr
from t2t_keras.files.atomic import OccupiedDirectory, lock
from t2t_keras.options import OptionValues
from t2t_keras.ranged_hparams import Choices, Interval, Range, Value
from t2t_keras.run.config import TRAINING_LOCK

Direction = Literal["maximize", "minimize"]
State = Literal["running", "complete", "pruned", "failed"]

FILE = "study.log"

_STUDY_LOCK = "sweep.lock"  # held by whoever writes to the study
_TRIAL_LOCK = "trial.lock"  # in a run directory, held by whoever trains the trial
_SETTINGS = "settings"  # the attribute of the study
_INDEX = "index"  # those of a trial
_HPARAMS = "hparams"
_ERROR = "error"
_DIGITS = 4  # significant ones of a proposed value

_STATES: dict[TrialState, State] = {
    TrialState.WAITING: "running",
    TrialState.RUNNING: "running",
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
}

optuna.logging.set_verbosity(optuna.logging.ERROR)


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
        train_steps: the steps of each trial.
        seed: the seed of each training, and of the search.
        options: the options of each training that differ from `TrainOptions`.
        metric: what the trials are compared by: "nll", or a metric of the problem.
        direction: whether the best value of the metric is the largest.
        startup_trials: number of trials that are drawn at random and not pruned.
        prunes: whether trials that are behind others end early.
        workers: the number of parts into which the cores of a machine are divided; the
            number of threads may change the rounding of a training.
    """

    problem: str
    ranges_name: str
    ranges: dict[str, Range]
    hparams_set: str
    hparams: str
    data_dir: str
    usr_dir: str | None
    train_steps: int
    seed: int
    options: OptionValues
    metric: str
    direction: Direction
    startup_trials: int
    prunes: bool
    workers: int

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Returns the settings of which `dataclasses.asdict` has made an object."""
        ranges: dict[str, Range] = {}
        for name, values in fields["ranges"].items():
            if "values" in values:
                ranges[name] = Choices(tuple(values["values"]))
            else:
                ranges[name] = Interval(**values)
        return cls(**{**fields, "ranges": ranges})

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

    def train_flags(self, hparams: Mapping[str, Value], output_dir: Path) -> list[str]:
        """Returns the words of `t2t train` with the hyper-parameters of a trial."""
        changes = [self.hparams] if self.hparams else []
        for name, value in hparams.items():
            changes.append(f"{name}={value}")
        words = ["--problem", self.problem, "--hparams_set", self.hparams_set]
        words += ["--hparams", ",".join(changes), "--data_dir", self.data_dir]
        words += ["--output_dir", str(output_dir)]
        return [*words, "--usr_dir", self.usr_dir] if self.usr_dir else words

    def best(self, scores: Mapping[int, float]) -> int | None:
        """Returns the key of the best finite score, the first among equals."""
        sign = 1 if self.direction == "maximize" else -1
        finite = {key: sign * x for key, x in scores.items() if math.isfinite(x)}
        return max(finite, key=lambda key: (finite[key], -key), default=None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepTrial:
    """A trial.

    Attributes:
        index: its number, from 0.
        state: whether it is running, or how it has ended.
        hparams: the hyper-parameters that have a range.
        scores: the score of each evaluation by step.
        best_step: the step of the best score; None: there is no finite one.
        error: why it has failed.
    """

    index: int
    state: State
    hparams: Mapping[str, Value]
    scores: Mapping[int, float]
    best_step: int | None
    error: str

    @property
    def score(self) -> float | None:
        """The best score."""
        return None if self.best_step is None else self.scores[self.best_step]

    def to_json(self) -> dict[str, object]:
        """Returns what `t2t sweep --json` prints of it."""
        return {
            "trial": self.index,
            "state": self.state,
            "score": self.score,
            "step": self.best_step,
            "hparams": dict(self.hparams),
            "error": self.error or None,
        }


def run_dir(directory: Path, index: int) -> Path:
    """Returns the run directory of a trial.

    Args:
        directory: the directory of the sweep.
        index: the number of the trial.
    """
    return directory / f"trial-{index:04}"


class SweepStudy:
    """The trials of a sweep, which any number of processes may train.

    A proposal depends on the settings, its number, and the trials that have ended. So a
    sweep of one process that trains one trial at a time has the same trials whether or
    not it was killed.

    Args:
        directory: the directory of the sweep.
        study: Optuna's study.
        settings: the settings of the sweep.
    """

    def __init__(
        self, directory: Path, study: optuna.Study, settings: SweepSettings
    ) -> None:
        self.directory = directory
        self.settings = settings
        self._study = study
        self._study.pruner = optuna.pruners.MedianPruner(settings.startup_trials)
        self._claimed: set[int] = set()

    @classmethod
    def open(cls, directory: Path, settings: SweepSettings) -> "SweepStudy":
        """Opens the study of a directory, or makes it.

        Raises:
            UserError: the file has another study, or one of other settings.
        """
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / FILE
        with lock(directory / _STUDY_LOCK, None):
            try:
                name, study = _open_study(path, settings)
                recorded = study.user_attrs.get(_SETTINGS)
                if recorded is None and not study.get_trials():
                    recorded = dataclasses.asdict(settings)
                    study.set_user_attr(_SETTINGS, recorded)
            except (OptunaError, ValueError, LookupError, TypeError) as error:
                raise UserError(
                    f"{path} cannot be used as a study of Optuna: {first_line(error)}; "
                    "give another --output_dir"
                ) from error
        if name != settings.ranges_name:
            raise UserError(
                f"{path} has the study {short_repr(name)}, not "
                f"'{settings.ranges_name}'; give another --output_dir"
            )
        if recorded is None:
            raise UserError(
                f"{path} has trials that are not of `t2t sweep`; give another "
                "--output_dir"
            )
        existing = SweepSettings.from_json(recorded)
        # The number of processes may change.
        settings = dataclasses.replace(settings, workers=existing.workers)
        _refuse_other_settings(directory, existing, settings)
        return cls(directory, study, existing)

    def trials(self) -> list[SweepTrial]:
        """Returns all trials in the order of their numbers."""
        trials = []
        for index, trial in self._attempts().items():
            scores = dict(sorted(trial.intermediate_values.items()))
            trials.append(
                SweepTrial(
                    index=index,
                    state=_STATES[trial.state],
                    hparams=trial.user_attrs[_HPARAMS],
                    scores=scores,
                    best_step=self.settings.best(scores),
                    error=trial.user_attrs.get(_ERROR, ""),
                )
            )
        return trials

    def claim(self, count: int) -> "ClaimedTrial | None":
        """Takes a trial that was lost or, if there are fewer than `count`, a new one.

        Returns:
            The trial, whose lock this process holds; None: there is none to take.
        """
        with lock(self.directory / _STUDY_LOCK, None):
            attempts = self._attempts()
            if not any(x.state == TrialState.WAITING for x in attempts.values()):
                lost = next(filter(self._is_lost, attempts.items()), None)
                if lost:
                    self._retry(lost[1])
                elif len(attempts) < count:
                    self._propose(list(attempts.values()))
                else:
                    return None
            trial = self._study.ask()
            index = trial.user_attrs[_INDEX]
            resources = contextlib.ExitStack()
            path = run_dir(self.directory, index) / _TRIAL_LOCK
            resources.enter_context(lock(path, None))
            resources.callback(self._claimed.discard, index)
            self._claimed.add(index)
            return ClaimedTrial(self, self._study, trial, resources)

    def _attempts(self) -> dict[int, FrozenTrial]:
        """Returns the last attempt at each trial by its number, in their order."""
        attempts = self._study.get_trials(deepcopy=False)
        return {trial.user_attrs[_INDEX]: trial for trial in attempts}

    def _is_lost(self, attempt: tuple[int, FrozenTrial]) -> bool:
        """Returns whether a trial runs, and no process trains it."""
        index, trial = attempt
        if trial.state != TrialState.RUNNING or index in self._claimed:
            return False
        try:
            for name in (_TRIAL_LOCK, TRAINING_LOCK):
                with lock(run_dir(self.directory, index) / name, OccupiedDirectory):
                    pass
        except OccupiedDirectory:
            return False
        return True

    def _retry(self, trial: FrozenTrial) -> None:
        """Adds another attempt at a trial, with its values and its scores so far."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            retry = RetryHeartbeatStaleTrialCallback(inherit_intermediate_values=True)
        retry(self._study, trial)
        self._study.tell(trial.number, state=TrialState.FAIL)

    def _propose(self, trials: list[FrozenTrial]) -> None:
        """Adds the next trial.

        A study in memory, with only the last attempt at each trial, draws the values;
        they enter the journal all at once.
        """
        settings = self.settings
        entropy = [settings.seed, len(trials)]
        seed = int(np.random.SeedSequence(entropy).generate_state(1)[0])
        sampler = optuna.samplers.TPESampler(
            n_startup_trials=settings.startup_trials, seed=seed
        )
        study = optuna.create_study(direction=settings.direction, sampler=sampler)
        study.add_trials([trial for trial in trials if trial.state.is_finished()])
        if not trials:
            study.enqueue_trial(_values_of_set(settings))
        distributions: dict[str, BaseDistribution] = {}
        for name, ranged in settings.ranges.items():
            distributions[name] = _distribution(ranged)
        values = {}
        hparams = {}
        for name, value in study.ask(distributions).params.items():
            ranged = settings.ranges[name]
            hparams[name] = _hparam(ranged, value)
            # With "reverse_log", Optuna has the position in the range.
            values[name] = value if _is_reversed(ranged) else hparams[name]
        self._study.add_trial(
            create_trial(
                state=TrialState.WAITING,
                params=values,
                distributions=distributions,
                user_attrs={_INDEX: len(trials), _HPARAMS: hparams},
            )
        )


class ClaimedTrial:
    """A trial that this process trains, until `release` or the end of the process.

    Attributes:
        index: its number, from 0.
        hparams: the hyper-parameters that have a range.
        run_dir: its run directory.
        steps: the steps of its training.

    Args:
        sweep: the trials of the sweep.
        study: Optuna's study.
        trial: Optuna's trial.
        resources: the lock and what else `release` gives up.
    """

    def __init__(
        self,
        sweep: SweepStudy,
        study: optuna.Study,
        trial: optuna.Trial,
        resources: contextlib.ExitStack,
    ) -> None:
        self.index: int = trial.user_attrs[_INDEX]
        self.hparams: Mapping[str, Value] = trial.user_attrs[_HPARAMS]
        self.run_dir = run_dir(sweep.directory, self.index)
        self.steps = int(self.hparams.get("train_steps", sweep.settings.train_steps))
        self._settings = sweep.settings
        self._study_lock = sweep.directory / _STUDY_LOCK
        self._study = study
        self._trial = trial
        self._resources = resources
        attempt = study.get_trials(deepcopy=False)[trial.number]
        self._scores = dict(attempt.intermediate_values)
        # An earlier attempt may have ended before it was compared at its last step.
        self._compared = set(sorted(self._scores)[:-1])

    def is_behind(self, scores: Mapping[int, float]) -> bool:
        """Records scores by step, and returns whether the trial is behind others.

        Recording stops at the first step where it is behind; the trial is then pruned.
        """
        for step in sorted(scores.keys() - self._compared):
            with lock(self._study_lock, None):
                if step not in self._scores:
                    self._trial.report(scores[step], step)
                    self._scores[step] = scores[step]
                self._compared.add(step)
                may_end = self._settings.prunes and step < self.steps
                if may_end and self._trial.should_prune():
                    self._study.tell(self._trial, state=TrialState.PRUNED)
                    return True
        return False

    def complete(self) -> None:
        """Ends a trial that was trained to its last step."""
        best_step = self._settings.best(self._scores)
        if best_step is None:
            self.fail(f"no evaluation on dev has a finite {self._settings.metric}")
            return
        with lock(self._study_lock, None):
            self._study.tell(self._trial, self._scores[best_step])

    def fail(self, reason: str) -> None:
        """Ends a trial that has failed."""
        with lock(self._study_lock, None):
            self._trial.set_user_attr(_ERROR, reason)
            self._study.tell(self._trial, state=TrialState.FAIL)

    def release(self) -> None:
        """Gives up the lock; a trial that has not ended can be claimed again."""
        self._resources.close()


def _open_study(path: Path, settings: SweepSettings) -> tuple[str, optuna.Study]:
    """Returns the name of the study in a file, which is made if absent, and the study.

    Raises:
        ValueError: the file is not a journal.
    """
    storage = JournalStorage(JournalFileBackend(str(path)))
    with path.open("rb+") as file:
        content = file.read()
        length = content.rfind(b"\n") + 1
        if content and not length:
            raise ValueError("it is not a journal")
        # A full disk or a crash can leave a part of a line, which would join the next.
        file.truncate(length)
    names = optuna.get_all_study_names(storage)
    name = names[0] if names else settings.ranges_name
    study = optuna.create_study(
        storage=storage,
        study_name=name,
        direction=settings.direction,
        load_if_exists=True,
    )
    return name, study


def _values_of_set(settings: SweepSettings) -> dict[str, Value]:
    """Returns the values of the set that are in their ranges."""
    hparams = registry.hparams(settings.hparams_set).parse(settings.hparams)
    defaults = vars(hparams)
    values: dict[str, Value] = {}
    for name, ranged in settings.ranges.items():
        if isinstance(ranged, Choices):
            if defaults[name] in ranged.values:
                values[name] = defaults[name]
        elif _is_reversed(ranged):
            continue  # Optuna has the position in the range
        elif ranged.low <= defaults[name] <= ranged.high:
            values[name] = defaults[name]
    return values


def _distribution(ranged: Range) -> BaseDistribution:
    """Returns Optuna's form of a range."""
    if isinstance(ranged, Choices):
        return CategoricalDistribution(ranged.values)
    if _is_reversed(ranged):
        return FloatDistribution(0.0, 1.0)  # the position in the range
    is_log = ranged.scale == "log"
    if ranged.is_integer:
        return IntDistribution(int(ranged.low), int(ranged.high), log=is_log)
    return FloatDistribution(ranged.low, ranged.high, log=is_log)


def _is_reversed(ranged: Range) -> bool:
    return isinstance(ranged, Interval) and ranged.scale == "reverse_log"


def _hparam(ranged: Range, value: Any) -> Value:
    """Returns the hyper-parameter, rounded, for Optuna's value."""
    hparam: Value = ranged.value_at(value) if _is_reversed(ranged) else value
    if isinstance(ranged, Choices) or not isinstance(hparam, float):
        return hparam
    return min(max(float(f"{hparam:.{_DIGITS}g}"), ranged.low), ranged.high)


def _refuse_other_settings(
    directory: Path, existing: SweepSettings, settings: SweepSettings
) -> None:
    """Raises UserError if the settings differ."""
    changes = []
    old = existing.shown()
    new = settings.shown()
    for name in old | new:
        if old.get(name) != new.get(name):
            changes.append(
                f"{name} was {old.get(name, 'unset')}, is now {new.get(name, 'unset')}"
            )
    if changes:
        raise UserError(
            f"{directory} has a sweep with other settings: {'; '.join(changes)}; give "
            "the same settings or another --output_dir"
        )

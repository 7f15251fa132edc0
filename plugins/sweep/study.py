"""The study of a sweep in Optuna: its trials in a SQLite file."""

import contextlib
import dataclasses
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.exceptions import OptunaError
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial
from sqlalchemy.exc import SQLAlchemyError

from t2t_keras.errors import UserError, first_line, short_repr
from t2t_keras.hparam import HParams
from t2t_keras.ranged_hparams import Choices, Interval, Range, Value

from .settings import SweepSettings
from .trial import State, SweepTrial

FILE = "study.db"

_SETTINGS = "settings"  # the attribute of the study
_HPARAMS = "hparams"  # those of a trial
_BEGINS = "begins"
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


class SweepStudy:
    """The trials of a sweep.

    A trial is proposed and pruned as a function of the settings, its number, and the
    trials before the last `settings.workers` - 1 ones. So a sweep that was killed has
    the same trials as one that was not.

    Args:
        study: Optuna's study.
        settings: the settings of the sweep.
    """

    def __init__(self, study: optuna.Study, settings: SweepSettings) -> None:
        self._study = study
        self.settings = settings

    @classmethod
    def create(cls, directory: Path, settings: SweepSettings) -> "SweepStudy":
        """Makes the study of a directory, or opens it to go on with the same sweep.

        Raises:
            UserError: the file has another study, or one of other settings.
        """
        path = directory / FILE
        # Optuna raises a RuntimeError for a file of another version.
        with storage_errors(directory, RuntimeError):
            storage = optuna.storages.RDBStorage(f"sqlite:///{path}")
            names = optuna.get_all_study_names(storage)
            name = settings.ranges_name
            if names not in ([], [name]):
                raise UserError(
                    f"{path} has the study {short_repr(names[0])}, not '{name}'; give "
                    "another --output_dir"
                )
            study = optuna.create_study(
                storage=storage,
                study_name=name,
                direction=settings.direction,
                load_if_exists=True,
            )
            recorded = study.user_attrs.get(_SETTINGS)
            if recorded is None and not study.get_trials():
                study.set_user_attr(_SETTINGS, settings.to_json())
                return cls(study, settings)
        if recorded is None:
            raise UserError(
                f"{path} has trials that are not of `t2t sweep`; give another "
                "--output_dir"
            )
        existing = SweepSettings.from_json(recorded)
        # Fewer or more processes leave the trials as they are.
        settings = dataclasses.replace(settings, workers=existing.workers)
        _refuse_other_settings(directory, existing, settings)
        return cls(study, existing)

    @classmethod
    def open(cls, directory: Path) -> "SweepStudy":
        """Opens the study of a directory, which `create` has made."""
        storage = optuna.storages.RDBStorage(f"sqlite:///{directory / FILE}")
        (name,) = optuna.get_all_study_names(storage)
        study = optuna.load_study(study_name=name, storage=storage)
        return cls(study, SweepSettings.from_json(study.user_attrs[_SETTINGS]))

    def __len__(self) -> int:
        """Returns the number of trials."""
        return len(self._trials())

    def trial(self, index: int) -> SweepTrial:
        """Returns a trial."""
        return _sweep_trial(self._trials()[index], self.settings)

    def trials(self) -> list[SweepTrial]:
        """Returns all trials in the order of their numbers."""
        return [_sweep_trial(trial, self.settings) for trial in self._trials()]

    def unfinished(self) -> list[int]:
        """Returns the numbers of the trials that were begun and have not ended."""
        # A kill may have left one that was only entered, or has a part of its values.
        while self._study.get_trials(False, states=(TrialState.WAITING,)):
            self._ask()
        running = self._study.get_trials(False, states=(TrialState.RUNNING,))
        for trial in running:
            self._suggest(Trial(self._study, trial._trial_id))
        return [trial.number for trial in running]

    def is_next_possible(self) -> bool:
        """Returns whether all trials on which the next one depends have ended."""
        trials = self._trials()
        seen = trials[: max(0, len(trials) - self.settings.workers + 1)]
        return all(trial.state.is_finished() for trial in seen)

    def start_next(self) -> int:
        """Proposes the next trial, and enters it as running; returns its number."""
        values = {}
        hparams = {}
        for name, value in self._propose(len(self)).items():
            ranged = self.settings.ranges[name]
            hparams[name] = _hparam(ranged, value)
            # With "reverse_log", Optuna has the position in the range.
            values[name] = value if _is_reversed(ranged) else hparams[name]
        self._study.enqueue_trial(values, user_attrs={_HPARAMS: hparams})
        return self._ask()

    def begin(self, index: int) -> None:
        """Records that the training of a trial begins, or is resumed."""
        self._set(index, _BEGINS, self.begins(index) + 1)

    def begins(self, index: int) -> int:
        """Returns how often the training of a trial began or was resumed."""
        begins: int = self._trials()[index].user_attrs.get(_BEGINS, 0)
        return begins

    def report(self, index: int, scores: Mapping[int, float]) -> None:
        """Records the scores of a running trial by step; those recorded stay."""
        frozen = self._trials()[index]
        trial = Trial(self._study, frozen._trial_id)
        for step, score in scores.items():
            if step not in frozen.intermediate_values:
                trial.report(score, step)

    def should_prune(self, index: int, scores: Mapping[int, float]) -> bool:
        """Returns whether a trial is behind others, so that it should end.

        Args:
            index: the trial.
            scores: its scores so far, by step.
        """
        if not self.settings.prunes or not scores:
            return False
        pruner = optuna.pruners.MedianPruner(self.settings.startup_trials)
        trial = create_trial(state=TrialState.RUNNING, intermediate_values=dict(scores))
        return pruner.prune(self._seen(index), trial)

    def complete(self, index: int, score: float) -> None:
        """Ends a trial that was trained to the end."""
        self._study.tell(index, score)

    def prune(self, index: int) -> None:
        """Ends a trial that was pruned; its last score counts."""
        self._study.tell(index, state=TrialState.PRUNED)

    def fail(self, index: int, reason: str) -> None:
        """Ends a trial that has failed."""
        self._set(index, _ERROR, reason)
        self._study.tell(index, state=TrialState.FAIL)

    def _set(self, index: int, name: str, value: object) -> None:
        """Sets an attribute of a trial."""
        trial = Trial(self._study, self._trials()[index]._trial_id)
        trial.set_user_attr(name, value)

    def _ask(self) -> int:
        """Takes the entered trial as running; returns its number."""
        trial = self._study.ask()
        self._suggest(trial)
        return trial.number

    def _suggest(self, trial: Trial) -> None:
        """Gives a trial the values that were entered, unless it has them."""
        for name, distribution in self._distributions().items():
            if isinstance(distribution, CategoricalDistribution):
                trial.suggest_categorical(name, distribution.choices)
                continue
            assert isinstance(distribution, IntDistribution | FloatDistribution)
            is_integer = isinstance(distribution, IntDistribution)
            suggest = trial.suggest_int if is_integer else trial.suggest_float
            suggest(name, distribution.low, distribution.high, log=distribution.log)

    def _trials(self) -> list[FrozenTrial]:
        return self._study.get_trials(deepcopy=False)

    def _propose(self, index: int) -> dict[str, Value]:
        """Returns Optuna's values of a trial, the set's own of the first one."""
        view = self._seen(index)
        if index == 0:
            view.enqueue_trial(self._values_of_set())
        return dict(view.ask(self._distributions()).params)

    def _seen(self, index: int) -> optuna.Study:
        """Returns a study of the trials before one, as far as it depends on them.

        The results of the last ones are left out, whether or not they are there.
        """
        settings = self.settings
        entropy = [settings.seed, index]
        seed = int(np.random.SeedSequence(entropy).generate_state(1)[0])
        view = optuna.create_study(
            direction=settings.direction,
            sampler=optuna.samplers.TPESampler(
                n_startup_trials=settings.startup_trials, seed=seed
            ),
        )
        distributions = self._distributions()
        for trial in self._trials()[:index]:
            if trial.number > index - settings.workers:
                trial = create_trial(
                    state=TrialState.RUNNING,
                    params=trial.params,
                    distributions=distributions,
                )
            view.add_trial(trial)
        return view

    def _values_of_set(self) -> dict[str, Value]:
        """Returns the values of the set that are in their ranges."""
        from t2t_keras import registry

        settings = self.settings
        hparams: HParams = registry.hparams(settings.hparams_set)
        defaults = vars(hparams.parse(settings.hparams))
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

    def _distributions(self) -> dict[str, BaseDistribution]:
        return {
            name: _distribution(ranged) for name, ranged in self.settings.ranges.items()
        }


def _sweep_trial(trial: FrozenTrial, settings: SweepSettings) -> SweepTrial:
    scores = dict(sorted(trial.intermediate_values.items()))
    return SweepTrial(
        index=trial.number,
        state=_STATES[trial.state],
        hparams=trial.user_attrs[_HPARAMS],
        scores=scores,
        best_step=settings.best(scores),
        error=trial.user_attrs.get(_ERROR, ""),
    )


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
    return min(max(_rounded(hparam), ranged.low), ranged.high)


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


@contextlib.contextmanager
def storage_errors(directory: Path, *further: type[Exception]) -> Iterator[None]:
    """Explains errors of Optuna and of its database.

    Args:
        directory: the directory of the sweep.
        *further: other errors that the database can cause.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (OptunaError, SQLAlchemyError, *further) as error:
        raise UserError(
            f"{directory / FILE} cannot be used as a study of Optuna: "
            f"{first_line(error)}; see whether the disk is full or read-only, or give "
            "another --output_dir"
        ) from error


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

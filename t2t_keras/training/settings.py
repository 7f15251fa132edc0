"""The settings of a training: those of its call, or of the run that it resumes."""

import dataclasses
from pathlib import Path

from t2t_keras import registry
from t2t_keras.errors import UserError
from t2t_keras.hparam import HParams
from t2t_keras.options import OptionValues
from t2t_keras.run.config import (
    RunConfig,
    existing_config,
    first_hparams,
    run_of,
)
from t2t_keras.training.options import TrainOptions
from t2t_keras.usr_dir import load_usr_dir

# Of these options one excludes the other.
SAVING = {"save_every", "save_minutes"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """What a training is told, before changes to the hyper-parameters.

    Attributes:
        problem: the name of the problem.
        hparams_set: the name of the set.
        hparams: the set, or the hyper-parameters of a run.
        data_dir: the data directory.
        seed: the seed.
        init_from: the run or the checkpoint that gives the initial weights.
        batch_parts: see `RunConfig`; None: it follows from `accumulate`.
        usr_dir: the user's folder, which has been imported.
        options: how the run is watched, saved and ended.
        run_config: the configuration of the run that is resumed; None: the run is new.
    """

    problem: str
    hparams_set: str
    hparams: HParams
    data_dir: str | Path
    seed: int = 0
    init_from: str | Path | None = None
    batch_parts: int | None = None
    usr_dir: str | Path | None = None
    options: TrainOptions = dataclasses.field(default_factory=TrainOptions)
    run_config: RunConfig | None = None


def train_settings(
    output_dir: str | Path,
    problem: str | None = None,
    hparams_set: str | None = None,
    *,
    usr_dir: str | Path | None = None,
    data_dir: str | Path | None = None,
    seed: int | None = None,
    init_from: str | Path | None = None,
    options: TrainOptions | None = None,
) -> TrainSettings:
    """Returns the settings that arguments of `train` mean.

    Without a problem, the run in `output_dir` is resumed, and its settings replace all
    that are not given.

    Args:
        output_dir: the run directory.
        problem: the name of the problem; None: that of the run.
        hparams_set: the name of the set; None: the hyper-parameters are those of the
            run, or of the one in `init_from`.
        usr_dir: the user's folder; None: that of the run.
        data_dir: a field of `TrainSettings`; None: not given.
        seed: likewise.
        init_from: likewise.
        options: likewise.

    Raises:
        UserError: a name is missing or unknown, or there is no run to be resumed.
    """
    run_config = existing_config(output_dir)
    if usr_dir is None and run_config is not None:
        usr_dir = run_config.existing_usr_dir()
    if usr_dir is not None:
        load_usr_dir(usr_dir)
    fields = {
        "data_dir": data_dir,
        "seed": seed,
        "init_from": init_from,
        "options": options,
    }
    values: OptionValues = {k: v for k, v in fields.items() if v is not None}
    if problem is None:
        settings = _run_settings(Path(output_dir), run_config)
        if hparams_set is not None:
            values["hparams_set"] = hparams_set
            values["hparams"] = registry.hparams(hparams_set)
        return dataclasses.replace(settings, usr_dir=usr_dir, **values)
    if data_dir is None:
        raise UserError("--data_dir is missing; give the one of `t2t datagen`")
    values["hparams"] = first_hparams(hparams_set, init_from)
    if hparams_set is None:
        assert init_from is not None  # otherwise `first_hparams` has raised
        source = RunConfig.read(run_of(init_from))
        hparams_set = source.hparams_set
        usr_dir = usr_dir or source.usr_dir
    return TrainSettings(
        problem=problem,
        hparams_set=hparams_set,
        usr_dir=usr_dir,
        run_config=run_config,
        **values,
    )


def _run_settings(run: Path, config: RunConfig | None) -> TrainSettings:
    """Returns the settings of a run whose training is resumed."""
    if config is None:
        raise UserError(
            f"--problem is missing; only a run is resumed without it, and {run} is "
            "none: give --problem, --hparams_set and --data_dir"
        )
    config.require_training(run)
    return TrainSettings(
        problem=config.problem,
        hparams_set=config.hparams_set,
        hparams=config.read_hparams(run / "hparams.json"),
        data_dir=config.data_dir,
        seed=config.seed,
        init_from=config.init_from,
        batch_parts=config.batch_parts,
        options=TrainOptions(**repeated_options(config, {})),
        run_config=config,
    )


def repeated_options(config: RunConfig | None, changes: OptionValues) -> OptionValues:
    """Returns the options of a run that is resumed, with changes.

    Args:
        config: the configuration of the run; None: only the changes are returned.
        changes: fields of `TrainOptions`.
    """
    if config is None:
        return changes
    options: OptionValues = dict(config.train_options)
    if changes.keys() & SAVING:
        options = {name: x for name, x in options.items() if name not in SAVING}
    return options | changes

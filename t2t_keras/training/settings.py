"""The options of a training, and the configuration of its run.

No option changes the updates, except that `steps_per_call` changes their rounding.
"""

import dataclasses
from pathlib import Path
from typing import Any, Literal

from t2t_keras import registry
from t2t_keras.errors import UserError
from t2t_keras.evaluation.tokenization import BleuTokens
from t2t_keras.hparam import HParams
from t2t_keras.options import OptionValues, check_options, option, require_known
from t2t_keras.run.config import (
    RunConfig,
    config_for,
    existing_config,
    first_hparams,
    other_than_run,
    run_of,
)
from t2t_keras.usr_dir import load_usr_dir


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """When to log, save, evaluate and stop: keywords of `train`, flags of `t2t train`.

    Raises:
        UserError: a value is impossible, or `best_by` needs sentences that are not
            decoded.
    """

    steps_per_call: int = option(
        1,
        "steps to run in one call of TensorFlow, without waiting for Python; signals "
        "and time limits are noticed between calls (default: 1)",
        ge=1,
    )
    log_every: int = option(100, "steps between log lines", ge=1)
    save_every: int | None = option(
        None,  # see `save_interval`
        "steps between checkpoints (default: a 40th of all, from 25 to 1000)",
        ge=1,
    )
    save_minutes: float = option(
        0.0, "minutes between checkpoints, instead of steps (the paper: 10)", ge=0
    )
    keep: int = option(20, "how many checkpoints to keep, besides the best one", ge=1)
    eval_every: int = option(1000, "steps between evaluations", ge=1)
    eval_sentences: int = option(
        500,
        "dev sentences to decode at each evaluation, for the metrics; 0: only the nll",
        ge=0,
    )
    best_by: Literal["nll", "metric"] = option(
        "nll",
        "how to choose the best checkpoint on dev: by nll (default), or by the "
        "problem's metric",
    )
    bleu_tokenize: Literal[BleuTokens, "auto"] = option(
        "auto",
        "sacreBLEU tokenization of BLEU on dev, and in later evaluations of the run; "
        "auto: the target language's, or what the run has had (default)",
    )
    patience: int = option(
        0, "end after N evaluations without a new best (default: never)", ge=0
    )
    average_last: int = option(
        10,
        "number of checkpoints to average at the end; the average is evaluated and "
        "kept, and `t2t translate` and other commands use it (default: 10); 0: none",
        ge=0,
    )
    max_minutes: float = option(
        0.0, "end training after M minutes; run the command again to resume", ge=0
    )

    def __post_init__(self) -> None:
        check_options(TrainOptions, vars(self))
        if self.best_by == "metric" and not self.eval_sentences:
            raise UserError("best_by=metric needs --eval_sentences above 0")

    def changes(self) -> dict[str, int | float | str]:
        """Returns the options that differ from the defaults."""
        defaults = vars(TrainOptions())
        return {
            name: value for name, value in vars(self).items() if value != defaults[name]
        }

    def save_interval(self, train_steps: int) -> int:
        """Returns the number of steps between checkpoints.

        The default is a 40th of all steps, so that the last ten checkpoints, which are
        averaged, cover the last quarter of the training; but at least 25 steps, because
        saving takes time, and at most 1000, because a failure loses the steps since the
        last checkpoint.
        """
        return self.save_every or min(max(train_steps // 40, 25), 1000)


# Of these options one excludes the other.
SAVING = {"save_every", "save_minutes"}


def run_settings(
    output_dir: str | Path,
    problem: str | None = None,
    hparams_set: str | None = None,
    changes: str = "",
    *,
    usr_dir: str | Path | None = None,
    data_dir: str | Path | None = None,
    seed: int | None = None,
    init_from: str | Path | None = None,
    options: OptionValues | None = None,
) -> tuple[RunConfig, HParams, TrainOptions]:
    """Returns the configuration of a run for arguments of `train`.

    Without a problem, the run in `output_dir` is resumed, and its settings replace all
    that are not given.

    Args:
        output_dir: the run directory.
        problem: the name of the problem; None: the run's.
        hparams_set: the name of the set; None: the hyper-parameters of the run, or of
            the run in `init_from`, are used.
        changes: changes to the hyper-parameters, `K=V,K=V`, which are only checked.
        usr_dir: the user's folder, which is imported; None: the run's.
        data_dir: the data directory; None: the run's.
        seed: the seed; None: the run's, or 0.
        init_from: the run or the checkpoint that gives the initial weights; None: the
            run's.
        options: fields of `TrainOptions`; the others are as in the run.

    Returns:
        The configuration, whose `batch_parts` is None in a new run; the
        hyper-parameters before any changes; and the options.

    Raises:
        UserError: a name is missing or unknown, an option is impossible, the data
            cannot be used, or there is no run to be resumed.
    """
    from t2t_keras.data.manifest import is_export

    options = options or {}
    require_known(TrainOptions, options, context="train")
    if options.keys() >= SAVING:
        raise UserError("--save_every and --save_minutes exclude each other; give one")
    if is_export(output_dir):  # `load` would take it for the run
        raise UserError(
            f"--output_dir: {output_dir} is an export; give a directory for the run"
        )
    recorded = existing_config(output_dir)
    if usr_dir is None and recorded is not None:
        usr_dir = recorded.existing_usr_dir()
    if usr_dir is not None:
        load_usr_dir(usr_dir)
    batch_parts = None
    if problem is None:
        recorded = _require_resumable(Path(output_dir), recorded)
        problem = recorded.problem
        data_dir = recorded.data_dir if data_dir is None else data_dir
        seed = recorded.seed if seed is None else seed
        init_from = recorded.init_from if init_from is None else init_from
        batch_parts = recorded.batch_parts
        options = repeated_options(recorded, options)
        if hparams_set is None:
            hparams_set = recorded.hparams_set
            hparams = recorded.read_hparams(Path(output_dir) / "hparams.json")
        else:
            hparams = registry.hparams(hparams_set)
    elif data_dir is None:
        raise UserError("--data_dir is missing; give the one of `t2t datagen`")
    else:
        hparams = first_hparams(hparams_set, init_from)
    if hparams_set is None:
        assert init_from is not None  # otherwise `first_hparams` has raised
        source = RunConfig.read(run_of(init_from))
        hparams_set = source.hparams_set
        usr_dir = usr_dir or source.usr_dir
    hparams.parse(changes)
    checked = TrainOptions(**options)
    task = registry.problem(problem)
    tokens = None if checked.bleu_tokenize == "auto" else checked.bleu_tokenize
    if tokens is None and recorded is not None:
        tokens = recorded.bleu_tokenize
    config = config_for(
        task, hparams_set, data_dir, seed or 0, usr_dir, init_from, tokens
    )
    config = dataclasses.replace(
        config,
        **_inherited(recorded, init_from),
        batch_parts=batch_parts,
        train_options=checked.changes(),
    )
    return config, hparams, checked


def _require_resumable(run: Path, config: RunConfig | None) -> RunConfig:
    """Returns the configuration of a run; refuses what has no training to resume."""
    if config is None:
        if what := other_than_run(run):
            raise UserError(f"--output_dir: {what}")
        raise UserError(
            f"--problem is missing; only a run is resumed without it, and {run} is "
            "none: give --problem, --hparams_set and --data_dir"
        )
    config.require_training(run)
    return config


def _inherited(
    recorded: RunConfig | None, init_from: str | Path | None
) -> dict[str, Any]:
    """Returns the decoding options and the origin of the run with the initial weights.

    A resumed run keeps its own.
    """
    if recorded is None and init_from is not None:
        recorded = existing_config(run_of(init_from))
    if recorded is None:
        return {}
    return {"decoding": recorded.decoding, "origin": recorded.origin}


def repeated_options(config: RunConfig, changes: OptionValues) -> OptionValues:
    """Returns the options for resuming a run, with changes to some of them."""
    options: OptionValues = dict(config.train_options)
    if changes.keys() & SAVING:
        options = {name: x for name, x in options.items() if name not in SAVING}
    return options | changes

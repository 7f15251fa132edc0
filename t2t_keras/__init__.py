"""The Transformer of "Attention Is All You Need" on Keras 3 and TensorFlow 2.

    import t2t_keras

    t2t_keras.datagen("my_problem", "data")
    t2t_keras.train("my_problem", "base", data_dir="data", output_dir="runs/my_run")
    translator = t2t_keras.load("runs/my_run")
    translator.translate(["A dog runs."])
    t2t_keras.load("served/1").translate(["A dog runs."])  # written by `t2t export`

The command line is `t2t`. A problem, model or hparam set of your own needs no other
names than these.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_keras.checking import Positive, Seed, checked
from t2t_keras.clone_folders import absent_folders
from t2t_keras.errors import UserError, require_local
from t2t_keras.hparam import HParams
from t2t_keras.options import option
from t2t_keras.problem import Problem, Split
from t2t_keras.registry import (
    register_hparams,
    register_model,
    register_optimizer,
    register_problem,
    register_ranged_hparams,
    register_schedule_factor,
)
from t2t_keras.tensorflow_import import quiet_import

__path__ += absent_folders()
quiet_import()

if TYPE_CHECKING:
    from t2t_keras.data.manifest import Manifest
    from t2t_keras.decoding.translator import Translator
    from t2t_keras.training.train import train
else:
    # Importing TensorFlow takes seconds, and neither `t2t list` nor a file that only
    # registers definitions needs it. Editors and type checkers see the imports above.
    def __getattr__(name: str) -> object:
        """Imports `train`, and TensorFlow with it, at its first use."""
        if name == "train":
            from t2t_keras.training.train import train

            return train
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


__all__ = [
    "HParams",
    "Problem",
    "UserError",
    "datagen",
    "load",
    "option",
    "register_hparams",
    "register_model",
    "register_optimizer",
    "register_problem",
    "register_ranged_hparams",
    "register_schedule_factor",
    "train",
]


@checked
def datagen(
    problem: str,
    data_dir: str | Path,
    sources: Mapping[Split, tuple[str | Path, str | Path]] | None = None,
    workers: Positive | None = None,
    seed: Seed = 0,
) -> "Manifest":
    """Makes the data of a problem, as `t2t datagen` does.

    Args:
        problem: the name of a registered problem.
        data_dir: the directory to write, which is made if it does not exist.
        sources: the files of source and target texts of each split, "train", "dev" and
            "test", which replace the problem's; None: the problem's.
        workers: number of processes, see `data.datagen.generate`.
        seed: the order of the training examples depends on it.

    Returns:
        The manifest of the directory.

    Raises:
        UserError: a source has a mistake, or the directory holds other data.
    """
    from t2t_keras import registry
    from t2t_keras.data.datagen import generate
    from t2t_keras.data.sources import ParallelFiles

    definition = registry.problem(problem)
    if sources:
        files = {split: ParallelFiles(*paths) for split, paths in sources.items()}
        definition = definition.replace(sources={**definition.sources, **files})
    return generate(definition, data_dir, workers, seed)


@checked
def load(
    output_dir: str | Path,
    checkpoint: str | int | Path | None = None,
    ensemble: Sequence[str | Path] = (),
) -> "Translator":
    """Loads a translator from a run directory or an export.

    Translators of runs and of all export formats have the methods `translate`, `n_best`
    and `score`.

    Args:
        output_dir: the run directory that `t2t train` wrote, or the directory that
            `t2t export` wrote.
        checkpoint: a step, "latest", "average", "best", "ema", or a path; None: the
            average of the newest checkpoints if there is one, else the newest. Must be
            None for an export.
        ensemble: further run directories with the same vocabularies; all models decode
            together.

    Raises:
        UserError: there is no such run, export or checkpoint.
    """
    require_local("output_dir", output_dir)
    from t2t_keras.exporting.formats import find_loader

    if load_export := find_loader(Path(output_dir)):
        if checkpoint is not None or ensemble:
            name = "ensemble" if ensemble else "checkpoint"
            raise UserError(
                f"{name}: {output_dir} is an export, which has only one; leave it out"
            )
        return load_export(Path(output_dir))
    from t2t_keras.run.directory import RunDirectory

    return RunDirectory(output_dir).translator(checkpoint, ensemble)


def __dir__() -> list[str]:
    return __all__

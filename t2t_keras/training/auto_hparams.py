"""Hyper-parameters of the value "auto", which depend on where training runs.

A new run takes what is fastest there. Its `hparams.json` has the value, so that the run
keeps it wherever it is resumed.
"""

from pathlib import Path

from t2t_keras.hparam import HParams
from t2t_keras.run.checkpoint_directory import CheckpointDirectory
from t2t_keras.run.config import is_run
from t2t_keras.run.directory import RunDirectory


def resolve_auto(hparams: HParams, output_dir: str | Path, has_gpus: bool) -> HParams:
    """Returns the hyper-parameters with a value in place of every "auto".

    Args:
        hparams: the hyper-parameters.
        output_dir: the run directory; a run that has a checkpoint keeps its values.
        has_gpus: whether the replicas are on GPUs.
    """
    if hparams.jit_compile != "auto":
        return hparams
    if is_run(output_dir) and CheckpointDirectory(Path(output_dir)).steps():
        kept = RunDirectory(output_dir).hparams.jit_compile
        return hparams.override(jit_compile=kept is True)
    has_one_shape = hparams.bucketing not in ("exact", "t2t", "static")
    return hparams.override(jit_compile=has_gpus and has_one_shape)

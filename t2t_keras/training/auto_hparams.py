"""Resolves the hyper-parameters "auto", which depend on the devices of a training.

A new run takes the fastest values and records them in its `hparams.json`. A resumed run
keeps them on any device.
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
    if "auto" not in (hparams.bucketing, hparams.jit_compile):
        return hparams
    recorded = None
    if is_run(output_dir) and CheckpointDirectory(Path(output_dir)).steps():
        recorded = RunDirectory(output_dir).hparams
    if hparams.bucketing == "auto":
        if recorded is not None:
            # An imported run has no value.
            bucketing = "exact" if recorded.bucketing == "auto" else recorded.bucketing
        elif has_gpus or hparams.jit_compile is True:
            bucketing = "packed"
        else:
            bucketing = "exact"
        hparams = hparams.override(bucketing=bucketing)
    if hparams.jit_compile == "auto":
        if recorded is not None:
            is_compiled = recorded.jit_compile is True
        else:
            is_compiled = has_gpus and hparams.bucketing == "packed"
        hparams = hparams.override(jit_compile=is_compiled)
    return hparams

"""Advice that a training on a GPU prints at its start."""

import tensorflow as tf

from t2t_keras.gpu_details import gpu_details
from t2t_keras.hparam import HParams
from t2t_keras.training.strategy import on_gpus
from t2t_keras.xla_cache import compiled_programs

_WITH_BFLOAT16 = (8, 0)  # compute capability of the A100


def dtype_advice(strategy: tf.distribute.Strategy, hparams: HParams) -> str:
    """Returns a sentence that recommends bfloat16 where it is faster, otherwise ""."""
    if hparams.compute_dtype != "float32" or not on_gpus(strategy):
        return ""
    capabilities = [gpu.get("compute_capability", (0, 0)) for gpu in gpu_details()]
    if min(capabilities) < _WITH_BFLOAT16:
        return ""
    return (
        "computing in float32; on these GPUs, --hparams compute_dtype=bfloat16 is "
        "faster"
    )


def compilation_notice(hparams: HParams) -> str:
    """Returns a sentence about the time that XLA needs, or "" without XLA."""
    if hparams.jit_compile is not True:
        return ""
    # The times are those of the base model on an H100.
    per_shape = "for every shape of a batch" if hparams.bucketing == "static" else ""
    folder = compiled_programs()
    per_start = f"once, and kept in {folder}" if folder else "at every start"
    when = ", ".join(filter(None, [per_shape, per_start]))
    return f"XLA compiles the update, which may take a minute: {when}"

"""Advice that a training on a GPU prints at its start, with the device stubbed."""

import types

import pytest
import tensorflow as tf

from t2t_keras.hparam import HParams
from t2t_keras.training.trainer import compilation_notice, dtype_advice


class Devices:
    """A strategy, as far as its devices are concerned."""

    def __init__(self, *names):
        self.extended = types.SimpleNamespace(worker_devices=names)


@pytest.mark.parametrize(
    ("capabilities", "dtype", "is_advised"),
    [
        ([(8, 0), (9, 0)], "float32", True),
        ([(8, 0), (9, 0)], "bfloat16", False),
        ([(9, 0), (7, 5)], "float32", False),  # the T4 computes it in float32
    ],
)
def test_bfloat16_is_recommended_from_the_a100_on(
    monkeypatch, capabilities, dtype, is_advised
):
    monkeypatch.setattr(
        tf.config, "list_physical_devices", lambda _: list(range(len(capabilities)))
    )
    monkeypatch.setattr(
        tf.config.experimental,
        "get_device_details",
        lambda gpu: {"compute_capability": capabilities[gpu]},
    )
    text = dtype_advice(Devices("/device:GPU:0"), HParams(compute_dtype=dtype))
    assert ("--hparams compute_dtype=bfloat16" in text) == is_advised
    assert bool(text) == is_advised


def test_on_a_cpu_nothing_is_recommended():
    assert not dtype_advice(Devices("/device:CPU:0"), HParams())


def test_compilation_is_announced(monkeypatch):
    hparams = HParams(bucketing="static", jit_compile=True)
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_persistent_cache_directory=/cache")
    assert compilation_notice(hparams).endswith("batch, once, and kept in /cache")
    monkeypatch.setenv("TF_XLA_FLAGS", "")
    assert compilation_notice(hparams).endswith("batch, at every start")
    assert not compilation_notice(hparams.override(jit_compile=False))

"""What a GPU would run: kernels, host memory, bytes; see `benchmarks/gpu_audit.py`."""

from pathlib import Path

import pytest
import tensorflow as tf

from t2t_keras.decoding.constraint import AllOf, ForcedPrefix, MinimumLength
from t2t_keras.hparam import HParams

FOLDER = Path(__file__).parents[1] / "benchmarks"
VOCAB = 1009
SMALL = HParams(num_layers=1, d_model=32, d_ff=48, num_heads=2)


@pytest.fixture(autouse=True)
def _as_a_script_has_it(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)


@pytest.mark.parametrize(
    ("dtype", "replicas", "bytes_per_logit"),
    [
        ("float32", 1, 20),
        # The logits come in 16 bits, and P' goes into the products in 16 bits.
        ("bfloat16", 1, 24),
        pytest.param("float16", 2, 24, marks=pytest.mark.slow),
    ],
)
def test_training_runs_on_the_device(dtype, replicas, bytes_per_logit):
    from gpu_audit import training_audit

    hparams = SMALL.override(compute_dtype=dtype, clip_norm=1.0, ema_decay=0.9)
    found = training_audit(hparams, VOCAB, replicas=replicas)
    assert found.missing_kernels == []
    assert found.host_vocabulary_tensors == []
    assert found.bytes_per_logit == bytes_per_logit * replicas


def prefix(max_length: tf.Tensor) -> AllOf:
    """The constraints of a prefix and of a least length."""
    least = MinimumLength(tf.constant(2), VOCAB)
    return AllOf([least, ForcedPrefix([[9], [9], [9]], VOCAB)])


@pytest.mark.parametrize("constraint", [None, prefix])
def test_decoding_runs_on_the_device(constraint):
    from gpu_audit import search_audit

    found = search_audit(SMALL, VOCAB, constraint)
    assert found.missing_kernels == []
    assert found.host_vocabulary_tensors == []


def test_what_is_looked_for_would_be_found():
    from gpu_audit import audit

    @tf.function(autograph=False)
    def bad(ids, texts):
        mask = tf.range(VOCAB) == ids[:, None]  # int32: in the host's memory
        joined = tf.strings.join([texts, texts])  # no GPU has strings
        values = tf.where(mask, 1.0, 2.0) + 3.0
        return values, joined

    ids, texts = tf.TensorSpec([4], tf.int32), tf.TensorSpec([4], tf.string)
    found = audit(bad.get_concrete_function(ids, texts).graph, VOCAB, 4)
    assert found.missing_kernels == ["StringJoin(string)"]
    assert any(name.startswith("Equal") for name in found.host_vocabulary_tensors)
    # Equal writes a byte; SelectV2 reads it and writes 4; AddV2 reads and writes 4.
    assert found.bytes_per_logit == (1 + 5 + 8) * VOCAB / 1024
    assert found.float_ops == 2

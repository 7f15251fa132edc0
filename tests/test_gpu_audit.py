"""What a GPU would run: kernels, host memory, bytes; see `benchmarks/gpu_audit.py`."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.decoding.constraint import AllOf, ForcedPrefix, MinimumLength
from t2t_keras.hparam import HParams
from t2t_keras.problems.parsing.balanced_brackets import BalancedBrackets, BracketTokens

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


def brackets(max_length: tf.Tensor) -> AllOf:
    """The constraints of a parser, of a prefix and of a least length."""
    roles = np.zeros([3, VOCAB], np.int32)
    roles[0, 5:9], roles[1, 9], roles[2, 10] = 7, 1, 1
    kinds = tf.ones([3, 4], tf.int32)
    return AllOf(
        [
            BalancedBrackets(BracketTokens(*roles), kinds, max_length),
            MinimumLength(tf.constant(2), VOCAB),
            ForcedPrefix([[9], [9], [9]], VOCAB),
        ]
    )


@pytest.mark.parametrize("constraint", [None, brackets])
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


def test_the_script_prints_what_it_counts(capsys):
    import gpu_check

    flags = ("--audit", "--json", "--hparams", "num_layers=1,d_model=32,d_ff=64")
    gpu_check.main(list(flags))
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert report["missing_kernels"] == report["host_vocabulary_tensors"] == []
    assert report["bytes_per_logit"] == 20
    assert 300 < report["float_ops_per_step"] < 450


def test_runs_that_failed_are_not_equal(monkeypatch):
    import gpu_check

    failed = {"gpus": 0, "failed": 1, "weights_sha256": None}
    ended = {"gpus": 0, "weights_sha256": "a"}
    for first, again, is_equal in (
        (failed, failed, False),
        (ended, failed, False),
        (ended, ended, True),
    ):
        compiled = {"jit_compile": True}
        runs = iter([first, again, compiled])
        monkeypatch.setattr(gpu_check, "_in_process", lambda argv, n, r=runs: next(r))
        report = gpu_check._checked([])
        assert report["two_runs_are_equal"] == is_equal
        assert report["with_xla"] == compiled

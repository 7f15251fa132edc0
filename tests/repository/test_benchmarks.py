import gc
import json
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from helpers.optimized_graph import optimized_nodes

from t2t_keras.decoding.constraint import AllOf, ForcedPrefix, MinimumLength
from t2t_keras.hparam import HParams
from t2t_keras.model.transformer import Transformer
from t2t_keras.plugins.reports.costs import (
    count_parameters,
    flops_per_token,
    memory_per_batch,
)

FOLDER = Path(__file__).parents[2] / "benchmarks"
COMPARED = HParams()  # with a vocabulary of 8,000


@pytest.fixture(autouse=True)
def _as_a_script_has_it(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")


@pytest.mark.parametrize("window", [0, 4])
def test_operations_of_training_are_what_describe_prints(window):
    from rates import total_flops, training_matmuls

    hparams = COMPARED.override(attention_window=window, d_k=32)
    counted = total_flops(training_matmuls(hparams, 8000, 64, 32, 32))
    assert counted == 64 * 32 * flops_per_token(hparams, 8000, 32)["training"]


def test_operations_of_decoding_are_the_closed_form():
    from rates import decoding_matmuls, step_weights, total_flops

    batch = 64
    s = 32
    beam = 4
    steps = 39
    d = COMPARED.d_model
    v = 8000
    counted = total_flops(decoding_matmuls(COMPARED, v, batch, s, beam, steps))
    weights = 6 * 14 * d * d + d * v
    assert step_weights(COMPARED, v) == weights
    source = 6 * batch * s * (12 * d * d + 2 * d * s + 2 * d * d)
    past = steps * (steps + 1) // 2
    rows = batch * beam
    step = rows * (steps * (weights + 6 * 2 * d * s) + 6 * 2 * d * past)
    assert counted == 2 * (source + step)


def peak_of_a_step(work):
    """The bytes that a step needs, by TensorFlow's allocator of the CPU.

    The least of several steps: operations run in any order, and some orders hold more.
    """
    from train import train_step

    gc.collect()
    memory = tf.config.experimental.get_memory_info
    held_bytes = memory("CPU:0")["current"]
    step = train_step(work)
    step.run()
    peaks = []
    for _ in range(4):
        tf.config.experimental.reset_memory_stats("CPU:0")
        step.run()
        peaks.append(memory("CPU:0")["peak"] - held_bytes)
    return min(peaks)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.0, 0.1])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_memory_of_a_step_is_what_describe_prints(dtype, rate):
    from workload import Workload

    vocab_size = 512
    batch = 64
    length = 32
    rates = dict.fromkeys(("dropout", "attention_dropout", "ffn_dropout"), rate)
    hparams = HParams(num_layers=2, d_model=64, d_ff=256, num_heads=4, **rates)
    hparams = hparams.override(compute_dtype=dtype, batch_tokens=batch * length)
    parameters = count_parameters(hparams, vocab_size)["total"]
    expected = memory_per_batch(hparams, parameters, vocab_size, length, replicas=1)
    peak = peak_of_a_step(Workload(hparams, vocab_size, batch, length))
    assert peak == pytest.approx(expected["total"], rel=0.15)


# What a GPU would run: kernels, host memory, bytes; see `audit.py`.


VOCAB = 1009
AUDITED = HParams(num_layers=1, d_model=32, d_ff=48, num_heads=2)


@pytest.mark.parametrize(
    ("dtype", "replicas", "bytes_per_logit"),
    [
        pytest.param("float32", 1, 24, marks=pytest.mark.slow),
        # The logits come in 16 bits, and P' goes into the products in 16 bits.
        ("bfloat16", 1, 28),
        pytest.param("float16", 2, 28, marks=pytest.mark.slow),
    ],
)
def test_training_runs_on_the_device(dtype, replicas, bytes_per_logit):
    from audit import training_audit

    hparams = AUDITED.override(compute_dtype=dtype, clip_norm=1.0, ema_decay=0.9)
    audit = training_audit(hparams, VOCAB, replicas=replicas)
    assert audit.missing_kernels == []
    assert audit.host_vocabulary_tensors == []
    assert audit.bytes_per_logit == bytes_per_logit * replicas
    assert audit.host_waits == []


@pytest.mark.parametrize(
    "jit_compile", [True, pytest.param(False, marks=pytest.mark.slow)]
)
def test_the_host_waits_for_no_step_of_packed_rows(jit_compile):
    from audit import training_audit

    hparams = AUDITED.override(
        **{"compute_dtype": "bfloat16", "clip_norm": 1.0, "ema_decay": 0.9},
        **{"bucketing": "packed", "jit_compile": jit_compile},
    )
    audit = training_audit(hparams, VOCAB)
    assert audit.missing_kernels == []
    assert audit.host_waits == []


def test_the_host_waits_for_no_window_and_no_learned_position():
    from audit import training_audit

    hparams = AUDITED.override(attention_window=3, position="learned")
    assert training_audit(hparams, VOCAB).host_waits == []


@pytest.mark.parametrize("replicas", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_host_waits_for_no_loop_over_micro_batches_or_steps(replicas):
    from audit import waits_in_loops

    hparams = AUDITED.override(compute_dtype="float16", guided_alignment=0.1)
    assert waits_in_loops(hparams, VOCAB, 2, replicas) == []


def test_the_host_waits_for_no_batch_of_a_loss_on_dev():
    from audit import host_waits

    from t2t_keras.evaluation.evaluator import loss_sums

    sums = loss_sums(Transformer(AUDITED, VOCAB))
    assert host_waits(sums.get_concrete_function().graph) == []


def test_a_decoding_step_waits_only_to_know_which_rows_are_done():
    from audit import search_audit

    waits = search_audit(AUDITED, VOCAB).host_waits
    in_a_step = [wait for wait in waits if " -> while/while/" in wait]
    assert len(in_a_step) == 1
    assert "count_nonzero" in in_a_step[0].partition(" -> ")[0]


def test_the_host_waits_only_for_the_results_of_a_compiled_search():
    from audit import search_audit

    audit = search_audit(AUDITED, VOCAB, jit_compile=True)
    waits = [wait.partition(" -> ")[::2] for wait in audit.host_waits]
    assert [pair for pair in waits if "PartitionedCall" not in pair[0]] == []


def prefix() -> AllOf:
    """The constraints of a prefix and of a least length."""
    min_length = MinimumLength(tf.constant(2), VOCAB)
    return AllOf([min_length, ForcedPrefix([[9], [9], [9]], VOCAB)])


def test_decoding_runs_on_the_device():
    from audit import search_audit

    audit = search_audit(AUDITED, VOCAB, prefix)
    assert audit.missing_kernels == []
    assert audit.host_vocabulary_tensors == []


def test_waits_would_be_found():
    from audit import host_waits

    @tf.function(autograph=False)
    def waiting(x):
        size = tf.cast(tf.reduce_sum(x), tf.int32)  # computed on the device

        def is_due(i, y):
            return tf.reduce_sum(y) < 1.0  # decides on the host

        _, y = tf.while_loop(is_due, lambda i, y: (i + 1, y * 2.0), (0, x))
        return y, tf.zeros([size]), tf.sin(x) + 1.0

    graph = waiting.get_concrete_function(tf.TensorSpec([4])).graph
    waits = [wait.partition(" -> ") for wait in host_waits(graph)]
    assert len(waits) == 2
    producers, _, readers = zip(*waits, strict=True)
    assert "Cast" in producers
    assert "while" in readers


def test_a_loop_reads_its_condition_where_it_was_computed():
    """The graph optimizer removes the Identity that returns it."""
    from audit import host_waits

    @tf.function(autograph=False)
    def powers(x, n):
        return tf.while_loop(lambda i, x: i < n, lambda i, x: (i + 1, 2.0 * x), (0, x))

    inputs = tf.TensorSpec([4]), tf.TensorSpec([], tf.int32)
    assert host_waits(powers.get_concrete_function(*inputs).graph) == []
    nodes = {node.name: node for node in optimized_nodes(powers, *inputs)}
    (loop,) = (node for node in nodes.values() if node.op == "LoopCond")
    assert nodes[loop.input[0]].op == "Less"


def test_what_is_looked_for_would_be_found():
    from audit import audit

    @tf.function(autograph=False)
    def bad(ids, texts):
        mask = tf.range(VOCAB) == ids[:, None]  # int32: in the host's memory
        joined = tf.strings.join([texts, texts])  # no GPU has strings
        values = tf.where(mask, 1.0, 2.0) + 3.0
        return values, joined

    inputs = tf.TensorSpec([4], tf.int32), tf.TensorSpec([4], tf.string)
    report = audit(bad.get_concrete_function(*inputs).graph, VOCAB, 4)
    assert report.missing_kernels == ["StringJoin(string)"]
    assert any(name.startswith("Equal") for name in report.host_vocabulary_tensors)
    # Equal writes a byte; SelectV2 reads it and writes 4; AddV2 reads and writes 4.
    assert report.bytes_per_logit == (1 + 5 + 8) * VOCAB / 1024
    assert report.float_ops == 2


def test_the_rate_of_several_gpus_is_held_against_all_of_them(monkeypatch):
    import gpu_check

    monkeypatch.setattr(gpu_check, "_matmul_gflops", lambda dtype, repetitions: 200.0)
    for cards, fraction in ((0, 0.5), (1, 0.5), (4, 0.125)):
        devices = ["GPU"] * cards
        monkeypatch.setattr(
            tf.config, "list_physical_devices", lambda _, devices=devices: devices
        )
        assert gpu_check._fraction_of_matmul_rate(100.0, "float32") == fraction


def test_packed_rows_have_the_pairs_one_after_the_other():
    from variants import packed_rows

    ids = np.arange(2, 14).reshape(4, 3)
    assert list(packed_rows("source", ids, 1)) == ["source"]
    rows = packed_rows("source", ids, 2)
    np.testing.assert_array_equal(
        rows["source"], [[2, 3, 4, 5, 6, 7], [8, 9, 10, 11, 12, 13]]
    )
    np.testing.assert_array_equal(
        rows["source_segments"], [[1, 1, 1, 2, 2, 2], [3, 3, 3, 4, 4, 4]]
    )
    np.testing.assert_array_equal(rows["source_positions"], [[0, 1, 2, 0, 1, 2]] * 2)


def test_only_a_second_run_reads_the_cache(monkeypatch):
    import gpu_check

    names = []

    def train(argv, variant, gpus, folder):
        names.append(variant)
        return {"weights_sha256": "", "seconds_of_first_step": float(len(names))}

    monkeypatch.setattr(gpu_check, "_train_in_process", train)
    report = gpu_check._check_gpus([], ["without_xla"])
    assert names == ["without_xla"]
    assert report["seconds_of_first_step_from_cache"] is None
    assert report["two_runs_are_equal"] is None
    report = gpu_check._check_gpus([], [gpu_check.DEFAULT])
    assert names[1:] == [gpu_check.DEFAULT] * 2
    assert report["seconds_of_first_step_from_cache"] == 3.0
    assert report["two_runs_are_equal"]


def contestant(monkeypatch, name, **functions):
    """Lets `contest` import these functions as a contestant."""
    module = types.ModuleType(f"contestants.{name}")
    vars(module).update(functions)
    monkeypatch.setitem(sys.modules, module.__name__, module)


def test_a_contest_reports_the_median_rates(monkeypatch, capsys):
    import contest
    from contestants import TrainingStep

    steps = []
    waits = []

    def wait():
        waits.append(len(steps))
        return 1.0

    searched = []

    def search(work, beam_size, tokens):
        assert (beam_size, tokens) == (4, 40)
        return lambda: searched.append(work.batch)

    contestant(
        monkeypatch,
        "pytorch",
        uses_gpu=lambda: False,
        training_step=lambda work: TrainingStep(lambda: steps.append(work), wait),
        search=search,
    )
    seconds = iter([9.0, 2.0, 4.0, 3.0, 0.5, 8.0])
    monkeypatch.setattr(
        contest,
        "median_seconds",
        lambda run, times: sorted((run(), next(seconds))[1] for _ in range(times))[1],
    )
    arguments = ["--one", "pytorch", "--config", "tiny", "--batch", "6", "--length"]
    arguments += ["5", "--batches", "7", "--block", "3", "--searches", "2"]
    monkeypatch.setattr(sys, "argv", ["contest.py", *arguments])
    contest.main()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    # The second of four blocks of 3 steps takes 3 seconds, and the longer search 8.
    assert lines == [{"training": 30.0}, {"7": 7 / 8.0}]
    assert waits == [1, 5, 8, 11, 14, 17]
    assert searched == [7] * 4


def test_a_contest_on_a_gpu_refuses_a_toolkit_without_one(monkeypatch, capsys):
    import contest

    contestant(monkeypatch, "pytorch", uses_gpu=lambda: False)
    monkeypatch.setattr(sys, "argv", ["contest.py", "--one", "pytorch", "--on_gpu"])
    contest.main()
    assert json.loads(capsys.readouterr().out) == {"missing": "a build for this GPU"}


def test_the_table_of_a_contest_says_what_is_missing():
    from contest import table

    results = {
        "this_project": {"training": 630812.4, "8": 39.14, "128": 1716.4},
        "pytorch": {"missing": "torch"},
        "ctranslate2_model": {"8": 1e3 / 3, "failed": 1},
    }
    assert table(results).splitlines() == [
        "|  | training, target tokens/s | batch 8 | batch 128 |",
        "| --- | --- | --- | --- |",
        "| t2t_keras | 630,812 | 39.14 | 1,716 |",
        "| plain PyTorch, compiled (missing: torch) |  |  |  |",
        "| CTranslate2 (failed: 1) |  | 333.3 |  |",
    ]


@pytest.mark.slow
def test_a_contest_on_the_cpu():
    flags = "--config tiny --vocab_size 500 --batch 4 --length 6 --batches 2 --block 1"
    names = "this_project keras_on_jax ctranslate2_model"
    command = f"contest.py {flags} --searches 1 --contestants {names} --json"
    done = subprocess.run(
        [sys.executable, *command.split()], cwd=FOLDER, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    rates = {name: sorted(columns) for name, columns in results.items()}
    assert rates["this_project"] == ["2", "training"]
    assert rates["keras_on_jax"] in (["training"], ["missing"])
    assert rates["ctranslate2_model"] in (["2"], ["missing"])

"""What a training takes at least, and what control groups leave of the memory."""

import dataclasses
import math

import pytest

from t2t_keras.hparam import HParams
from t2t_keras.training import fit_memory
from t2t_keras.training.device_memory import least_memory
from t2t_keras.training.fit_memory import Spec
from t2t_keras.training.free_memory import _free_in_groups, free_memory
from t2t_keras.training.parameters import count_parameters

SMALL = {"num_layers": 2, "d_model": 64, "d_ff": 128, "num_heads": 4}
GIB = 2**30


def group(folder, **files):
    """Makes a control group: name of a file, `_` for the dot -> content."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("_", ".", 1)).write_text(f"{content}\n")


def test_limits_of_control_groups_version_2(tmp_path):
    """Every group up to the root limits; the page cache does not count."""
    stat = f"anon 5\ninactive_file {GIB}\nactive_file {GIB // 2}\nfile_dirty 7"
    files = {"memory_current": 3 * GIB, "memory_stat": stat}
    group(tmp_path / "slice", memory_max=4 * GIB, **files)
    group(tmp_path / "slice" / "job", memory_max="max", **files)
    assert list(_free_in_groups("0::/slice/job\n", tmp_path)) == [2.5 * GIB]
    assert list(_free_in_groups("0::/\n", tmp_path)) == []
    # In a container: the host's path, which is the mount point.
    group(tmp_path, memory_max=8 * GIB, **files)
    assert list(_free_in_groups("0::/docker/123\n", tmp_path)) == [6.5 * GIB]


def test_limits_of_control_groups_version_1(tmp_path):
    files = {
        "memory_limit_in_bytes": 4 * GIB,
        "memory_usage_in_bytes": 3 * GIB,
        "memory_stat": "inactive_file 1\ntotal_inactive_file 5\ntotal_active_file 6",
    }
    group(tmp_path / "memory" / "job", **files)
    groups = "9:name=systemd:/job\n8:memory:/job\n0::/\n"
    assert list(_free_in_groups(groups, tmp_path)) == [GIB + 11]


def test_this_machine_has_some_memory_free():
    assert 1e6 < free_memory() < math.inf


def test_micro_batches_and_replicas_divide_what_a_batch_takes():
    hparams = HParams(**SMALL)
    nothing = least_memory(hparams, (8000, None), (1, 1, 1), parts=10**9)
    whole, half = (
        least_memory(hparams, (8000, None), (1000, 20, 30), parts) - nothing
        for parts in (1, 2)
    )
    assert half == pytest.approx(whole / 2, rel=1e-3)
    # The logits alone, as float32.
    assert whole > 1000 * 20 * 8000 * 4
    # Weights and two moments, and the same in a checkpoint.
    parameters = count_parameters(hparams, 8000, None)["total"]
    assert nothing == pytest.approx(2 * 3 * 4 * parameters, rel=0.01)


@pytest.mark.slow
def test_a_model_takes_more_than_the_bound():
    """Of two models and next to no batch, with the copy for a checkpoint."""
    trials = [
        Spec(
            hparams=dataclasses.asdict(HParams(**SMALL)),
            source_vocab_size=vocab_size,
            target_vocab_size=None,
            shape=(1, 2, 2),
            simulate_devices=1,
            memory_gb=8.0,
        )
        for vocab_size in (8000, 300_000)
    ]
    small, large = (fit_memory._run(trial).peak_gb for trial in trials)
    bounds = [
        least_memory(HParams(**SMALL), (trial.source_vocab_size, None), trial.shape)
        for trial in trials
    ]
    weights = 4 * 64 * (300_000 - 8000)
    assert (bounds[1] - bounds[0]) / weights == pytest.approx(6, rel=0.02)
    assert large - small > (bounds[1] - bounds[0]) / 1e9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "vocabularies", "shape", "parts"),
    [
        ({}, (8000, None), (500, 20, 20), 1),  # mostly logits
        ({}, (8000, None), (1000, 20, 20), 2),
        ({"dropout": 0.0}, (400, None), (3000, 20, 20), 1),  # mostly activations
        ({"compute_dtype": "bfloat16"}, (4000, 4000), (1000, 20, 20), 1),
    ],
    ids=str,
)
def test_an_update_takes_more_than_the_bound(options, vocabularies, shape, parts):
    """By the peak of a process, above that of one with next to no batch."""
    hparams = HParams(**SMALL | options)
    spec = Spec(
        hparams=dataclasses.asdict(hparams),
        source_vocab_size=vocabularies[0],
        target_vocab_size=vocabularies[1],
        shape=shape,
        simulate_devices=1,
        memory_gb=8.0,
        micro_batches=parts,
    )
    without = dataclasses.replace(spec, shape=(parts, 2, 2))
    peaks = [fit_memory._run(trial).peak_gb for trial in (without, spec)]
    bounds = [
        least_memory(hparams, vocabularies, trial.shape, parts) / 1e9
        for trial in (without, spec)
    ]
    assert peaks[1] - peaks[0] > bounds[1] - bounds[0] > 0.2

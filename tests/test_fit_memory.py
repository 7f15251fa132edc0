"""`--batch_tokens auto`: the search with a prober that is made up, and a real trial."""

import dataclasses

import pytest
from small_data import small_data
from small_run import HPARAMS

from t2t_keras import registry
from t2t_keras.data.batch_plan import BatchPlan
from t2t_keras.data.records import RecordIndex
from t2t_keras.option import UserError
from t2t_keras.training import fit_memory
from t2t_keras.training.device_memory import memory_of_shape
from t2t_keras.training.fit_memory import (
    Spec,
    Trial,
    fit_batch_tokens,
    largest_fitting,
)
from t2t_keras.training.run_dir import config_for

TRIAL = Trial(1.0, 1.0)


@pytest.mark.parametrize("count", [1, 2, 4, 5, 6, 23])
def test_the_search_finds_the_largest_and_tries_nothing_twice(count):
    sizes = [10 * i for i in range(1, count + 1)]
    for limit in range(5, 10 * count + 15, 10):
        tried = []

        def probe(size, limit=limit, tried=tried):
            tried.append(size)
            return TRIAL if size <= limit else None

        expected = max((size for size in sizes if size <= limit), default=None)
        assert largest_fitting(sizes, probe) == expected
        assert len(set(tried)) == len(tried)
        assert len(tried) <= count // 4 + 4


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A problem, and the configuration of a run."""
    data_dir = tmp_path_factory.mktemp("data")
    small_data(data_dir)
    problem = registry.problem("translate_text")
    return problem, config_for(problem, "none", data_dir, seed=0)


def test_trials_have_a_reserve_and_a_table(run, monkeypatch, capfd):
    """A device whose memory is 150 rows, of all sentences of the corpus."""
    specs = []

    def trial(spec: Spec) -> Trial | None:
        specs.append(spec)
        return TRIAL if spec.shape[0] <= 150 else None

    monkeypatch.setattr(fit_memory, "_run", trial)
    problem, config = run
    found = fit_batch_tokens(problem, config, HPARAMS, 2, 0.5, micro_batches=3)

    index = RecordIndex.open(config.data_dir, "translate_text", "train")
    rows = {}
    for size in (found, round(found * 2**0.25)):
        plan = BatchPlan(index.source_length, index.target_length, size, 0)
        rows[size] = plan.largest_shape(memory_of_shape(HPARAMS, config.vocab_sizes))[0]
    assert [1.1 * count <= 150 for count in rows.values()] == [True, False]
    assert all(spec.micro_batches == 3 for spec in specs)
    assert all(spec.simulate_devices == 2 for spec in specs)
    assert all(spec.memory_gb == 0.5 for spec in specs)
    table = capfd.readouterr().err.splitlines()
    assert table[0].split() == ["batch_tokens", "peak", "GB", "s/update"]
    assert [int(row.split()[0]) for row in table[1:-1]] == [
        spec.hparams["batch_tokens"] for spec in specs
    ]
    assert sum("does not fit" in row for row in table) >= 1
    assert table[-1].startswith(f"batch_tokens {found}, the largest that fits")


def test_nothing_fits(run, monkeypatch):
    monkeypatch.setattr(fit_memory, "_run", lambda spec: None)
    with pytest.raises(UserError, match=r"not even 1024 tokens fit into 0\.1 GB"):
        fit_batch_tokens(*run, HPARAMS, memory_gb=0.1)


@pytest.mark.slow
def test_real_trials(run):
    """Logits of 1,000 x 20 x 8,000 floats take 0.64 GB, a handful of times."""
    spec = Spec(
        hparams=dataclasses.asdict(HPARAMS),
        source_vocab_size=8000,
        target_vocab_size=None,
        shape=(10, 20, 20),
        simulate_devices=1,
        memory_gb=6.0,
    )
    small = fit_memory._run(spec)
    large = fit_memory._run(dataclasses.replace(spec, shape=(1000, 20, 20)))
    assert 0.64 < large.peak_gb - small.peak_gb < 5
    assert large.seconds > small.seconds > 0
    limited = dataclasses.replace(spec, shape=(1000, 20, 20), memory_gb=small.peak_gb)
    assert fit_memory._run(limited) is None
    with pytest.raises(RuntimeError, match="a trial of --batch_tokens auto failed"):
        fit_memory._run(dataclasses.replace(spec, hparams={"no": "field"}))

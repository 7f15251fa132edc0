"""`t2t datagen --cluster` on a cluster of processes: the bytes of one process."""

import errno
import gzip
import re
import subprocess
import sys

import pytest
from helpers.command_line import run, run_json, run_refused, write
from helpers.ray_cluster import actor_processes, ray_cluster, start
from helpers.small_corpus import files, make_pairs
from helpers.waiting import wait_until

pytest.importorskip("ray", reason="needs the extra [ray]")

# Small tasks, so that there are many.
SMALL = """
from t2t_keras.plugins.ray import datagen, survey
datagen._PAIRS = 2000
survey._RANGE = 100_000
"""


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """The flags of a mixture of a plain and a compressed corpus."""
    folder = tmp_path_factory.mktemp("corpora")
    for name, count in {"a": 24_000, "b.gz": 3_000, "dev": 50}.items():
        for side, texts in enumerate(zip(*make_pairs(count, count), strict=True)):
            content = "".join(f"{text}\n" for text in texts).encode()
            is_compressed = name.endswith(".gz")
            content = gzip.compress(content) if is_compressed else content
            (folder / f"{side}.{name}").write_bytes(content)
    rows = []
    for split, name in {"train": "a", "train ": "b.gz", "dev": "dev"}.items():
        sides = f'source = "0.{name}"\ntarget = "1.{name}"'
        rows.append(f'[[{split.strip()}]]\nname = "{name}"\n{sides}\n')
    write(folder / "mixture.toml", *rows)
    flags = ["--problem", "translate_text", "--mixture", folder / "mixture.toml"]
    return [*flags, "--vocab_size", 400, "--clean", "duplicates"]


@pytest.fixture(scope="module")
def expected(words, tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    assert run("datagen", *words, "--data_dir", folder, "--workers", 1) == 0
    return files(folder)


@pytest.fixture(scope="module")
def cluster():
    """A head and two workers of one core each."""
    with ray_cluster(1, 1) as cluster:
        yield cluster


def parts(folder):
    """The parts of which a state is saved."""
    return list(folder.glob("*.incomplete/pairs-*/train.state.json"))


def task_processes(cluster):
    return actor_processes(cluster, "ray::_call")


@pytest.mark.slow
def test_bytes_match_one_process(cluster, words, expected, tmp_path, capfd):
    flags = ["--data_dir", tmp_path / "data", "--cluster", cluster.address]
    result = run_json(capfd, "datagen", *words, *flags)
    assert result["examples"]["dev"] == 50
    assert files(tmp_path / "data") == expected


@pytest.mark.slow
def test_relative_paths_and_a_mistake(cluster, tmp_path, capfd, monkeypatch):
    (tmp_path / "source").write_bytes(b"a\nb\ncaf\xe9\n")
    write(tmp_path / "target", "a", "b", "c")
    monkeypatch.chdir(tmp_path)
    pair = ["--train_source", "source", "--train_target", "target"]
    flags = ["--problem", "translate_text", "--data_dir", "data", *pair]
    sentence = run_refused(capfd, "datagen", *flags, "--cluster", cluster.address)
    assert "source, line 3: byte 0xe9 is not valid UTF-8; convert" in sentence


@pytest.mark.slow
def test_a_killed_worker_costs_its_tasks_only(cluster, words, expected, tmp_path):
    process = start(cluster, "datagen", *words, "--data_dir", tmp_path, code=SMALL)
    for count in (1, 4, 7):
        wait_until(lambda count=count: len(parts(tmp_path)) >= count, process)
        wait_until(lambda: task_processes(cluster), process)
        for worker in task_processes(cluster)[:1]:
            worker.kill()
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert files(tmp_path) == expected


@pytest.mark.slow
def test_a_lost_node_costs_its_tasks_only(words, expected, tmp_path):
    with ray_cluster(1, 1) as cluster:
        process = start(cluster, "datagen", *words, "--data_dir", tmp_path, code=SMALL)
        wait_until(lambda: len(parts(tmp_path)) >= 2, process)
        cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
        _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert files(tmp_path) == expected


@pytest.mark.slow
def test_a_killed_driver_continues(cluster, words, expected, tmp_path):
    process = start(cluster, "datagen", *words, "--data_dir", tmp_path, code=SMALL)
    wait_until(lambda: len(parts(tmp_path)) >= 5, process)
    process.kill()
    process.communicate()
    times = {path: path.stat().st_mtime_ns for path in parts(tmp_path)}
    flags = [*words, "--data_dir", tmp_path, "--workers", 1]
    process = start(cluster, "datagen", *flags, code=SMALL)
    shards = "*.incomplete/done/*-train-*-of-*"
    wait_until(lambda: list(tmp_path.glob(shards)), process)
    unchanged = [path for path in times if path.stat().st_mtime_ns == times[path]]
    assert len(unchanged) >= len(times) - 2  # those that were at work may have ended
    process.kill()
    process.communicate()
    process = start(cluster, "datagen", *flags, code=SMALL)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert "continuing where an earlier run stopped" in errors
    assert files(tmp_path) == expected


FAULTY = """
import errno, os, sys
import ray
from t2t_keras.errors import UserError
from t2t_keras.plugins.ray.cluster import WorkerSize
from t2t_keras.plugins.ray.task_runner import RayTaskRunner

def fill(number): raise OSError(errno.ENOSPC, "full")

ray.init(sys.argv[1], log_to_driver=False, configure_logging=False)
runner = RayTaskRunner(2, WorkerSize(1))
assert list(runner(abs, [-1, 2, -3])) == [1, 2, 3]
for task, arguments in ((fill, [1, 2]), (os._exit, [1])):
    try:
        list(runner(task, arguments))
    except (UserError, OSError) as error:
        line = f"{type(error).__name__} {getattr(error, 'errno', '')} {error}"
        print(f"\\n{line}", flush=True)  # Ray may have begun a line
"""


@pytest.mark.slow
def test_tasks_that_cannot_be_done(cluster):
    done = subprocess.run(
        [sys.executable, "-c", FAULTY, cluster.address],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()  # Ray writes others
    errors = [line for line in lines if line.startswith(("OSError", "UserError"))]
    assert len(errors) == 2, done.stdout + done.stderr
    full, lost = errors
    assert full.startswith(f"OSError {errno.ENOSPC} ")
    assert re.match("UserError  --cluster: a task lost its process 6 times", lost)


DEFINITIONS = """
from t2t_keras.data.mixture import Corpus, Mixture
from t2t_keras.problem import Problem
from t2t_keras.registry import register_problem

def numbers(start):
    for i in range(start, start + 300):
        yield f"number {i} .", f"{i * i} square !"

class Numbers:
    def __init__(self, start):
        self.start = start
    def __call__(self):
        return numbers(self.start)

@register_problem
def squares():
    corpora = (Corpus("low", Numbers(0)), Corpus("high", Numbers(5000)))
    return Problem(summary="squares", sources={"train": Mixture(corpora)})
"""


@pytest.mark.slow
def test_sources_of_a_user(cluster, tmp_path, capfd, monkeypatch):
    (tmp_path / "mine").mkdir()
    write(tmp_path / "mine" / "square_numbers.py", DEFINITIONS)
    monkeypatch.chdir(tmp_path)
    flags = ["--problem", "squares", "--usr_dir", "mine", "--vocab_size", 300]
    process = start(cluster, "datagen", *flags, "--data_dir", "tasks")
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 0, errors
    assert run("datagen", *flags, "--data_dir", "one", "--workers", 1) == 0
    assert files(tmp_path / "tasks") == files(tmp_path / "one")

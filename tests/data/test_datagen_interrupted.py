"""Datagen interrupted: killed, out of disk, a worker dead, two at a time."""

import contextlib
import errno
import multiprocessing
import shutil
import signal

import psutil
import pytest
from helpers.errors import refused
from helpers.small_corpus import PROBLEM, TRAIN, Given, faults, files, interrupt, python

from t2t_keras.data import datagen, encode_splits, vocabulary, write_shards
from t2t_keras.data.datagen import generate
from t2t_keras.data.encoding import SpillFiles
from t2t_keras.data.manifest import DataPlan, data_config
from t2t_keras.data.record_index import RecordIndex
from t2t_keras.data.shard import Shard
from t2t_keras.errors import UserError
from t2t_keras.files.atomic import lock

pytestmark = pytest.mark.usefixtures("small_scale")


@pytest.mark.slow
def test_datagen_resumes_after_a_kill_anywhere(complete, tmp_path):
    """Killed at every point where datagen changes something on the disk."""
    code = """
import os, signal, sys
from helpers.small_corpus import PROBLEM, faults, set_small_scale
from t2t_keras.data.datagen import generate

set_small_scale(setattr)
with faults(int(sys.argv[2]), lambda: os.kill(os.getpid(), signal.SIGKILL)):
    generate(PROBLEM, sys.argv[1], workers=1)
"""
    for call_count in range(1, 1000):
        out = tmp_path / str(call_count)
        returncode = python(code, out, call_count).wait()
        if returncode == 0:
            break
        assert returncode == -signal.SIGKILL
        with contextlib.suppress(UserError):  # refused, or all there
            assert len(RecordIndex.open(out, "small", "train")) == 287
            assert (out / "small.manifest.json").exists()
        generate(PROBLEM, out, workers=1)
        assert files(out) == files(complete), f"killed at {call_count}"
    assert call_count > 30


@pytest.mark.parametrize(
    "signal_number",
    [signal.SIGKILL, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)],
)
def test_killed_with_its_workers_at_work(complete, tmp_path, signal_number):
    code = """
import sys
from helpers.small_corpus import DEV, PROBLEM, TRAIN, Endless, Given, set_small_scale
from t2t_keras.data.datagen import generate
set_small_scale(setattr)
problem = PROBLEM.replace(sources={"train": Endless(TRAIN), "dev": Given(DEV)})
generate(problem, sys.argv[1], workers=2)
"""
    process = python(code, tmp_path)
    assert process.stdout.readline() == "waiting\n"
    workers = psutil.Process(process.pid).children(recursive=True)
    assert len(workers) >= 2
    if signal_number == signal.SIGHUP:  # which a terminal sends to all of them
        for worker in workers:
            worker.send_signal(signal_number)
        assert process.poll() is None
    process.send_signal(signal_number)
    assert process.wait() == -signal_number
    _, alive = psutil.wait_procs(workers, timeout=300)
    assert not alive
    refused("is unfinished", RecordIndex.open, tmp_path, "small", "dev")
    generate(PROBLEM, tmp_path, workers=2)
    assert files(tmp_path) == files(complete)


@pytest.fixture
def encoded(monkeypatch):
    """First and last number of each chunk that is encoded."""
    encoded = []
    chunks = encode_splits._chunks

    def spy(pairs, start):
        for index, chunk in chunks(pairs, start):
            encoded.append((index, index + len(chunk)))
            yield index, chunk

    monkeypatch.setattr(encode_splits, "_chunks", spy)
    return encoded


def test_encoded_parts_are_reused(complete, tmp_path, encoded, monkeypatch):
    with faults(30, interrupt), pytest.raises(KeyboardInterrupt):
        generate(PROBLEM, tmp_path, workers=1)
    encoded.clear()
    monkeypatch.delattr(vocabulary, "train_vocabulary")
    generate(PROBLEM, tmp_path, workers=1)
    assert encoded[0][0] >= 50 and encoded[0][0] % 10 == 0
    assert files(tmp_path) == files(complete)


def test_an_unfinished_run_of_another_recipe_is_thrown_away(complete, tmp_path, capsys):
    with faults(30, interrupt), pytest.raises(KeyboardInterrupt):
        generate(PROBLEM, tmp_path, workers=1, seed=9)
    generate(PROBLEM, tmp_path, workers=1)
    assert "starting again, because seed was 9 and is now 0" in capsys.readouterr().err
    assert files(tmp_path) == files(complete)


def full_disk():
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("at", [1, 25, 50, 65])
def test_full_disk(complete, tmp_path, at):
    with faults(at, full_disk), pytest.raises(UserError, match="is full; free some"):
        generate(PROBLEM, tmp_path, workers=1)
    with pytest.raises(UserError):
        RecordIndex.open(tmp_path, "small", "train")
    assert not (tmp_path / "small.manifest.json").exists()
    generate(PROBLEM, tmp_path, workers=1)
    assert files(tmp_path) == files(complete)


def test_a_worker_that_dies(tmp_path):
    class Killing(Given):
        def __call__(self):
            yield from self.pairs[:200]
            for worker in multiprocessing.active_children():
                worker.kill()
            yield from self.pairs[200:]

        def checksum(self):
            return "killing"

    problem = PROBLEM.replace(sources={"train": Killing(TRAIN)})
    refused("a worker process died", generate, problem, tmp_path, workers=2)


# Datagen divided over machines: the bytes of one run, in any order of events.


def test_three_tasks_make_what_one_makes(complete, tmp_path):
    shard_3, shard_1, shard_2 = (Shard(index, 3) for index in (3, 1, 2))
    generate(PROBLEM, tmp_path, workers=1, shard=Shard(1, 4))  # a division given up
    assert generate(PROBLEM, tmp_path, workers=1, shard=shard_3) is None
    assert generate(PROBLEM, tmp_path, workers=2, shard=shard_1) is None
    assert generate(PROBLEM, tmp_path, workers=1, shard=shard_1) is None  # once more
    assert not (tmp_path / "small.manifest.json").exists()
    assert generate(PROBLEM, tmp_path, workers=1, shard=shard_2) is not None
    assert files(tmp_path) == files(complete)
    assert generate(PROBLEM, tmp_path, shard=shard_3) is not None  # there already


def test_a_task_that_waited_while_another_published(tmp_path, monkeypatch):
    """It gets the lock of a directory that is gone, and has nothing left to do."""
    generate(PROBLEM, tmp_path, workers=1, shard=Shard(1, 2))
    publish = datagen.publish

    def other_task_publishes(directory, *paths):
        publish(directory, *paths)
        assert not directory.exists()
        publish(directory, *paths)

    monkeypatch.setattr(datagen, "publish", other_task_publishes)
    assert generate(PROBLEM, tmp_path, workers=1, shard=Shard(2, 2)) is not None


@pytest.mark.parametrize("stale", [False, True])
def test_tasks_that_wait_for_the_first_do_not_block_it(tmp_path, stale):
    """They have their locks already, and nothing is there, or a recipe of before."""
    if stale:
        larger = PROBLEM.replace(vocab_size=340)
        generate(larger, tmp_path, workers=1, shard=Shard(3, 3))
    work = tmp_path / "small.incomplete"
    plan = DataPlan(PROBLEM, data_config(PROBLEM, tmp_path, 0), tmp_path)
    waiting = Shard(2, 3)
    with lock(plan.shard_lock(waiting), None, plan.purpose(waiting)):
        assert generate(PROBLEM, tmp_path, workers=1, shard=Shard(1, 3)) is None
    assert (work / "config.json").exists()


@pytest.mark.parametrize(("at", "finisher"), [(10, 1), (20, 1), (35, 1), (45, 2)])
def test_an_interrupted_task_resumes(complete, tmp_path, at, finisher):
    """Once all examples are encoded, any task can finish the work."""
    generate(PROBLEM, tmp_path, workers=1, shard=Shard(2, 2))
    with faults(at, interrupt), pytest.raises(KeyboardInterrupt):
        generate(PROBLEM, tmp_path, workers=1, shard=Shard(1, 2))
    assert not (tmp_path / "small.manifest.json").exists()
    generate(PROBLEM, tmp_path, workers=1, shard=Shard(finisher, 2))
    assert files(tmp_path) == files(complete)


def test_a_task_encodes_its_share_only(tmp_path, encoded):
    problem = PROBLEM.replace(sources={"train": Given(TRAIN)})
    generate(problem, tmp_path, workers=1, shard=Shard(2, 3))
    assert (encoded[0][0], encoded[-1][1]) == (len(TRAIN) // 3, 2 * len(TRAIN) // 3)


def test_tasks_of_another_division_or_for_other_data_are_refused(tmp_path, monkeypatch):
    calls = [
        (PROBLEM, Shard(1, 3)),  # another division
        (PROBLEM.replace(vocab_size=340), Shard(2, 2)),  # another recipe
        (PROBLEM, Shard(1, 2)),  # the same task
        (PROBLEM, Shard(1, 1)),  # all of it
    ]
    encode = datagen.encode_splits

    def meanwhile(*args):
        monkeypatch.setattr(datagen, "encode_splits", encode)
        for problem, task in calls:
            with pytest.raises(UserError, match="another `t2t datagen` is at work"):
                generate(problem, tmp_path, workers=1, shard=task)
        encode(*args)

    monkeypatch.setattr(datagen, "encode_splits", meanwhile)
    generate(PROBLEM, tmp_path, workers=1, shard=Shard(1, 2))
    assert datagen.encode_splits is encode  # it has been called


def test_more_tasks_than_pairs(tmp_path):
    sources = {"train": Given(TRAIN[:40]), "dev": Given(TRAIN[:2])}
    problem = PROBLEM.replace(sources=sources)
    single = tmp_path / "1"
    by_three = tmp_path / "3"
    generate(problem, single, workers=1)
    parts = [Shard(index, 3) for index in (1, 2, 3)]
    made = [generate(problem, by_three, workers=1, shard=t) for t in parts]
    assert [manifest is None for manifest in made] == [True, True, False]
    assert files(single) == files(by_three)


def begun_anew(data_dir):
    """Removes a directory and begins there again, as another process may."""
    shutil.rmtree(data_dir)
    work = data_dir / "small.incomplete"
    (work / "done").mkdir(parents=True)
    (work / "part-1-of-1").mkdir()
    for name in ("lock", "part-1-of-1.lock"):
        (work / name).touch()
    return sorted(data_dir.rglob("*"))


STAGES = {
    "vocabulary": (vocabulary, "train_vocabulary"),
    "part": (datagen, "encode_splits"),
    "chunk": (SpillFiles, "append"),
    "shards": (write_shards, "_require_whole"),
    "manifest": (datagen, "write_manifest"),
}


@pytest.mark.parametrize("name", STAGES)
def test_a_run_writes_nothing_to_another_that_took_its_place(
    name, tmp_path, monkeypatch
):
    module, function = STAGES[name]
    run_stage = getattr(module, function)
    data_dir = tmp_path / "data"
    others = []

    def replaced_meanwhile(*args, **kwargs):
        result = run_stage(*args, **kwargs)
        if not others:
            others.extend(begun_anew(data_dir))
        return result

    monkeypatch.setattr(module, function, replaced_meanwhile)
    message = "small.incomplete was removed, renamed or replaced"
    refused(message, generate, PROBLEM, data_dir, workers=1)
    assert sorted(data_dir.rglob("*")) == others
    assert not any(path.stat().st_size for path in others if path.is_file())

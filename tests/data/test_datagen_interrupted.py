"""Datagen interrupted: killed, out of disk, a worker dead, two at a time."""

import contextlib
import errno
import multiprocessing
import shutil
import signal

import psutil
import pytest
from helpers.errors import refused
from helpers.small_corpus import (
    DEV,
    PROBLEM,
    TRAIN,
    Given,
    faults,
    files,
    interrupt,
    python,
)

from t2t_keras.data import datagen, vocabulary, write_shards
from t2t_keras.data.datagen import generate
from t2t_keras.data.encoding import SpillFiles
from t2t_keras.data.record_index import RecordIndex
from t2t_keras.errors import UserError

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


def test_encoded_parts_are_reused(complete, tmp_path, monkeypatch):
    starts = []

    class Watched(Given):
        def read_pairs(self, start, stop):
            starts.append(start)
            return iter(self.pairs[start:stop])

    sources = {"train": Watched(TRAIN), "dev": Given(DEV)}
    problem = PROBLEM.replace(sources=sources)
    with faults(30, interrupt), pytest.raises(KeyboardInterrupt):
        generate(problem, tmp_path, workers=1)
    starts.clear()
    monkeypatch.delattr(vocabulary, "train_vocabulary")
    generate(problem, tmp_path, workers=1)
    (start,) = starts
    assert start >= 50 and start % 10 == 0
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


def test_a_run_whose_data_another_one_has_published(complete, tmp_path, monkeypatch):
    """It gets the lock of a directory that is gone, and has nothing left to do."""
    publish = datagen.publish

    def another_publishes(plan):
        publish(plan)
        assert not plan.directory.exists()
        publish(plan)

    monkeypatch.setattr(datagen, "publish", another_publishes)
    generate(PROBLEM, tmp_path, workers=1)
    assert files(tmp_path) == files(complete)


def test_a_second_run_is_refused(tmp_path, monkeypatch):
    calls = [PROBLEM, PROBLEM.replace(vocab_size=340)]
    encode = datagen.encode_splits

    def meanwhile(*args):
        monkeypatch.setattr(datagen, "encode_splits", encode)
        for problem in calls:
            refused("another `t2t datagen` is at work", generate, problem, tmp_path, 1)
        encode(*args)

    monkeypatch.setattr(datagen, "encode_splits", meanwhile)
    generate(PROBLEM, tmp_path, workers=1)
    assert datagen.encode_splits is encode  # it has been called


def begun_anew(data_dir):
    """Removes a directory and begins there again, as another process may."""
    shutil.rmtree(data_dir)
    work = data_dir / "small.incomplete"
    (work / "done").mkdir(parents=True)
    (work / "pairs").mkdir()
    (work / "lock").touch()
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

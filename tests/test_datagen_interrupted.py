"""Datagen interrupted: killed, out of disk, a worker dead, two at a time."""

import contextlib
import errno
import multiprocessing
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest
from small_corpus import (
    PROBLEM,
    TRAIN,
    Given,
    faults,
    files,
    interrupt,
    python,
    set_small_scale,
)

from t2t_keras.data import datagen, encoding
from t2t_keras.data.datagen import generate
from t2t_keras.data.records import RecordIndex
from t2t_keras.option import UserError

pytestmark = pytest.mark.usefixtures("small_scale")


def run_and_kill_everywhere(directory: Path, step: int) -> int:
    """Kills a run at every `step`-th change and lets another one finish the work.

    Returns:
        the number of changes that a run makes.
    """
    set_small_scale(setattr)
    encoding.CHUNK = 40  # fewer places, all of the same kinds
    generate(PROBLEM, directory / "whole", workers=1)
    whole = files(directory / "whole")
    for at in range(1, 1000, step):
        out = directory / str(at)
        if not killed_at(at, out):
            return at - 1
        with contextlib.suppress(UserError):  # refused, or all there
            assert len(RecordIndex.open(out, "small", "train")) == 287
            assert (out / "small.manifest.json").exists()
        generate(PROBLEM, out, workers=1)
        assert files(out) == whole, f"killed at {at}"
    raise AssertionError("a run without an end")


def killed_at(at: int, out: Path) -> bool:
    """Runs datagen in a process that kills itself; returns whether it did."""
    child = os.fork()
    if child == 0:
        with faults(at, lambda: os.kill(os.getpid(), signal.SIGKILL)):
            generate(PROBLEM, out, workers=1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL)
    return status != 0


@pytest.mark.slow
@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_anywhere_and_run_again(tmp_path, step):
    code = """
import pathlib, sys, tensorflow, test_datagen_interrupted as test
print(test.run_and_kill_everywhere(pathlib.Path(sys.argv[1]), int(sys.argv[2])))
"""
    process = python(code, tmp_path, step)
    places = int(process.communicate()[0])
    assert process.returncode == 0
    assert places > 30


class Endless(Given):
    """Pairs of which the last one never comes, when they are read to be encoded."""

    def __call__(self):
        yield from self.pairs[:-1]
        if (Path(sys.argv[1]) / "small.incomplete/done/vocab.small.330.spm").exists():
            print("waiting", flush=True)
            signal.pause()  # until it is killed
        yield self.pairs[-1]


def test_killed_with_its_workers_at_work(complete, tmp_path):
    code = """
import sys
from small_corpus import DEV
from test_datagen_interrupted import *
set_small_scale(setattr)
problem = PROBLEM.replace(sources={"train": Endless(TRAIN), "dev": Given(DEV)})
generate(problem, sys.argv[1], workers=2)
"""
    process = python(code, tmp_path)
    assert process.stdout.readline() == "waiting\n"
    workers = psutil.Process(process.pid).children(recursive=True)
    assert len(workers) >= 2
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(workers, timeout=300)
    assert not alive
    with pytest.raises(UserError, match="is unfinished"):
        RecordIndex.open(tmp_path, "small", "dev")
    generate(PROBLEM, tmp_path, workers=2)
    assert files(tmp_path) == files(complete)


def test_what_is_encoded_is_not_encoded_again(complete, tmp_path, monkeypatch):
    with faults(30, interrupt), pytest.raises(KeyboardInterrupt):
        generate(PROBLEM, tmp_path, workers=1)
    firsts = []
    chunks = encoding._chunks

    def spy(pairs, first):
        firsts.append(first)
        return chunks(pairs, first)

    monkeypatch.setattr(encoding, "_chunks", spy)
    monkeypatch.delattr(datagen, "train_vocabulary")
    generate(PROBLEM, tmp_path, workers=1)
    assert len(firsts) == 1 and firsts[0] >= 50 and firsts[0] % 10 == 0
    assert files(tmp_path) == files(complete)


def test_an_unfinished_run_of_another_recipe_is_thrown_away(complete, tmp_path, capsys):
    with faults(30, interrupt), pytest.raises(KeyboardInterrupt):
        generate(PROBLEM, tmp_path, workers=1, seed=9)
    generate(PROBLEM, tmp_path, workers=1)
    assert "starting again, because seed was 9 and is now 0" in capsys.readouterr().err
    assert files(tmp_path) == files(complete)


def full_disk():
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("at", [1, 10, 25, 50, 55, 60, 65])
def test_full_disk(complete, tmp_path, at):
    with faults(at, full_disk), pytest.raises(UserError, match="is full; free some"):
        generate(PROBLEM, tmp_path, workers=1)
    with pytest.raises(UserError):
        RecordIndex.open(tmp_path, "small", "train")
    assert not (tmp_path / "small.manifest.json").exists()
    generate(PROBLEM, tmp_path, workers=1)
    assert files(tmp_path) == files(complete)


def test_only_one_at_a_time(tmp_path):
    class Nested(Given):
        def __call__(self):
            with pytest.raises(UserError, match="another `t2t datagen` is at work"):
                generate(PROBLEM.replace(sources={"train": Given(TRAIN)}), tmp_path)
            return iter(self.pairs)

        def checksum(self):
            return "nested"

    generate(PROBLEM.replace(sources={"train": Nested(TRAIN)}), tmp_path, workers=1)


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
    with pytest.raises(UserError, match="a worker process died"):
        generate(problem, tmp_path, workers=2)

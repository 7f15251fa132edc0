"""Datagen divided over machines: the bytes of one run, in any order of events."""

import pytest
from small_corpus import (
    PROBLEM,
    TRAIN,
    Given,
    faults,
    files,
    interrupt,
    python,
)

from t2t_keras.data import datagen, encoding
from t2t_keras.data.datagen import Job, Part, generate
from t2t_keras.data.files import lock
from t2t_keras.data.manifest import DataConfig
from t2t_keras.option import UserError

pytestmark = pytest.mark.usefixtures("small_scale")


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2)])
def test_three_tasks_make_what_one_makes(complete, tmp_path, order):
    first, second, third = (Part(number, 3) for number in order)
    assert generate(PROBLEM, tmp_path, workers=1, part=first) is None
    assert generate(PROBLEM, tmp_path, workers=2, part=second) is None
    assert generate(PROBLEM, tmp_path, workers=1, part=second) is None  # once more
    assert not (tmp_path / "small.manifest.json").exists()
    assert generate(PROBLEM, tmp_path, workers=1, part=third) is not None
    assert files(tmp_path) == files(complete)
    assert generate(PROBLEM, tmp_path, part=first) is not None  # there already


def test_tasks_at_the_same_time(complete, tmp_path):
    code = """
import sys
from small_corpus import PROBLEM, set_small_scale
from t2t_keras.data.datagen import Part, generate

set_small_scale(setattr)
generate(PROBLEM, sys.argv[1], workers=1, part=Part.parse(sys.argv[2]))
"""
    processes = [python(code, tmp_path, f"{number}/3") for number in (1, 2, 3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert files(tmp_path) == files(complete)


def test_a_task_that_waited_while_another_published(tmp_path, monkeypatch):
    """It gets the lock of a directory that is gone, and has nothing left to do."""
    generate(PROBLEM, tmp_path, workers=1, part=Part(1, 2))
    publish = datagen.publish

    def other_task_publishes(work):
        publish(work)
        assert not work.directory.exists()
        publish(work)

    monkeypatch.setattr(datagen, "publish", other_task_publishes)
    assert generate(PROBLEM, tmp_path, workers=1, part=Part(2, 2)) is not None


@pytest.mark.parametrize("stale", [False, True])
def test_tasks_that_wait_for_the_first_are_no_obstacle(tmp_path, stale):
    """They have their locks already, and nothing is there, or a recipe of before."""
    if stale:
        generate(PROBLEM.replace(vocab_size=340), tmp_path, workers=1, part=Part(3, 3))
    work = tmp_path / "small.incomplete"
    recipe = DataConfig.of(PROBLEM, tmp_path, 0)
    waiting = Job(PROBLEM, recipe, tmp_path, Part(2, 3), workers=1)
    with lock(waiting.lock, None, waiting.purpose):
        assert generate(PROBLEM, tmp_path, workers=1, part=Part(1, 3)) is None
    assert (work / "config.json").exists()


@pytest.mark.parametrize("at", [10, 20, 35, 50])
def test_an_interrupted_task_goes_on(complete, tmp_path, at):
    generate(PROBLEM, tmp_path, workers=1, part=Part(2, 2))
    with faults(at, interrupt), pytest.raises(KeyboardInterrupt):
        generate(PROBLEM, tmp_path, workers=1, part=Part(1, 2))
    generate(PROBLEM, tmp_path, workers=1, part=Part(1, 2))
    assert files(tmp_path) == files(complete)


def test_when_the_last_task_is_interrupted_any_other_finishes(
    complete,
    tmp_path,
):
    generate(PROBLEM, tmp_path, workers=1, part=Part(2, 2))
    with faults(45, interrupt), pytest.raises(KeyboardInterrupt):
        generate(PROBLEM, tmp_path, workers=1, part=Part(1, 2))
    assert not (tmp_path / "small.manifest.json").exists()
    assert generate(PROBLEM, tmp_path, workers=1, part=Part(2, 2)) is not None
    assert files(tmp_path) == files(complete)


def test_a_task_encodes_its_share_only(tmp_path, monkeypatch):
    firsts = []
    chunks = encoding._chunks

    def spy(pairs, first):
        for number, chunk in chunks(pairs, first):
            firsts.append((number, number + len(chunk)))
            yield number, chunk

    monkeypatch.setattr(encoding, "_chunks", spy)
    problem = PROBLEM.replace(sources={"train": Given(TRAIN)})
    generate(problem, tmp_path, workers=1, part=Part(2, 3))
    assert (firsts[0][0], firsts[-1][1]) == (len(TRAIN) // 3, 2 * len(TRAIN) // 3)


def test_tasks_of_another_division_or_for_other_data_are_refused(tmp_path, monkeypatch):
    calls = [
        (PROBLEM, Part(1, 3)),  # another division
        (PROBLEM.replace(vocab_size=340), Part(2, 2)),  # another recipe
        (PROBLEM, Part(1, 2)),  # the same task
    ]
    encode = datagen.encode_part

    def meanwhile(*args):
        monkeypatch.setattr(datagen, "encode_part", encode)
        for problem, task in calls:
            with pytest.raises(UserError, match="another `t2t datagen` is at work"):
                generate(problem, tmp_path, workers=1, part=task)
        encode(*args)

    monkeypatch.setattr(datagen, "encode_part", meanwhile)
    generate(PROBLEM, tmp_path, workers=1, part=Part(1, 2))
    assert datagen.encode_part is encode  # it has been called


def test_more_tasks_than_pairs(tmp_path):
    sources = {"train": Given(TRAIN[:40]), "dev": Given(TRAIN[:2])}
    problem = PROBLEM.replace(sources=sources)
    one, three = tmp_path / "1", tmp_path / "3"
    generate(problem, one, workers=1)
    parts = [Part(number, 3) for number in (1, 2, 3)]
    made = [generate(problem, three, workers=1, part=t) for t in parts]
    assert [manifest is None for manifest in made] == [True, True, False]
    assert files(one) == files(three)


def test_an_abandoned_division_is_no_obstacle(complete, tmp_path):
    generate(PROBLEM, tmp_path, workers=1, part=Part(1, 3))
    generate(PROBLEM, tmp_path, workers=1)
    assert files(tmp_path) == files(complete)


@pytest.mark.parametrize(
    ("text", "message"),
    [("2", "write K/N, 2/4"), ("0/2", "first is 1/2"), ("3/2", "last 2/2")],
)
def test_no_such_task(text, message):
    with pytest.raises(UserError, match=f"--task.*{message}"):
        Part.parse(text)

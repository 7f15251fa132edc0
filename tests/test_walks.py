"""The walks of CONTRIBUTING.md are what runs: a trace finds their files and functions."""

import os
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import small_run
from small_data import PROBLEM, small_data

import t2t_keras
from t2t_keras.data.datagen import generate
from t2t_keras.training.reporting import Progress

ROOT = Path(__file__).parents[1]
CORE = Path(t2t_keras.__file__).parent
TITLE = re.compile(r"^### (.+): (\d+) files, at most (\d+) functions$", re.MULTILINE)
ITEM = re.compile(r"^\d+\. `t2t_keras/([\w/]+\.py)`((?:,?\s+`[\w.]+`)*)", re.MULTILINE)


def walk(title: str) -> tuple[dict[str, set[str]], int, int]:
    """Returns a walk's functions by file, and its limits on files and functions."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (found,) = (it for it in TITLE.finditer(text) if it[1] == title)
    section = text[found.end() :].split("\n#", 1)[0]
    listed = {
        file: set(re.findall(r"`([\w.]+)`", names))
        for file, names in ITEM.findall(section)
    }
    return listed, int(found[2]), int(found[3])


def traced(run: Callable[[], object]) -> set[tuple[str, str]]:
    """Returns the (file, function) pairs of the core that a call enters."""
    entered = set()

    def profile(frame, event, argument):
        code = frame.f_code
        path = code.co_filename
        is_function = not code.co_name.startswith("<")  # no lambda, no comprehension
        if event == "call" and is_function and path.startswith(str(CORE)):
            name = code.co_qualname.replace("<locals>.", "")
            entered.add((os.path.relpath(path, CORE), name))

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return entered


@pytest.fixture(scope="module")
def trainer(tmp_path_factory, data_dir):
    return small_run.trainer(data_dir, tmp_path_factory.mktemp("walk") / "run")


def data(tmp_path, trainer):
    return lambda: generate(PROBLEM, tmp_path / "data", workers=1)


def step(tmp_path, trainer):
    progress = Progress(trainer._run.path, 1, 1, 1)
    return lambda: trainer._update(trainer._batches(range(1)), 0, [0.1], progress)


def request(tmp_path, trainer):
    small_run.untrained(trainer._run.config.data_dir, tmp_path / "run", seed=1)
    translator = t2t_keras.load(tmp_path / "run")
    return lambda: translator.translate(["a dog sleeps"])


@pytest.mark.parametrize(
    ("title", "prepare", "most_files", "most_functions"),
    [
        ("Text to a data directory", data, 10, 90),
        ("A batch to its update", step, 12, 60),
        ("A request to its answer", request, 10, 90),
    ],
)
def test_a_walk_is_what_runs(
    title, prepare, most_files, most_functions, tmp_path, trainer
):
    listed, files, functions = walk(title)
    assert files <= most_files and functions <= most_functions
    entered = traced(prepare(tmp_path, trainer))
    assert {file for file, _ in entered} == set(listed)
    assert len(listed) == files
    assert len(entered) <= functions
    named = {(file, name) for file, names in listed.items() for name in names}
    assert named <= entered

"""The walks of "Reading the code" in CONTRIBUTING.md, against what really runs.

Each of them is run under a profiler, which collects the functions of the core that are
entered. Comprehensions and lambdas do not count.
"""

import importlib
import re
import sys
import threading
from pathlib import Path

import pytest
from small_data import write_pairs
from small_run import trainer
from tensorflow.python.ops import script_ops

from t2t_keras import registry
from t2t_keras.data.datagen import generate
from t2t_keras.training.strategy import distribute

ROOT = Path(__file__).parents[1]
CORE = ROOT / "t2t_keras"
TITLE = re.compile(r"^### (.*)$", re.MULTILINE)
ITEM = re.compile(r"^\d+\. `([\w/]+\.py)`((?:\s+`[\w.]+`,?)+)", re.MULTILINE)

WALKS = (
    "Text to a data directory",
    "A batch to its update",
    "A request to its answer",
)
_PREFIX = f"{CORE}/"
_FUNCTION = 0x1  # a flag of code objects that modules and classes do not have


class Profile:
    """Collects the functions of the core that all threads enter."""

    def __init__(self, monkeypatch) -> None:
        self.entered: set[tuple[str, str]] = set()
        self._patch = monkeypatch

    def __enter__(self):
        call = type(script_ops._py_funcs).__call__

        def profiled(*args, **kwargs):
            sys.setprofile(self._enter)  # TensorFlow started this thread
            return call(*args, **kwargs)

        self._patch.setattr(type(script_ops._py_funcs), "__call__", profiled)
        threading.setprofile(self._enter)
        sys.setprofile(self._enter)
        return self

    def __exit__(self, *error):
        sys.setprofile(None)
        threading.setprofile(None)
        self._patch.undo()

    def _enter(self, frame, event, arg):
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(_PREFIX):
            return
        if code.co_flags & _FUNCTION and not code.co_name.startswith("<"):
            file = Path(code.co_filename).relative_to(ROOT).as_posix()
            self.entered.add((file, code.co_qualname))


@pytest.fixture(scope="module", autouse=True)
def imported():
    """Imports the core, whose decorators would count otherwise."""
    for path in sorted(CORE.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        importlib.import_module(name.removesuffix(".__init__"))


@pytest.fixture(scope="module")
def entered(tmp_path_factory):
    """What each walk enters: (file, function)."""
    folder = tmp_path_factory.mktemp("walks")
    functions = {}
    with pytest.MonkeyPatch.context() as monkeypatch:
        files = write_pairs(folder)
        problem = registry.problem("translate_text").replace(
            vocab_size=310, sources={"train": files, "dev": files}
        )
        with Profile(monkeypatch) as profile:
            generate(problem, folder / "data", workers=1)
        functions["Text to a data directory"] = profile.entered

        run = trainer(folder / "data", folder / "run")
        data = run._data.batches(range(4), 1, 1, range(1))
        batches = iter(distribute(run._strategy, data))
        with Profile(monkeypatch) as profile:
            run._step.update(next(batches), 0, 1e-3)
        functions["A batch to its update"] = profile.entered

        run.train()
        translator = run._run.translator()
        with Profile(monkeypatch) as profile:
            assert len(translator.translate(["the dog sees the cat"])) == 1
        functions["A request to its answer"] = profile.entered
    return functions


@pytest.mark.parametrize("title", WALKS)
def test_the_document_lists_what_is_entered(entered, title):
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (walk,) = (match for match in TITLE.finditer(text) if match[1] == title)
    section = text[walk.end() : text.index("\n#", walk.end())]
    listed = set(re.findall(r"`(t2t_keras/[\w/]+\.py)`", section))
    assert listed == {file for file, _ in entered[title]}
    lines = sum(len((ROOT / file).read_text().splitlines()) for file in listed)
    print(f"{title}: {len(listed)} files, {lines:,} lines")
    functions = {(file, name.split(".<locals>.")[-1]) for file, name in entered[title]}
    for item in ITEM.finditer(section):
        for name in re.findall(r"`([\w.]+)`", item[2]):
            assert (item[1], name) in functions, f"{item[1]} {name} is not entered"

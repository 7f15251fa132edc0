"""The walks of "Reading the code" in CONTRIBUTING.md name the files that they enter.

Each walk runs under a profiler, which collects the files of the core in which a
function is called. Comprehensions and lambdas do not count.
"""

import importlib
import sys
import threading
from pathlib import Path

import pytest
from helpers.small_data import write_pairs
from helpers.small_run import trainer
from tensorflow.python.ops import script_ops

from t2t_keras import registry
from t2t_keras.data.datagen import generate
from t2t_keras.run.directory import RunDirectory
from t2t_keras.training.strategy import distribute

ROOT = Path(__file__).parents[2]
CORE = ROOT / "t2t_keras"
WALKS = (
    "Text to a data directory",
    "A batch to its update",
    "A request to its answer",
)
_PREFIX = f"{CORE}/"
_FUNCTION = 0x1  # a flag of code objects that modules and classes do not have


class Profile:
    """Collects the files of the core that all threads enter."""

    def __init__(self, monkeypatch) -> None:
        self.files: dict[str, None] = {}  # in the order of their first calls
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
            self.files[file] = None


@pytest.fixture(scope="module", autouse=True)
def imported():
    """Imports the core, whose decorators would count otherwise."""
    for path in sorted(CORE.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        importlib.import_module(name.removesuffix(".__init__"))


@pytest.fixture(scope="module")
def entered(trained_run, tmp_path_factory):
    """The files that each walk enters."""
    folder = tmp_path_factory.mktemp("walks")
    files_of = {}
    with pytest.MonkeyPatch.context() as monkeypatch:
        files = write_pairs(folder)
        problem = registry.problem("translate_text").replace(
            vocab_size=310, sources={"train": files, "dev": files}
        )
        with Profile(monkeypatch) as profile:
            generate(problem, folder / "data", workers=1)
        files_of["Text to a data directory"] = profile.files

        run = trainer(folder / "data", folder / "run")
        data = run._data.batches(range(4), 1, 1, range(1))
        batches = iter(distribute(run._strategy, data))
        with Profile(monkeypatch) as profile:
            run._step.update(next(batches), 0, 1e-3)
        files_of["A batch to its update"] = profile.files

        translator = RunDirectory(trained_run).translator()
        with Profile(monkeypatch) as profile:
            assert len(translator.translate(["the dog sees the cat"])) == 1
        files_of["A request to its answer"] = profile.files
    return files_of


@pytest.mark.parametrize("title", WALKS)
def test_contributing_names_the_files_of_a_walk(entered, title):
    """Prints the files, with their physical lines; `pytest -s` shows them."""
    counts = {}
    for file in entered[title]:
        counts[file] = len((ROOT / file).read_text(encoding="utf-8").splitlines())
    print(f"\n{title}: {len(counts)} files, {sum(counts.values()):,} lines")
    for file, count in counts.items():
        print(f"{count:7,} {file}")
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition(f"### {title}\n")[2].partition("\n#")[0]
    unnamed = [file for file in counts if f"`{file}`" not in section]
    assert not unnamed, f"CONTRIBUTING.md, '{title}', does not name {unnamed}"

"""Mutation testing of `docs/paper.md`: is each statement's code held by its tests?

    python tests/mutations.py            # all mutations
    python tests/mutations.py NAME ...   # some of them
    python tests/mutations.py --list

`mutations_of_model.py` and `mutations_of_training.py` have one deliberate fault or more
for each statement. Each fault is made in a temporary copy of the package, and the tests
that `docs/paper.md` names for the statement, and only these, run on the copy: at least
one must fail. The exit status is 1 if a mutation survives, or if the text that it
changes is no longer in the file.

Processes are forked after TensorFlow is imported, which takes longer than most tests.
Some statements are checked against data of the folder T2T_KERAS_REFERENCE.
"""

import argparse
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from mutations_of_model import MODEL
from mutations_of_training import TRAINING

ROOT = Path(__file__).parents[1]
COPIED = ("t2t_keras", "problems", "hparams", "tests", "docs", "pyproject.toml")
LIMIT = 900  # seconds that the tests of one mutation may take; a search may never end

# The third column of a row: [test_file.py](path) `test_a`, `test_b`
_NAMED = re.compile(r"\[(test_\w+\.py)\]\(\S+?\)((?:,? `test_\w+`)+)")


class Mutation(NamedTuple):
    """One fault.

    Attributes:
        name: of the mutation.
        statement: how its row of `docs/paper.md` begins.
        file: relative to the repository.
        old: text that is in the file exactly once.
        new: what takes its place.
    """

    name: str
    statement: str
    file: str
    old: str
    new: str

    def apply(self, root: Path) -> None:
        """Makes the fault in the files under `root`."""
        path = root / self.file
        text = path.read_text(encoding="utf-8")
        path.write_text(self.applied_to(text), encoding="utf-8")

    def applied_to(self, text: str) -> str:
        """Returns the file's text with the fault.

        Raises:
            ValueError: the old text is not there exactly once.
        """
        if text.count(self.old) != 1:
            raise ValueError(
                f"{self.name}: {self.file} has the old text {text.count(self.old)} "
                "times, not once; write the mutation anew"
            )
        return text.replace(self.old, self.new)


def mutations() -> Iterator[Mutation]:
    """Yields all mutations of the table."""
    for statement, files in (MODEL | TRAINING).items():
        for file, faults in files.items():
            for name, old, new in faults:
                yield Mutation(name, statement, file, old, new)


def named_tests(statement: str) -> list[str]:
    """Returns the tests that `docs/paper.md` names, `tests/file.py::name`.

    Raises:
        ValueError: not exactly one row begins with the statement.
    """
    lines = (ROOT / "docs/paper.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith(f"| {statement}")]
    if len(rows) != 1:
        raise ValueError(f"{len(rows)} rows of paper.md begin with '{statement}'")
    tests = [
        f"tests/{file}::{name}"
        for file, names in _NAMED.findall(rows[0])
        for name in re.findall(r"\w+", names)
    ]
    return sorted(tests, key=lambda test: "test_hparam" not in test)  # the fast first


def copy_package(root: Path) -> None:
    """Copies what the tests need, laid out as it is installed."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, root / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, root / name)
    for name in ("problems", "hparams"):  # before those of the editable installation
        (root / "t2t_keras" / name).symlink_to(root / name)


def run_tests(root: Path, tests: Iterable[str]) -> tuple[int, str]:
    """Runs tests in a process of their own.

    Returns:
        pytest's exit status (0 all passed, 1 some failed), and what it printed.
    """
    output = root / "output.txt"
    process = os.fork()
    if not process:
        signal.alarm(LIMIT)
        file = os.open(output, os.O_CREAT | os.O_WRONLY)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.chdir(root)
        os.environ["PYTHONPATH"] = str(root)  # for processes that tests start
        sys.path[:0] = [str(root)]
        import pytest

        options = ["-x", "-m", "", "-p", "no:cacheprovider", "--basetemp", root / "tmp"]
        os._exit(pytest.main([*map(str, options), *tests]))
    _, status = os.waitpid(process, 0)
    code = os.waitstatus_to_exitcode(status)
    return (1 if code == -signal.SIGALRM else code), output.read_text(errors="replace")


def judge(mutation: Mutation) -> bool:
    """Makes one mutation, runs the tests, and prints what came of it.

    Returns:
        Whether a test noticed it.
    """
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        copy_package(Path(folder))
        mutation.apply(Path(folder))
        code, output = run_tests(Path(folder), named_tests(mutation.statement))
    failed = re.search(r"^(?:FAILED|ERROR) \S*::(\S+)", output, re.MULTILINE)
    verdict = {0: "SURVIVED", 1: "killed"}.get(code, f"NOT RUN, status {code}")
    by = f" by {failed[1]}" if failed else " by the time limit" if code == 1 else ""
    seconds = time.monotonic() - start
    print(f"{verdict:9} {mutation.name}{by} ({seconds:.0f} s)", flush=True)
    if code not in (0, 1):
        print(output, file=sys.stderr)
    return code == 1


def main() -> int:
    """Runs the mutations that the command line names, by default all."""
    known = {mutation.name: mutation for mutation in mutations()}
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    parser.add_argument("--list", action="store_true", help="print the names")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(f"{m.name:32} {m.statement}" for m in known.values()))
        return 0
    if unknown := set(arguments.names) - set(known):
        parser.error(f"no such mutation: {', '.join(sorted(unknown))}; see --list")
    chosen = [known[name] for name in arguments.names or known]

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import keras  # noqa: F401 - once, before processes are forked
    import tensorflow  # noqa: F401

    tests = {test: None for m in chosen for test in named_tests(m.statement)}
    with tempfile.TemporaryDirectory() as folder:
        copy_package(Path(folder))
        code, output = run_tests(Path(folder), tests)
    if code:
        print(output, "the tests fail without any mutation", sep="\n", file=sys.stderr)
        return 1
    print(f"{len(tests)} tests pass without a mutation", flush=True)

    survivors = []
    for mutation in chosen:
        try:
            noticed = judge(mutation)
        except ValueError as error:
            print(f"GONE      {error}", flush=True)
            noticed = False
        if not noticed:
            survivors.append(mutation.name)
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} killed", *survivors)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())

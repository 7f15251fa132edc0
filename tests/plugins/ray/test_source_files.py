"""The files of sources: found in fields, classes, closures and code."""

import functools
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="needs the extra [ray]")
from t2t_keras.data.mixture import Corpus, Mixture
from t2t_keras.data.sources import PairFile, ParallelFiles
from t2t_keras.plugins.ray.nodes import _probe
from t2t_keras.plugins.ray.source_files import source_files
from t2t_keras.problem import Problem


@pytest.fixture
def paths(tmp_path):
    paths = [tmp_path / f"{name}.txt" for name in "abcdefg"]
    for path in paths:
        path.write_text("x\ty\n")
    return paths


def test_files_of_every_form_of_source(paths):
    a, b, c, d, e, f, g = paths

    def reader():
        return read(str(f))

    class Reader:
        path = str(d)

        def __init__(self):
            self.options = {"filter": e}

    corpora = (
        Corpus("a.txt", ParallelFiles(a, str(b))),
        Corpus("tagged", PairFile(c), tag="<2de>"),
        Corpus("object", Reader()),
        Corpus("function", reader),
        Corpus("partial", functools.partial(read, g, missing="/none/x.txt")),
    )
    problem = Problem(summary="", sources={"train": Mixture(corpora)})
    assert source_files(problem) == paths


def read(path, missing=""):
    yield from Path(path).read_text().splitlines()


def test_a_copy_that_differs_in_the_middle_or_at_the_end(tmp_path):
    path = tmp_path / "text"
    distinct = set()
    for position in (0, 250_000, 499_999):
        content = bytearray(500_000)
        content[position] = 1
        path.write_bytes(content)
        _, _, fingerprints = _probe()([], [str(path)], 160_000)
        distinct.add(fingerprints[str(path)])
    assert len(distinct) == 3

"""Patterns of inputs, pairs, and the names of outputs."""

from pathlib import Path

import pytest
from helpers.errors import refused

from t2t_keras.plugins.ray.input_files import (
    matching_files,
    matching_pairs,
    output_paths,
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.1.en.gz", "a.2.en.gz", "a.1.de", "a.2.de", "a[1].txt"):
        Path(name).touch()
    return tmp_path


def names(paths):
    return [str(path) for path in paths]


def test_files_and_pairs_are_found_by_their_wildcards(folder):
    assert names(matching_files("input", "a.*.en.gz")) == ["a.1.en.gz", "a.2.en.gz"]
    assert names(matching_files("input", "a[1].txt")) == ["a[1].txt"]  # a name
    sources, targets = matching_pairs("a.*.en.gz", "./a.?.de")
    assert names(targets) == ["a.1.de", "a.2.de"]
    assert names(output_paths(sources, Path("out"))) == ["out/a.1.en", "out/a.2.en"]


def test_pairs_in_folders(folder):
    for name in ("en/1.en", "en/x/2.en", "de/1.de", "de/x/2.de"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()
    _, targets = matching_pairs("en/**/*.en", "de/../de/**/*.de")
    assert names(targets) == ["de/../de/1.de", "de/../de/x/2.de"]
    Path("de/x/2.de").rename("de/x/3.de")
    refused("belongs to en/x/2.en", matching_pairs, "en/**/*.en", "de/**/*.de")


def test_refusals(folder):
    refused("--input: no file matches b-", matching_files, "input", "b-*")
    Path("a.3.en.gz").touch()
    patterns = ("a.*.en.gz", "a.*.de")
    refused("no file that matches .* belongs to a.3.en.gz", matching_pairs, *patterns)
    Path("a.3.en.gz").unlink()
    Path("a.4.de").touch()
    refused("no file that matches .* belongs to a.4.de", matching_pairs, *patterns)
    twins = [Path("a.gz"), Path("a.bz2")]
    refused("would both be written to out/a;", output_paths, twins, Path("out"))
    refused("a.1.de is an input; name", output_paths, [Path("a.1.de")], Path())


@pytest.mark.parametrize("name", ["cluster.jsonl.gz", "cluster.lock", "cluster.jsonl"])
def test_no_output_has_the_name_of_a_file_of_the_command(name):
    sentence = f"in/{name} would be written to out/.*, which is a file of the command"
    refused(sentence, output_paths, [Path("in", name)], Path("out"))

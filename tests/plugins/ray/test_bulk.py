"""Bulk translation and scoring: what needs no cluster."""

import dataclasses
import gzip
import json
import os
import re
import shutil
from pathlib import Path

import pytest
from helpers.command_line import run, write
from helpers.decoding_models import LINES
from helpers.errors import refused

from t2t_keras.errors import UserError
from t2t_keras.files.text_files import read_lines
from t2t_keras.plugins.ray import bulk_files, bulk_worker
from t2t_keras.plugins.ray.bulk import run_job
from t2t_keras.plugins.ray.bulk_files import (
    Chunk,
    checked_lines,
    matching_files,
    matching_pairs,
    output_paths,
    read_chunks,
)
from t2t_keras.plugins.ray.bulk_outputs import BulkJob, write_outputs
from t2t_keras.plugins.ray.bulk_worker import Request, Result, TextWorker
from t2t_keras.plugins.ray.cluster import WorkerSize
from t2t_keras.run.config import RunConfig


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


def test_faulty_lines_do_not_stop_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(bulk_files, "LONGEST_LINE", 30)
    path = tmp_path / "crawl.gz"
    rows = [
        b"\xef\xbb\xbffirst\r",
        b"\xff broken",
        b"",
        b"x" * 100,
        "\u2028ok".encode(),
    ]
    path.write_bytes(gzip.compress(b"\n".join(rows)))
    assert list(checked_lines(str(path))) == [
        ("first", ""),
        ("", "byte 0xff is not valid UTF-8"),
        ("", ""),
        ("", "more than 30 bytes"),
        ("\u2028ok", ""),
    ]


def test_intact_lines_match_other_commands(tmp_path):
    path = tmp_path / "text"
    path.write_bytes("\ufeffone\r\n\n two\u0085three \nfour".encode())
    texts = [text for text, _ in checked_lines(str(path))]
    assert texts == list(read_lines(path))


def test_files_are_cut_into_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(bulk_files, "MAX_LINES", 2)
    monkeypatch.setattr(bulk_files, "MAX_CHARACTERS", 10)
    path = str(write(tmp_path / "a", "a", "b", "c", "x" * 10, "d"))
    assert list(read_chunks(7, [path])) == [
        Chunk(7, path, 0, [("a",), ("b",)], {}),
        Chunk(7, path, 2, [("c",), ("x" * 10,)], {}),
        Chunk(7, path, 4, [("d",)], {}, is_last=True),
    ]
    empty = str(write(tmp_path / "empty"))
    assert list(read_chunks(0, [empty])) == [Chunk(0, empty, 0, [], {}, is_last=True)]
    shorter = tmp_path / "shorter"
    shorter.write_bytes(b"A\n\xff\n")
    *chunks, last = read_chunks(0, [path, str(shorter)])
    fault = {1: "byte 0xff is not valid UTF-8"}
    assert chunks == [
        Chunk(0, f"{path} and {shorter}", 0, [("a", "A"), ("b", "")], fault)
    ]
    assert last.mistake == f"{path} and {shorter} differ in their number of lines"


def request_of(run, **fields):
    request = Request(str(run), **fields)
    return request, request.ids()


@pytest.mark.parametrize(
    ("flags", "fields"),
    [
        ((), {}),
        (("--scores",), {"is_numbered": True}),
        (
            ("--decode_hparams", "sampling=true,seed=5"),
            {"options": {"sampling": True, "seed": 5}},
        ),
    ],
)
def test_a_worker_writes_the_rows_of_translate(trained_run, tmp_path, flags, fields):
    output = tmp_path / "output"
    path = write(tmp_path / "input", *LINES)
    assert run("translate", trained_run, path, "--output", output, *flags) == 0
    worker = TextWorker(*request_of(trained_run, **fields))
    (chunk,) = read_chunks(0, [str(path)])
    result = worker.compute(chunk)
    assert "".join(result.rows) == output.read_text()
    assert result.counts["lines"] == len(LINES) and not result.faults


class Translator:
    """Fails with some texts, or with all."""

    def __init__(self, *deadly, works=True):
        self.deadly = deadly
        self.works = works

    def score(self, sources, targets):
        for text in sources:
            if text in self.deadly or not self.works:
                raise ValueError(f"cannot score {text}\nat all")
        return [Score(-float(len(x)), len(x)) for x in sources]


@dataclasses.dataclass
class Score:
    log_prob: float
    tokens: int
    is_truncated: bool = False


def scorer(translator):
    worker = TextWorker(Request("run", scores_pairs=True), [])
    worker._translator = translator
    return worker


def test_a_line_that_fails_is_found_among_the_others():
    pairs = [(f"{i}", "x") for i in range(100)]
    chunk = Chunk(3, "crawl", 2000, [*pairs[:99], ("", "")], {99: "no text"})
    result = scorer(Translator("7", "44")).compute(chunk)
    faults = {2008: "cannot score 7", 2045: "cannot score 44", 2100: "no text"}
    assert result.faults == faults
    rows = [f"-{len(source)}.000000\t{len(source)}\n" for source, _ in pairs]
    rows[7] = rows[44] = rows[99] = "-inf\t0\n"
    assert result.rows == rows
    tokens = sum(len(f"{i}") for i in range(99)) - 3
    counts = {"lines": 100, "faulty": 3, "truncated": 0, "tokens": tokens}
    assert result.counts == counts | {"log_prob": -tokens}


def test_a_worker_that_fails_with_every_line_ends_the_command():
    chunk = Chunk(0, "crawl", 0, [("x", "x"), ("y", "y")], {})
    message = "a worker fails with every line: cannot score x$"
    refused(message, scorer(Translator(works=False)).compute, chunk)


def test_weights_that_a_training_has_replaced_are_refused(trained_run, tmp_path):
    member = shutil.copytree(trained_run, tmp_path / "member")
    request = Request(str(trained_run), "latest", (str(member),))
    ids = request.ids()
    assert len(ids) == 2 and ids[0] == ids[1]
    chunk = Chunk(0, "crawl", 0, [("a",)], {})
    TextWorker(request, ids).compute(chunk)

    sorted(member.glob("model.ckpt-*.index"))[-1].unlink()  # the newest one is another
    message = "latest of .*member is no longer what it was when the command began"
    refused(message, TextWorker(request, ids).compute, chunk)
    TextWorker(request, request.ids()).compute(chunk)


@pytest.mark.parametrize("is_ensemble", [False, True])
def test_a_moving_average_that_a_training_has_replaced(
    is_ensemble, trained_run, tmp_path, monkeypatch
):
    """It has no step for a name, but an export keeps it."""
    run = str(shutil.copytree(trained_run, tmp_path / "run"))
    request = Request(run, "ema", (str(trained_run),) if is_ensemble else ())
    ids = request.ids()
    sorted((tmp_path / "run").glob("model.ckpt-*.index"))[-1].unlink()
    monkeypatch.setattr(bulk_worker, "load", lambda *args: None)
    advice = f"use an export of it (`t2t export {run} DIR --checkpoint ema`), or "
    advice = f"{'' if is_ensemble else advice}wait for the end of the training"
    pattern = f"ema of .* when the command began: .*; {re.escape(advice)}$"
    refused(
        pattern, TextWorker(request, ids).compute, Chunk(0, "crawl", 0, [("a",)], {})
    )


def test_another_export_on_a_node_is_refused(export_dir):
    worker = TextWorker(Request(str(export_dir)), ["another"])
    message = "a node has another model in .*; copy it to all nodes again"
    refused(message, worker.compute, Chunk(0, "crawl", 0, [("a",)], {}))


def test_nodes_need_the_files_of_the_model_and_the_code_of_the_user(
    trained_run, tmp_path
):
    (tmp_path / "usr").mkdir()
    (tmp_path / "usr" / "definitions.py").write_text("NAME = 1")
    request = Request(str(trained_run), usr_dir=str(tmp_path / "usr"))
    names = {path.name for path in request.files()}
    assert {"definitions.py", "config.json"} < names

    run = shutil.copytree(trained_run, tmp_path / "run")
    config = dataclasses.replace(RunConfig.read(run), usr_dir=str(tmp_path / "usr"))
    config.write(run)
    assert names == {path.name for path in Request(str(run)).files()}


@pytest.fixture
def job(tmp_path):
    """A job of two files, of which nothing is done."""
    (tmp_path / "out").mkdir()
    inputs = [write(tmp_path / name, "x") for name in ("a", "b")]
    outputs = output_paths(inputs, tmp_path / "out")
    settings = {"beam_size": 4, "sizes": (1, 2)}
    return BulkJob(
        "translate", Request("run"), [(x,) for x in inputs], outputs, settings
    )


def result_of(file, *rows, faults=(), mistake="", **counts):
    counts |= {"lines": len(rows), "faulty": len(faults)}
    lines = [f"{row}\n" for row in rows]
    return Result(file, lines, {x: f"fault {x}" for x in faults}, counts, mistake)


def finish(job):
    """Runs a job that has no cluster, so that only what is finished is done."""
    return run_job(job, "localhost:1", WorkerSize(), None)


def test_outputs_appear_when_they_are_complete(job, capfd):
    def results():
        yield result_of(0, "A", "B", tokens=3)
        assert not job.outputs[0].exists()
        yield result_of(0, "C", tokens=1)
        yield result_of(1, "D", mistake="b is damaged")

    assert write_outputs(job, [0, 1], results()) == ["b is damaged"]
    assert job.outputs[0].read_text() == "A\nB\nC\n"
    assert sorted(path.name for path in job.folder.iterdir()) == ["a", "cluster.jsonl"]
    assert write_outputs(job, [1], [result_of(1)]) == []
    result = finish(job)
    assert result.pop("seconds") < 5
    counts = {"lines": 3, "faulty": 0, "tokens": 4}
    assert result == {"files": 2, "done_before": 2, **counts}
    assert "done already: 2 of 2 files" in capfd.readouterr().err
    changed = dataclasses.replace(job, settings={"beam_size": 5, "sizes": (1, 2)})
    refused(
        r"has outputs of other settings \(beam_size\); name another", finish, changed
    )


def test_an_error_of_the_cluster_leaves_complete_outputs_only(job):
    def results(is_last):
        yield result_of(0, "A")._replace(is_last=is_last)
        raise UserError("all is lost")

    refused("all is lost", write_outputs, job, [0, 1], results(is_last=False))
    assert list(job.folder.iterdir()) == []
    refused("all is lost", write_outputs, job, [0, 1], results(is_last=True))
    assert sorted(path.name for path in job.folder.iterdir()) == ["a", "cluster.jsonl"]


@pytest.mark.parametrize("change", ["input", "time", "output", "gone"])
def test_an_output_is_written_again_if_it_or_an_input_has_changed(job, change):
    (source,) = job.inputs[0]
    os.utime(source, ns=(0, 1_000))
    write_outputs(job, [0, 1], [result_of(0, "A"), result_of(1, "B")])
    assert finish(job)["done_before"] == 2
    if change == "input":
        source.write_text("longer\n")
        os.utime(source, ns=(0, 1_000))
    elif change == "time":
        source.write_text("y\n")
    elif change == "output":
        job.outputs[0].write_text("")  # as after a crash before it reached the disk
    elif change == "gone":
        job.outputs[0].unlink()
    refused("--cluster localhost:1: there is no cluster", finish, job)


def test_an_input_that_changes_while_it_is_read_is_read_again(job):
    def results():
        write(job.inputs[0][0], "another")
        yield result_of(0, "A")

    write_outputs(job, [0], results())
    write_outputs(job, [1], [result_of(1, "B")])
    refused("--cluster localhost:1: there is no cluster", finish, job)


def test_faulty_lines_are_listed_once(job, capfd):
    faults = job.folder / "cluster.faults.jsonl"
    chunks = [result_of(0, *"ab", faults=(i, i + 1)) for i in range(1, 40, 2)]
    write_outputs(job, [0, 1], [*chunks, result_of(1, *"ab", faults=[2])])
    errors = capfd.readouterr().err
    assert "a, line 20: fault 20; its output is empty" in errors
    assert f"further faulty lines are listed in {faults}" in errors
    assert "line 21" not in errors
    with faults.open("a") as log:
        log.write('{"output": "a", "li')  # as a killed process leaves it
    write_outputs(job, [0], [result_of(0, *"ab", faults=[1])])
    rows = [json.loads(row) for row in faults.read_text().splitlines()]
    assert rows == [
        {"output": "b", "line": 2, "fault": "fault 2"},
        {"output": "a", "line": 1, "fault": "fault 1"},
    ]

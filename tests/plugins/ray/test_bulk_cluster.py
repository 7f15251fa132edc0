"""`t2t translate --cluster` and `score --cluster` on a cluster of processes."""

import gzip
import json
import random
import shutil
import subprocess
import sys

import pytest
from helpers.command_line import run, run_json, run_refused, write
from helpers.decoding_models import LINES
from helpers.ray_cluster import actor_processes, ray_cluster, start
from helpers.waiting import wait_until

ray = pytest.importorskip("ray", reason="needs the extra [ray]")
pytest.importorskip("ctranslate2", reason="needs the extra [ctranslate2]")
pytestmark = pytest.mark.slow

WORDS = [word for line in LINES for word in line.split()]


@pytest.fixture(scope="module")
def cluster():
    """A head and two workers of one core each."""
    with ray_cluster(1, 1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def export(translator, tmp_path_factory):
    """An export for CTranslate2, whose outputs depend on every word."""
    from t2t_keras.plugins.engines.ctranslate2_export import export_ctranslate2

    path = tmp_path_factory.mktemp("export") / "ct2"
    export_ctranslate2(translator, path, extra_length=5)
    return path


def sentences(count, seed):
    generator = random.Random(seed)
    rows = []
    for _ in range(count):
        rows.append(" ".join(generator.choices(WORDS, k=generator.randint(0, 12))))
    return rows


@pytest.fixture(scope="module")
def crawl(tmp_path_factory):
    """Files of different lengths, one of them empty."""
    folder = tmp_path_factory.mktemp("crawl")
    for index, count in enumerate((9000, 30, 0, 700, 2500)):
        text = "".join(f"{row}\n" for row in sentences(count, index))
        path = folder / f"crawl-{index}.txt.gz"
        path.write_bytes(gzip.compress(text.encode()))
    return folder


@pytest.fixture(scope="module")
def expected(export, crawl, tmp_path_factory):
    """What `t2t translate` writes for each file."""
    folder = tmp_path_factory.mktemp("expected")
    outputs = {}
    for path in sorted(crawl.iterdir()):
        output = folder / path.stem
        assert run("translate", export, path, "--output", output) == 0
        outputs[path.stem] = output.read_bytes()
    assert len(set(outputs["crawl-0.txt"].splitlines())) > 50
    return outputs


def contents(folder, expected):
    return {name: (folder / name).read_bytes() for name in expected}


def command(export, crawl, out):
    return ["translate", export, crawl / "crawl-*.gz", "--output", out]


def test_outputs_match_translate_and_are_written_once(
    cluster, export, crawl, expected, tmp_path, capfd
):
    words = [*command(export, crawl, tmp_path), "--cluster", cluster.address]
    result = run_json(capfd, *words)
    assert (result["files"], result["lines"], result["done_before"]) == (5, 12230, 0)
    assert contents(tmp_path, expected) == expected
    times = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    (tmp_path / "crawl-1.txt").unlink()
    result = run_json(capfd, *words)
    assert (result["lines"], result["done_before"]) == (12230, 4)
    assert contents(tmp_path, expected) == expected
    for name in ("crawl-0.txt", "crawl-4.txt"):
        assert (tmp_path / name).stat().st_mtime_ns == times[tmp_path / name]
    sentence = run_refused(capfd, *words, "--n_best", 1)
    assert "outputs of other settings (n_best)" in sentence


def test_faulty_lines_and_files_do_not_stop_the_others(
    cluster, export, tmp_path, capfd
):
    (tmp_path / "in-0").write_bytes(b"\xe4\n" * 500)
    (tmp_path / "in-1").write_bytes(b"the dog\n\xff\nthe cat\n")
    (tmp_path / "in-2.gz").write_bytes(gzip.compress(b"a house\n" * 1000)[:-20])
    write(tmp_path / "in-3", "a house")
    out = tmp_path / "out"
    words = [
        "translate",
        export,
        tmp_path / "in-*",
        "--output",
        out,
        "--scores",
    ]
    capfd.readouterr()
    assert run(*words, "--cluster", cluster.address) == 2
    message = capfd.readouterr().err
    assert "in-0, line 20: byte 0xe4 is not valid UTF-8; its output is empty" in message
    assert "further faulty lines are listed in" in message and "line 21" not in message
    assert "in-2.gz is not a complete gzip file; copy it again; the other" in message
    assert sorted(path.name for path in out.iterdir()) == [
        "cluster.faults.jsonl",
        "cluster.jsonl",
        "cluster.lock",
        "in-0",
        "in-1",
        "in-3",
    ]
    assert (out / "in-0").read_text() == "".join(
        f"{i}\t1\t-inf\t\n" for i in range(1, 501)
    )
    clean = write(tmp_path / "clean", "the dog", "", "the cat")
    ref = tmp_path / "ref"
    assert run("translate", export, clean, "--output", ref, "--scores") == 0
    rows = [row.split("\t", 3) for row in ref.read_text().splitlines()]
    rows[1][2] = "-inf"
    lines = (out / "in-1").read_text().splitlines()
    written = [line.split("\t", 3) for line in lines]
    for row, expected_row in zip(written, rows, strict=True):
        scores = [float(fields.pop(2)) for fields in (row, expected_row)]
        assert row == expected_row and scores[0] == pytest.approx(scores[1], abs=1e-4)
    entries = map(json.loads, (out / "cluster.jsonl").read_text().splitlines())
    counts = {entry["output"]: entry["counts"] for entry in list(entries)[1:]}
    assert [counts[f"in-{i}"]["faulty"] for i in (0, 1, 3)] == [500, 1, 0]
    rows = (out / "cluster.faults.jsonl").read_text().splitlines()
    assert len(rows) == 501
    fault = {"line": 2, "fault": "byte 0xff is not valid UTF-8"}
    assert json.loads(rows[-1]) == {"output": "in-1", **fault}


def test_scores_match_score(cluster, trained_run, tmp_path, capfd):
    for index in range(2):
        for side in ("en", "de"):
            rows = sentences(40, f"{index}{side}")
            write(tmp_path / f"{index}.{side}", *rows)
    out = tmp_path / "out"
    words = ["score", trained_run, "--target", tmp_path / "*.de", "--output", out]
    words += ["--input", tmp_path / "*.en", "--cluster", cluster.address]
    result = run_json(capfd, *words, "--workers", 1)
    log_prob = 0.0
    for index in range(2):
        ref = tmp_path / f"ref{index}"
        pair = ["--input", tmp_path / f"{index}.en"]
        pair += ["--target", tmp_path / f"{index}.de"]
        single = run_json(capfd, "score", trained_run, *pair, "--output", ref)
        log_prob += single["log_prob"]
        for row, expected_row in zip(
            (out / f"{index}.en").read_text().splitlines(),
            ref.read_text().splitlines(),
            strict=True,
        ):
            assert row.split("\t")[1] == expected_row.split("\t")[1]
            assert float(row.split("\t")[0]) == pytest.approx(
                float(expected_row.split("\t")[0]), abs=1e-4
            )
    assert result["log_prob"] == pytest.approx(log_prob, abs=1e-2)


def test_a_killed_worker_costs_its_lines_only(
    cluster, export, crawl, expected, tmp_path
):
    process = start(cluster, *command(export, crawl, tmp_path))
    wait_until(lambda: len(actor_processes(cluster)) == 2, process)
    actor_processes(cluster)[0].kill()  # it loads the model
    # The first lines are written, and many others are not.
    wait_until(lambda: any("crawl-0" in x.name for x in tmp_path.iterdir()), process)
    actor_processes(cluster)[0].kill()
    assert not (tmp_path / "crawl-4.txt").exists()
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    assert contents(tmp_path, expected) == expected


def test_a_lost_node_costs_its_lines_only(export, crawl, expected, tmp_path):
    out = tmp_path / "out"
    with ray_cluster(1, 1) as cluster:
        process = start(cluster, *command(export, crawl, out))
        wait_until(lambda: len(actor_processes(cluster)) == 2, process)
        cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
        _, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    assert contents(out, expected) == expected


def test_the_loss_of_all_nodes_is_one_sentence_and_nodes_continue(
    export, crawl, expected, tmp_path
):
    out = tmp_path / "out"
    program = "from t2t_keras.plugins.ray import bulk; "
    program += "bulk._SECONDS_WITHOUT_RESULT = 20; "
    with ray_cluster(1) as cluster:
        words = command(export, crawl, out)
        process = start(cluster, *words, code=program)
        wait_until(lambda: (out / "crawl-0.txt").exists(), process)
        for node in list(cluster.worker_nodes):
            cluster.remove_node(node, allow_graceful=False)
        _, errors = process.communicate(timeout=200)
        assert process.returncode == 2, errors
        assert "no worker has returned lines in 20 s; add nodes and run" in errors
        assert "Traceback" not in errors
        cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes(timeout=60)  # until Ray knows which are dead
        process = start(cluster, *words)
        _, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    assert "done already: " in errors
    assert contents(out, expected) == expected


def test_the_loss_of_the_head_ends_the_command_and_another_continues(
    export, crawl, expected, tmp_path, monkeypatch
):
    """Ray ends processes that cannot reach the head, by default after a minute."""
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "5")
    inputs = shutil.copytree(crawl, tmp_path / "crawl")
    long = inputs / "crawl-9.txt.gz"  # it is not finished within these seconds
    rows = "".join(f"{row}\n" for row in sentences(1500, 9) * 40)
    long.write_bytes(gzip.compress(rows.encode()))
    out = tmp_path / "out"
    with ray_cluster(1) as cluster:
        process = start(cluster, *command(export, inputs, out))
        wait_until(lambda: (out / "crawl-0.txt").exists(), process)
        for processes in cluster.head_node.all_processes.values():
            for info in processes:
                info.process.kill()
        _, errors = process.communicate(timeout=200)
    assert process.returncode == 1, errors
    assert "Failed to connect to GCS within 5 seconds" in errors
    assert "Traceback" not in errors
    long.unlink()
    with ray_cluster(1) as cluster:
        process = start(cluster, *command(export, inputs, out))
        _, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    assert contents(out, expected) == expected


def test_a_killed_driver_continues(cluster, export, crawl, expected, tmp_path):
    out = tmp_path / "out"
    words = [*command(export, crawl, out), "--workers", 1]
    process = start(cluster, *words)
    log = out / "cluster.jsonl"
    wait_until(lambda: log.exists() and "crawl-0.txt" in log.read_text(), process)
    process.kill()
    process.communicate()
    # A file that is written and not yet in the log is written again.
    entries = list(map(json.loads, log.read_text().splitlines()))
    names = [entry["output"] for entry in entries if "output" in entry]
    times = {name: (out / name).stat().st_mtime_ns for name in names}
    assert 0 < len(times) < 5
    process = start(cluster, *words)
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    assert f"done already: {len(times)} of 5 files" in errors
    for name, time in times.items():
        assert (out / name).stat().st_mtime_ns == time
    assert contents(out, expected) == expected


DEADLY = """
import os, sys
from pathlib import Path
from t2t_keras.plugins.ray import bulk, cluster

class Deadly(bulk.TextWorker):
    def _load(self): pass
    def _rows(self, texts, numbers, start):
        if ("deadly",) in texts: os._exit(1)
        return [f"{text.upper()}\\n" for (text,) in texts], {}

class Request(bulk.Request):
    def ids(self): return []
    def files(self): return []

bulk.TextWorker = Deadly
folder = Path(sys.argv[2])
inputs = [(folder / name,) for name in ("a", "b")]
outputs = [folder / "out" / name for name in ("a", "b")]
job = bulk.BulkJob("translate", Request(""), inputs, outputs, {})
try:
    bulk.run_job(job, sys.argv[1], cluster.WorkerSize(), 1)
except bulk.UserError as error:
    print(error)
"""


def test_lines_that_end_every_worker_are_named(cluster, tmp_path):
    (tmp_path / "out").mkdir()
    write(tmp_path / "a", "intact")
    write(tmp_path / "b", *["x"] * 2500, "deadly")
    done = subprocess.run(
        [sys.executable, "-c", DEADLY, cluster.address, tmp_path],
        capture_output=True,
        text=True,
        check=True,
    )
    sentence = done.stdout.splitlines()[-1]
    path = tmp_path / "b"
    assert f"{path}: lines 2,001 to 2,501 have ended 3 workers, perhaps" in sentence
    assert (tmp_path / "out" / "a").read_text() == "INTACT\n"
    assert not (tmp_path / "out" / "b").exists()

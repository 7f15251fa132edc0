"""Which outputs of a folder are finished."""

import io
import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers.command_line import write

from t2t_keras.plugins.ray import output_files
from t2t_keras.plugins.ray.output_files import OutputFolder, is_finished, stamps
from t2t_keras.plugins.ray.windows import Line

pytest.importorskip("ray", reason="needs the extra [ray]")

from t2t_keras.plugins.ray import bulk

JOB = SimpleNamespace(request=SimpleNamespace(scores_pairs=False))


@pytest.mark.parametrize("change", ["nothing", "input", "time", "output", "gone"])
def test_an_output_is_written_again_if_it_or_an_input_has_changed(tmp_path, change):
    source = tmp_path / "a.en"
    output = tmp_path / "out" / "a.en"
    output.parent.mkdir()
    for path in (source, output):
        path.write_text("a\n")
    os.utime(source, ns=(0, 1_000))
    facts = OutputFolder(output.parent, {"beam_size": 4}).finish(
        stamps([source]), output, {"lines": 1, "faulty": 0}, io.StringIO()
    )
    if change == "input":
        source.write_text("longer\n")
        os.utime(source, ns=(0, 1_000))
    elif change == "time":
        source.write_text("b\n")
    elif change == "output":
        output.write_text("")  # as after a crash before it reached the disk
    elif change == "gone":
        output.unlink()
    logged = OutputFolder(Path(output.parent), {"beam_size": 4}).finished()
    assert logged == {"a.en": facts}
    assert is_finished(facts, [source], output) == (change == "nothing")


def test_a_changing_input_is_reread(tmp_path):
    source = write(tmp_path / "a.en", "a")
    folder = OutputFolder(tmp_path / "out", {})
    file = bulk._File((source,), tmp_path / "out" / "a.en")
    (tmp_path / "out").mkdir()
    with bulk._Writer(JOB, folder, [file]) as writer:
        writer.write(Line(0, 1, ("a",)), "A\n")
        write(source, "another")
        writer.finish_to(1)
    changed_file = bulk._File((source,), file.output)
    assert bulk._find_finished(folder, [changed_file]) == 0
    assert file.output.read_text() == "A\n"


def test_the_log_is_read_once_for_all_files(tmp_path, monkeypatch):
    folder = OutputFolder(tmp_path, {})
    files = []
    for index in range(20):
        source = write(tmp_path / f"{index}.en", "a")
        files.append(bulk._File((source,), write(tmp_path / f"{index}.out", "A")))
        finish(folder, files[-1])
    reads = []
    read_log = output_files.read_log
    monkeypatch.setattr(
        output_files, "read_log", lambda path: reads.append(path) or read_log(path)
    )
    assert bulk._find_finished(folder, files) == 20
    assert len(reads) == 1


def finish(folder, file, **counts):
    folder.finish(file.stamps, file.output, {"faulty": 0, **counts}, io.StringIO())


def write_outputs(folder, files, faults):
    """Writes outputs of 300 lines, of which some are faulty."""
    with bulk._Writer(JOB, folder, files) as writer:
        for index in range(len(files)):
            for line_number in range(1, 301):
                fault = "" if line_number % faults else f"fault {line_number}"
                writer.write(Line(index, line_number, ("a",), fault), "A\n")
        writer.finish_to(len(files))


def test_faulty_lines_are_on_the_disk_and_not_in_memory(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(bulk, "_SPOOLED_BYTES", 100)
    (tmp_path / "out").mkdir()
    folder = OutputFolder(tmp_path / "out", {})
    inputs = [(write(tmp_path / name, name),) for name in ("a", "b")]

    def files():
        return [bulk._File(x, tmp_path / "out" / x[0].name) for x in inputs]

    written = files()
    write_outputs(folder, written, faults=2)
    assert "further faulty lines are listed in" in capfd.readouterr().err
    for file in written:
        assert file.facts["counts"] == {"lines": 300, "faulty": 150}
        assert "fault 2" not in str(file.facts)
    with folder.faults.open("a") as log:
        log.write('{"output": "a", "li')  # as a killed process leaves it
    folder.remove_faults({"b"})
    write_outputs(folder, files()[:1], faults=3)
    rows = [json.loads(row) for row in folder.faults.read_text().splitlines()]
    expected = []
    for faults in (2, 3):
        for line_number in range(faults, 301, faults):
            expected.append(
                {"output": "a", "line": line_number, "fault": f"fault {line_number}"}
            )
    assert rows == expected


def test_a_folder_of_an_earlier_version_is_continued(tmp_path):
    """Its log has the faulty lines."""
    source = write(tmp_path / "a.en", "a")
    output = write(tmp_path / "a.out", "A")
    entry = {"output": "a.out", "size": 2, "inputs": stamps([source])}
    entry |= {"counts": {"lines": 1, "faulty": 1}, "faulty": [[1, "broken"]]}
    rows = map(json.dumps, ({"settings": {"beam_size": 4}}, entry))
    write(tmp_path / "cluster.jsonl", *rows)
    file = bulk._File((source,), output)
    assert bulk._find_finished(OutputFolder(tmp_path, {"beam_size": 4}), [file]) == 1
    assert file.facts["counts"] == {"lines": 1, "faulty": 1}
    assert "faulty" not in file.facts

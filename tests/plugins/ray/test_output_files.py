"""Which outputs of a folder are finished."""

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


@pytest.mark.parametrize("change", ["nothing", "input", "time", "output", "gone"])
def test_an_output_is_written_again_if_it_or_an_input_has_changed(tmp_path, change):
    source = tmp_path / "a.en"
    output = tmp_path / "out" / "a.en"
    output.parent.mkdir()
    for path in (source, output):
        path.write_text("a\n")
    os.utime(source, ns=(0, 1_000))
    facts = OutputFolder(output.parent, {"beam_size": 4}).finish(
        stamps([source]), output, {"faulty": []}
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


def test_an_input_that_changes_while_it_is_read_is_read_again(tmp_path):
    source = write(tmp_path / "a.en", "a")
    folder = OutputFolder(tmp_path / "out", {})
    file = bulk._File((source,), tmp_path / "out" / "a.en")
    (tmp_path / "out").mkdir()
    job = SimpleNamespace(request=SimpleNamespace(scores_pairs=False))
    with bulk._Writer(job, folder, [file]) as writer:
        writer.write(Line(0, 1, ("a",)), "A\n")
        write(source, "another")
        writer.finish_to(1)
    again = bulk._File((source,), file.output)
    assert bulk._find_finished(folder, [again]) == 0
    assert file.output.read_text() == "A\n"


def test_the_log_is_read_once_for_all_files(tmp_path, monkeypatch):
    folder = OutputFolder(tmp_path, {})
    files = []
    for index in range(20):
        source = write(tmp_path / f"{index}.en", "a")
        files.append(bulk._File((source,), write(tmp_path / f"{index}.out", "A")))
        folder.finish(files[-1].stamps, files[-1].output, {})
    reads = []
    read_log = output_files.read_log
    monkeypatch.setattr(
        output_files, "read_log", lambda path: reads.append(path) or read_log(path)
    )
    assert bulk._find_finished(folder, files) == 20
    assert len(reads) == 1

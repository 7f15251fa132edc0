"""The report of a command on a cluster."""

import pytest

pytest.importorskip("ray", reason="needs the extra [ray]")

from t2t_keras.plugins.ray import bulk


def test_the_remaining_time_matches_all_lines(tmp_path, capsys, monkeypatch):
    """A quarter of the input is read, and half of its lines are computed."""
    (tmp_path / "in").write_bytes(b"x" * 400)
    file = bulk._File((tmp_path / "in",), tmp_path / "out")
    monkeypatch.setattr(bulk._File, "position", 100)
    clock = iter([0.0, 20.0, 25.0])
    monkeypatch.setattr(bulk.time, "monotonic", lambda: next(clock))
    progress = bulk._Progress("translate", [file])
    progress.lines_read = 2000
    progress.lines = 1000
    progress.report(3)
    progress.report(3)  # too early for another line
    line = "translate: 1,000 lines (50.0 lines/s, ETA 140 s), 3 workers\n"
    assert capsys.readouterr().err == line.replace("140 s", "2 min")

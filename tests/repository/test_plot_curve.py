"""The script that draws learning curves."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "plot_curve.py"


def test_curves_are_drawn(tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra [plot]")
    run = tmp_path / "baseline"
    run.mkdir()
    lines = [
        {"step": 1, "kind": "train", "loss": 3.0, "nll": 2.9},
        {"step": 2, "kind": "train", "loss": 2.0, "nll": 1.9},
        {"step": 2, "kind": "dev", "nll": 2.5, "bleu": 17.0},
        {"step": 2, "kind": "dev_best", "nll": 2.5, "bleu": 17.0},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (run / "metrics.jsonl").write_text(text)
    picture = tmp_path / "curves.svg"
    old = tmp_path / "old.jsonl"
    old.write_text(json.dumps({"step": 1, "kind": "train", "loss": 3.0}) + "\n")
    files = [run, run / "metrics.jsonl", old, "--write", picture]
    subprocess.run([sys.executable, SCRIPT, *map(str, files)], check=True)
    labels = picture.read_text()
    for label in ("baseline, training", "baseline, dev", "baseline, bleu"):
        assert labels.count(f"<!-- {label} -->") == 2
    assert "<!-- old, label-smoothed training -->" in labels

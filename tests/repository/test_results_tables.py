"""The tables of README and docs are those of the kept records."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "docs" / "results" / "make_tables.py"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPT.parent)
    return importlib.import_module(SCRIPT.stem)


def row(step, steps_per_s, rate):
    values = {"steps_per_s": steps_per_s, "target_tokens_per_s": rate}
    return {"step": step, "kind": "train", **values}


# 100 steps in 10 s, then 300 in 90 s.
ROWS = [
    row(100, 10.0, 1000.0),
    {"step": 100, "kind": "dev", "nll": 3.0},
    row(400, 300 / 90, 200.0),
    {"step": 400, "kind": "dev", "nll": 2.0},
]


def test_means_are_weighted_by_time(script):
    totals = script.totals(ROWS)
    assert totals.steps == 400
    assert totals.seconds == pytest.approx(100)
    # 10,000 and 18,000 tokens; the mean of the two rates would be 600.
    assert totals.target_tokens == pytest.approx(28_000)
    assert totals.target_rate == pytest.approx(280)


def test_rows_that_were_trained_again_after_a_kill_count_once(script):
    """Killed after step 300, and resumed from the checkpoint of step 100."""
    killed = [row(100, 1, 10), row(200, 1, 10), row(300, 1, 10)]
    repeated = [row(200, 2, 20), row(300, 4, 40)]
    totals = script.totals(killed + repeated)
    assert totals.steps == 300
    assert totals.seconds == pytest.approx(100 + 50 + 25)
    assert totals.target_tokens == pytest.approx(3000)


def test_known_totals_of_the_kept_records(script):
    """Computed by others from the same files."""
    folder = SCRIPT.parent
    rates = {
        name: round(script.totals(script.read(folder / f"{name}.jsonl")).target_rate)
        for name in ("multi30k", "craft2", "news_commentary")
    }
    assert rates == {"multi30k": 6337, "craft2": 11382, "news_commentary": 3215}


def test_the_documents_have_the_tables_of_the_records(script, monkeypatch, tmp_path):
    """Each table is in a document, as the script would write it."""
    made = script.tables()
    texts = [path.read_text(encoding="utf-8") for path in script.DOCUMENTS]
    copies = [tmp_path / path.name for path in script.DOCUMENTS]
    for copy, text in zip(copies, texts, strict=True):
        copy.write_text(text, encoding="utf-8")
    monkeypatch.setattr(script, "DOCUMENTS", copies)
    script.main()
    assert [copy.read_text(encoding="utf-8") for copy in copies] == texts
    placed = re.findall(r"<!-- generated: (\w+) -->", "".join(texts))
    assert sorted(placed) == sorted(made)
    assert re.findall(r"<!-- end of (\w+) -->", "".join(texts)) == placed

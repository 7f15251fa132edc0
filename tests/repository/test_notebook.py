"""The notebook runs in a fresh directory, and is kept with the outputs of a run."""

import ast
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import t2t_keras

NOTEBOOK = Path(__file__).parents[2] / "examples" / "quickstart.ipynb"


@pytest.fixture
def notebook():
    return nbformat.read(NOTEBOOK, as_version=4)


def execute(notebook, folder: Path) -> dict[str, str]:
    """Runs all cells in a new kernel; returns what each one printed, by its id."""
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=1200, resources=resources).execute()
    printed = {}
    for cell in notebook.cells:
        outputs = cell.get("outputs", ())
        printed[cell.id] = "".join(x.text for x in outputs if "text" in x)
    return printed


def test_kept_outputs_equal_an_uninterrupted_run(notebook):
    """`make notebook` writes them."""
    nbformat.validate(notebook)
    assert all(re.fullmatch(r"[a-z-]+", cell.id) for cell in notebook.cells)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert not any(output.output_type == "error" for output in outputs)
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 4
    text = "".join(output.get("text", "") for output in outputs)
    bleu = float(re.search(r"sacrebleu_13a +([\d.]+)", text)[1])
    assert bleu > 95
    assert not re.search(r"/(tmp|home|root)/", text), "a path of one machine"
    assert NOTEBOOK.stat().st_size < 1_000_000


def test_only_public_names_are_used(notebook):
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    used = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom):
            assert not node.module.startswith("t2t_keras"), node.module
        elif isinstance(node, ast.Import):
            names = {name.name for name in node.names}
            assert not any(name.startswith("t2t_keras.") for name in names), names
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "t2t_keras":
            used.add(node.attr)
    assert used and used <= set(t2t_keras.__all__)


@pytest.mark.slow
def test_whole_notebook(notebook, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    printed = execute(notebook, tmp_path)
    bleu = float(re.search(r"sacrebleu_13a +([\d.]+)", printed["bleu"])[1])
    assert bleu > 95
    assert "5 of 5 the same" in printed["export"]
    best = printed["n-best"].splitlines()[0]
    assert best.endswith(printed["load"].strip())
    pictures = next(cell for cell in notebook.cells if cell.id == "attention").outputs
    assert sum("image/png" in output.get("data", {}) for output in pictures) == 3

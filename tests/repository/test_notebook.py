"""The notebook runs in a fresh directory, and is kept with the outputs of a run."""

import ast
import importlib
import re
from pathlib import Path

import nbformat
import pytest
from helpers.documents import PAGES
from nbclient import NotebookClient

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


def test_all_that_is_imported_exists_and_is_documented(notebook):
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    documents = "\n".join(page.read_text("utf-8") for page in PAGES)
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom):
            module = importlib.import_module(node.module)
            names = {name.name for name in node.names}
            assert all(hasattr(module, name) for name in names), node.module
            is_whole = (
                f"::: {node.module}\n" in documents
            )  # the reference has all of it
            if node.module.startswith("t2t_keras") and not is_whole:
                missing = names - set(re.findall(r"\w+", documents))
                assert not missing, f"{node.module}: {missing}"


@pytest.mark.slow
def test_whole_notebook(notebook, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    printed = execute(notebook, tmp_path)
    bleu = float(re.search(r"sacrebleu_13a +([\d.]+)", printed["bleu"])[1])
    assert bleu > 95
    assert "5 of 5 the same" in printed["export"]
    best = printed["n-best"].splitlines()[0]
    assert best.endswith(printed["load"].strip())
    assert float(printed["own-model"].split()[-1]) < 2  # nats a token of dev
    first_loss, second_loss = re.findall(r"loss: ([\d.]+)", printed["fit"])
    assert float(second_loss) < float(first_loss) - 0.5
    pictures = next(cell for cell in notebook.cells if cell.id == "attention").outputs
    assert sum("image/png" in output.get("data", {}) for output in pictures) == 3

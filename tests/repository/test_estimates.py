"""The memory that a document gives is what `t2t describe` prints today."""

import re

import pytest
from helpers.command_line import run_json
from helpers.documents import ROOT


@pytest.mark.parametrize("hparams_set", ["base", "big"])
def test_the_memory_on_eight_h100(hparams_set, capfd):
    text = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    pattern = rf"\| {hparams_set}, 300,000 steps [^\n]+ ([\d.]+) GB a GPU \|"
    (gigabytes,) = re.findall(pattern, text)
    memory = run_json(
        capfd,
        *("describe", hparams_set, "--hparams", "compute_dtype=bfloat16"),
        *("--vocab_size", "37000", "--gpus", "8"),
    )["memory"]
    assert float(gigabytes) == round(memory["total"] / 1e9, 1)

"""The bounds that documents give are those that `t2t describe` prints today."""

import re

import pytest
from helpers.command_line import run_json
from helpers.documents import ROOT


@pytest.fixture
def describe(capfd):
    def describe(hparams_set, card, gpus):
        return run_json(
            capfd,
            *("describe", hparams_set, "--hparams", "compute_dtype=bfloat16"),
            *("--vocab_size", "37000", "--card", card, "--gpus", str(gpus)),
        )

    return describe


def found(path, pattern):
    """Returns the numbers at the groups of a pattern, which is in a document once."""
    text = (ROOT / "docs" / path).read_text(encoding="utf-8")
    (match,) = re.finditer(pattern, text)
    return [float(group.replace(",", "")) for group in match.groups()]


def test_the_bound_of_an_h100(describe):
    bound, with_xla, without_xla = found(
        "gpu.md",
        r"on one H100 it is ([\d,]+) target tokens/s; the second row\s+\[above\]\S+ "
        r"reaches (\d+)% of it with XLA, (\d+)% without",
    )
    rate, compiled_rate = found("gpu.md", r"\| 22,528 \| (155[\d,]+) \| ([\d,]+) \|")
    assert bound == round(
        describe("base", "H100", 1)["step_time"]["target_tokens_per_s"]
    )
    assert with_xla == round(100 * compiled_rate / bound)
    assert without_xla == round(100 * rate / bound)


@pytest.mark.parametrize("hparams_set", ["base", "big", "parsing"])
def test_the_least_hours_on_eight_a100(hparams_set, describe):
    steps, hours = found(
        "guides/reproduction.md",
        rf"\| {hparams_set} \| ([\d,]+) \| [^|]+ \| ([\d.]+) h \|",
    )
    step_time = describe(hparams_set, "A100", 8)["step_time"]["total"]
    assert hours == round(steps * step_time / 3600, 1)


@pytest.mark.parametrize("hparams_set", ["base", "big"])
def test_the_memory_on_eight_h100(hparams_set, describe):
    (gigabytes,) = found(
        "scaling.md", rf"\| {hparams_set}, 300,000 steps [^\n]+ ([\d.]+) GB a GPU \|"
    )
    memory = describe(hparams_set, "H100", 8)["memory"]
    assert gigabytes == round(memory["total"] / 1e9, 1)

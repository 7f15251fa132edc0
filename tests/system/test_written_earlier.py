"""What an earlier version has written is read: data, runs and an export.

`fixtures/written_earlier.tar.gz` was made in November 2026 by a1cf321: data of
two problems (60 pairs, 60 trees of the toy grammar), a run of four steps on each with
its outputs, an export, and what two more steps of training reported.
"""

import json

import numpy as np
import pytest
from helpers.command_line import run, run_json

from t2t_keras.data.manifest import Manifest
from t2t_keras.data.pipeline import read_pairs
from t2t_keras.data.record_index import RecordIndex
from t2t_keras.text.tokenizer import load_tokenizer

SET = "num_layers=1,d_model=8,d_ff=8,num_heads=2,d_k=4,d_v=4,batch_tokens=300"
SET += ",ema_decay=0.9"


def n_best(path):
    """Returns {(line, rank): (score, text)}."""
    rows = [line.split("\t") for line in path.read_text().splitlines()]
    return {(line, rank): (float(score), text) for line, rank, score, text in rows}


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("translate_text", "--output_dir"),
        ("translate_text", "--export_dir"),
        ("parsing_wsj", "--output_dir"),
    ],
)
def test_outputs_are_the_same(earlier, name, flag):
    artifact = "run" if flag == "--output_dir" else "export"
    argv = [flag, earlier / f"{artifact}-{name}", "--n_best", "2"]
    if artifact == "run":
        argv += ["--decode_hparams", "extra_length=8"]
    out = earlier / "out"
    argv += ["--input", earlier / "dev.en", "--output", out]
    assert run("translate", *argv) == 0
    actual = n_best(out)
    expected = n_best(earlier / f"{name}.out")
    assert actual.keys() == expected.keys()
    for key, (score, text) in expected.items():
        assert actual[key][0] == pytest.approx(score, abs=1e-3)
        assert actual[key][1] == text


def test_records_are_the_lines_of_the_files(earlier):
    manifest = Manifest.open(earlier / "data", "translate_text")
    tokenizer = load_tokenizer(earlier / "data" / manifest.vocab_files["source"])
    index = RecordIndex.open(earlier / "data", "translate_text", "dev")
    texts = [
        tuple(map(tokenizer.decode, pair)) for pair in read_pairs(index, range(12))
    ]
    sides = (
        (earlier / f"dev.{code}").read_text().splitlines() for code in ("en", "de")
    )
    assert texts == list(zip(*sides, strict=True))


def test_training_resumes_where_it_stopped(earlier, capfd):
    run_dir = earlier / "run-translate_text"
    # Masks of dropout were drawn in another way.
    settings = f"{SET},dropout=0"
    argv = ["--problem", "translate_text", "--hparams_set", "tiny", "--hparams"]
    argv += [settings, "--change_settings"]
    argv += ["--data_dir", earlier / "data", "--output_dir", run_dir]
    argv += ["--train_steps", "6", "--eval_sentences", "0"]
    argv += ["--log_every", "1", "--average_last", "0"]
    result = run_json(capfd, "train", *argv)
    assert result["step"] == 6
    lines = (run_dir / "metrics.jsonl").open()
    records = [r for r in map(json.loads, lines) if r["kind"] == "train"][-2:]
    expected = list(map(json.loads, (earlier / "resumed.jsonl").open()))
    for name in ("step", "loss", "gradient_norm", "learning_rate", "epoch"):
        actual_values = [record[name] for record in records]
        expected_values = [record[name] for record in expected]
        np.testing.assert_allclose(actual_values, expected_values, rtol=1e-5)

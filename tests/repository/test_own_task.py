"""A task outside the package, with its own text processor, constraint and metric."""

import json
import re
from pathlib import Path

import pytest
from helpers.command_line import run

from t2t_keras import registry
from t2t_keras.usr_dir import load_usr_dir

EXAMPLE = Path(__file__).parents[2] / "examples" / "pronunciation"
WORDS = ["cachorro", "Gelate", "", "ñajilla"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Data, a run of a few steps and its export."""
    root = tmp_path_factory.mktemp("pronunciation")
    common = ("--usr_dir", str(EXAMPLE), "--problem", "pronounce_es")
    common += ("--data_dir", str(root / "data"))
    assert run("datagen", *common) == 0
    tiny = "num_layers=1,d_model=16,d_ff=16,num_heads=2,d_k=8,d_v=8,batch_tokens=600"
    flags = ("--hparams_set", "tiny", "--hparams", tiny, "--train_steps", "6")
    flags += ("--eval_every", "3", "--eval_sentences", "20")
    flags += ("--best_by", "metric")
    assert run("train", *common, *flags, "--output_dir", str(root / "run")) == 0
    flags = ("--output_dir", str(root / "run"), "--export_dir", str(root / "export"))
    assert run("export", *flags) == 0
    return root


def test_metric_is_the_edit_distance():
    load_usr_dir(EXAMPLE)
    metrics = registry.problem("pronounce_es").metrics
    scores = metrics.score([""] * 2, ["/katʃo/", "/θa/"], ["/kato/", "/θaro/"])
    assert scores == {"phoneme_error_rate": 100 * (1 + 2) / 8}
    perfect = metrics.selection_score({"phoneme_error_rate": 0.0})
    assert metrics.selection_score(scores) < perfect


@pytest.mark.slow
def test_evaluate_reports_the_metric(folder, capsys):
    capsys.readouterr()
    flags = ("--output_dir", str(folder / "run"), "--eval_sentences", "10")
    assert run("evaluate", *flags, "--output", str(folder / "test"), "--json") == 0
    result = json.loads(capsys.readouterr().out)
    load_usr_dir(EXAMPLE)
    metrics = registry.problem("pronounce_es").metrics
    paths = [folder / f"test.{name}" for name in ("source", "hypothesis", "reference")]
    texts = [path.read_text().splitlines() for path in paths]
    assert result["phoneme_error_rate"] == metrics.score(*texts)["phoneme_error_rate"]
    assert texts[2][0].startswith("/") and "repaired" not in result
    assert run("evaluate", *flags, "--tokenize", "intl") == 2
    assert "'pronounce_es' is not scored by BLEU" in capsys.readouterr().err


@pytest.mark.slow
def test_translation_and_export_agree_and_have_phonemes_only(folder, capsys):
    (folder / "words").write_text("\n".join(WORDS) + "\n")
    outputs = []
    for name in ("run", "export"):
        argv = ("translate", folder / name, "--input", folder / "words")
        argv += ("--usr_dir", EXAMPLE)
        assert run(*argv, "--output", folder / "out") == 0
        outputs.append((folder / "out").read_text().splitlines())
    assert outputs[0] == outputs[1]
    load_usr_dir(EXAMPLE)
    sounds = "|".join(registry.problem("pronounce_es").symbols)
    assert outputs[0][2] == ""
    assert any(outputs[0])
    for text in filter(None, outputs[0]):
        assert re.fullmatch(f"/({sounds})+/", text)

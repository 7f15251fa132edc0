"""The export for LiteRT: ids and scores of its interpreter are the translator's."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.decoding_models import LINES, text_translator
from helpers.errors import refused

import t2t_keras
from t2t_keras.exporting.verify import Verification
from t2t_keras.plugins.engines.litert import export_litert

litert = pytest.importorskip(
    "ai_edge_litert.interpreter", reason="needs the extra [litert]"
)

EXAMPLES = Path(__file__).parents[3] / "examples"
FIXTURES = Path(__file__).parents[2] / "fixtures"
TEXTS = [line for line in LINES if line.strip()]


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    return text_translator(tmp_path_factory.mktemp("vocab"), share_embeddings=True)


@pytest.fixture(scope="module")
def export_dir(translator, tmp_path_factory):
    path = tmp_path_factory.mktemp("export") / "model"
    options = {"beam_size": 3, "n_best": 2, "alpha": 1.0}
    export_litert(translator, path, verify=Verification(TEXTS), **options)
    return path


def test_outputs_match_the_translator(translator, export_dir):
    """Beam search and its scores, for sentences of different lengths in turn."""
    run = litert.Interpreter(str(export_dir / "model.tflite")).get_signature_runner()
    expected = translator.n_best(TEXTS, 2, beam_size=3, alpha=1.0)
    for text, hypotheses in zip(TEXTS, expected, strict=True):
        source = translator.source_tokenizer.encode(text)
        output = run(ids=np.array([source], np.int32))
        ids = [tuple(row[row != 0].tolist()) for row in output["ids"]]
        assert ids == [hypothesis.ids for hypothesis in hypotheses]
        scores = [hypothesis.score for hypothesis in hypotheses]
        np.testing.assert_allclose(output["scores"], scores, atol=1e-4)


def test_options_that_the_graph_lacks_are_refused(translator, tmp_path):
    refused("min_length: LiteRT", export_litert, translator, tmp_path, min_length=5)


def test_other_programs_run_an_export(export_dir):
    refused("is for LiteRT's own interpreter", t2t_keras.load, export_dir)


def test_the_example_needs_the_interpreter_and_sentencepiece_alone(
    translator, export_dir
):
    example = [sys.executable, str(EXAMPLES / "translate_litert.py"), str(export_dir)]
    texts = "\n".join([*TEXTS, "", TEXTS[0]])
    done = subprocess.run(example, input=texts, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    expected = translator.translate([*TEXTS, "", TEXTS[0]], beam_size=3, alpha=1.0)
    assert done.stdout.splitlines() == expected


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs a C compiler")
def test_the_example_in_c_compiles():
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    source = str(EXAMPLES / "translate_litert.c")
    subprocess.run(["gcc", *flags, f"-I{FIXTURES}", source], check=True)


@pytest.mark.slow
def test_matrices_in_8_bits_are_smaller_and_verified_by_share(
    translator, export_dir, tmp_path
):
    path = tmp_path / "model"
    verify = Verification(TEXTS)
    export_litert(translator, path, quantization="int8", verify=verify, beam_size=1)
    assert verify.identical >= len(TEXTS) / 4
    assert json.loads((path / "litert.json").read_text())["quantization"] == "int8"
    sizes = [(folder / "model.tflite").stat().st_size for folder in (path, export_dir)]
    assert sizes[0] < 0.9 * sizes[1]  # in this small model the graph takes much

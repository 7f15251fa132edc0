"""`Transformer.generate`: the translator's outputs, for texts and for ids."""

import dataclasses

import keras
import numpy as np
import pytest
from helpers.decoding_models import LINES, transformer
from helpers.errors import refused

from t2t_keras.decoding.generation import IdTokenizer, Preprocessor
from t2t_keras.decoding.graph_engine import ModelTranslator
from t2t_keras.model import LabelSmoothedCrossEntropy
from t2t_keras.problem import Problem, TextProcessor
from t2t_keras.run.directory import RunDirectory

NUMBERS = ["5 6", "3", "", "7 7 4 2"]


@dataclasses.dataclass(frozen=True)
class Upper(TextProcessor):
    """The users' texts have letters, and those of the model numbers."""

    def preprocess(self, text, raw=False):
        return " ".join(str("ABCDEFGH".index(x)) for x in text)

    def preprocess_target(self, source, output):
        return self.preprocess(output)

    def postprocess(self, source, target):
        return "".join("ABCDEFGH"[int(x)] for x in target.split()), False


@pytest.fixture(scope="module")
def letters():
    """A preprocessor of texts such as "CD", and a compiled model of 8 tokens.

    The tests leave the model without a preprocessor.
    """
    problem = Problem(summary="", text_processor=Upper(), beam_size=2, extra_length=2)
    model = transformer(8, dropout=0)
    model.compile("adam", LabelSmoothedCrossEntropy(0.1), jit_compile=False)
    model.optimizer.build(model.trainable_variables)  # else two traces
    return Preprocessor(IdTokenizer(8), problem=problem), model


def test_after_fit_outputs_are_the_translators(letters):
    """With the current weights, even if the model has generated before."""
    preprocessor, model = letters
    sources = ["CDE", "HG", "CCCDE"]
    x, y = preprocessor(sources, ["E", "GH", "EDCCC"])
    assert x[0].tolist() == [[2, 3, 4, 1, 0, 0], [7, 6, 1, 0, 0, 0], [2, 2, 2, 3, 4, 1]]
    assert y.tolist() == [[4, 1, 0, 0, 0, 0], [6, 7, 1, 0, 0, 0], [4, 3, 2, 2, 2, 1]]
    model.preprocessor = preprocessor
    untrained_outputs = model.generate(sources)
    model.optimizer.learning_rate = 0.05
    steps = keras.tree.map_structure(lambda rows: np.tile(rows, (40, 1)), (x, y))
    model.fit(*steps, batch_size=len(y), shuffle=False, verbose=0)
    trained_outputs = model.generate(sources)
    translator = ModelTranslator(preprocessor.problem, model, *preprocessor.tokenizers)
    assert trained_outputs == translator.translate(sources) == ["E", "GH", "EDCCC"]
    assert trained_outputs != untrained_outputs
    assert model.generate("HG") == "GH"
    # Ids in, ids out: with a preprocessor and without.
    np.testing.assert_array_equal(model.generate(x[0]), y)
    assert model.with_compute_dtype("float32").preprocessor is preprocessor
    model.preprocessor = None
    rows = [row[row > 0].tolist() for row in x[0]]
    np.testing.assert_array_equal(model.generate(rows, beam_size=1), y)


def test_the_model_of_a_run_has_its_preprocessor(trained_run):
    run = RunDirectory(trained_run)
    preprocessor = run.build_model().preprocessor
    assert preprocessor.tokenizers == run.tokenizers
    assert preprocessor.problem == run.problem


def test_numbers_are_the_texts_of_ids():
    tokenizer = IdTokenizer(8)
    rows = tokenizer.encode_batch(NUMBERS)
    assert rows == [[5, 6, 1], [3, 1], [1], [7, 7, 4, 2, 1]]
    assert [tokenizer.decode(row) for row in rows] == NUMBERS
    assert tokenizer.token_bytes() == [f" {x}".encode() for x in tokenizer.pieces]
    for call in (tokenizer.graph, lambda: tokenizer.save("x")):
        refused("the model has no vocabularies", call)


@pytest.mark.parametrize(
    "sources, message",
    [
        (LINES[:1], "no vocabularies for texts; set model.preprocessor to a"),
        ("a", "no vocabularies for texts"),
        (3, "sources must be texts, or rows of ids, not int"),
        ([3, 4], r"sources\[0\] must be a text, or a row of integer ids, not 3"),
        ([[3], [0.5]], r"sources\[1\] must be a text, or a row of integer ids, not"),
        ([[3, 8]], r"sources\[0\] has an id outside of the vocabulary.* from 0 to 7"),
        ([[-1]], "outside of the vocabulary"),
    ],
)
def test_other_sources_are_refused(sources, message, letters):
    refused(f"generate: .*{message}", letters[1].generate, sources)


def test_what_does_not_go_together_is_refused(letters, monkeypatch):
    preprocessor, model = letters
    refused("a tokenizer is what .* not str", Preprocessor, "vocab.spm")
    refused("1 source and 2 targets", preprocessor, ["C"], ["C", "D"])
    refused("there is no option 'beams'", model.generate, [[3, 1]], beams=2)
    refused("here, use beam_size$", model.generate, [[3, 1]], beam=2)
    model.preprocessor = "vocab.spm"
    refused("must be a .*Preprocessor`, not 'vocab.spm'", model.generate, ["C"])
    model.preprocessor = Preprocessor(IdTokenizer(9))
    refused(r"vocabularies of \(9, 9\) .* built for \(8, 8\)", model.generate, ["C"])
    model.preprocessor = preprocessor
    refused(r"sources\[1\] must be a string", model.generate, ["C", [3]])
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    model.preprocessor = None
    refused("needs TensorFlow, and Keras runs on jax", model.generate, [[3, 1]])

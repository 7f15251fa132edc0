"""A SavedModel whose search XLA compiles."""

import pytest
from helpers.decoding_models import LINES
from tensorflow.core.protobuf import saved_model_pb2

from t2t_keras.exporting.saved_model import export_saved_model, load_translator


def is_compiled(path):
    """Whether the graph in an export has a function that XLA must compile."""
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((path / "saved_model.pb").read_bytes())
    functions = saved.meta_graphs[0].graph_def.library.function
    return any(function.attr["_XlaMustCompile"].b for function in functions)


@pytest.mark.slow
def test_a_compiled_export_finds_the_same(translator, tmp_path):
    """A request without phrases, which is compiled, and one with a phrase."""
    export_saved_model(translator, tmp_path / "1", jit_compile="true", n_best=2)
    assert is_compiled(tmp_path / "1")
    exported = load_translator(tmp_path / "1")
    for phrases in ({}, {"forbidden": ("dog",)}):
        expected = translator.n_best(LINES, 2, **phrases)
        actual = exported.n_best(LINES, 2, **phrases)
        for row, expected_row in zip(actual, expected, strict=True):
            assert [h.ids for h in row] == [h.ids for h in expected_row]


@pytest.mark.slow
def test_an_export_is_not_compiled_unless_it_is_asked_for(translator, export_dir):
    assert not is_compiled(export_dir)
    assert load_translator(export_dir).options.jit_compile == "false"

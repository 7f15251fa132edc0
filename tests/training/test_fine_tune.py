"""Fine-tuning: another run's weights, a fresh optimizer, perhaps other vocabularies."""

import numpy as np
import pytest
from helpers.errors import refused
from helpers.small_data import small_data
from helpers.small_run import trainer, weights

import t2t_keras
from t2t_keras.data.datagen import generate
from t2t_keras.run.directory import RunDirectory
from t2t_keras.training.fine_tune import matching_rows

TABLE = "model/embedding/table"


def initial(training) -> dict[str, np.ndarray]:
    """Returns the values before the first update."""
    assert training._restore() == 0
    return {name: v.read_value().numpy() for name, v in training._variables.items()}


@pytest.mark.parametrize("step", [None, 2])
def test_weights_are_taken_and_the_optimizer_is_not(
    trained_run, data_dir, tmp_path, step
):
    origin = trained_run / f"model.ckpt-{step}.index" if step else trained_run
    initial_weights = initial(trainer(data_dir, tmp_path, seed=2, init_from=origin))
    for name, value in weights(trained_run, step or 4).items():
        if name.startswith("model/"):
            np.testing.assert_array_equal(initial_weights[name], value, err_msg=name)
    assert not any(
        initial_weights[name].any()
        for name in initial_weights
        if name.startswith("adam/")
    )


def test_rows_of_another_vocabulary_go_with_their_pieces(
    trained_run, data_dir, tmp_path, capfd
):
    problem = small_data(tmp_path / "small").replace(vocab_size=290)
    generate(problem, tmp_path / "other", workers=1)
    fresh = initial(trainer(tmp_path / "other", tmp_path / "fresh"))[TABLE]
    training = trainer(tmp_path / "other", tmp_path / "run", init_from=trained_run)
    table = initial(training)[TABLE]
    old_table = weights(trained_run)[TABLE]
    runs = map(RunDirectory, (trained_run, tmp_path / "run"))
    old, new = (run.tokenizers[0].pieces for run in runs)
    assert old != new
    for i, piece in enumerate(new):
        expected = old_table[old.index(piece)] if piece in old else fresh[i]
        np.testing.assert_array_equal(table[i], expected, err_msg=piece)
    matched = len(set(old) & set(new))
    message = f"{matched} of {len(new)} rows of {TABLE}, and all other weights"
    assert message in capfd.readouterr().err
    training.train()  # and the shapes are those of the new vocabulary


def test_the_special_tokens_match_however_they_are_spelled():
    old, new = matching_rows(["<pad>", "<EOS>", "a", "b"], ["<pad>", "</s>", "b", "x"])
    assert list(zip(old, new, strict=True)) == [(0, 0), (1, 1), (3, 2)]


MISFITS = [
    ({"d_ff": 32}, r"inner/kernel' has shape \[16, 16\], the model's is \[16, 32\]"),
    ({"num_layers": 2}, "the model has a weight 'model/decoder/layer_1/.*' and"),
    ({"share_embeddings": False}, "checkpoint has a weight 'model/embedding/table"),
]


@pytest.mark.parametrize(("hparams", "message"), MISFITS, ids=str)
def test_what_does_not_fit_is_named(hparams, message, trained_run, data_dir, tmp_path):
    training = trainer(data_dir, tmp_path, init_from=trained_run, **hparams)
    refused(message, training.train)


def test_what_is_not_a_run_is_refused_before_anything_is_written(data_dir, tmp_path):
    folders = {"data_dir": data_dir, "output_dir": tmp_path / "run"}
    arguments = folders | {"problem": "translate_text", "hparams_set": "tiny"}
    message = "^init_from: .* is neither a run"
    refused(message, t2t_keras.train, **arguments, init_from=tmp_path)
    assert not (tmp_path / "run").exists()

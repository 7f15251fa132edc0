"""Fine-tuning: another run's weights, a fresh optimizer, perhaps other vocabularies."""

import numpy as np
import pytest
from small_data import small_data
from small_run import trainer, weights

import t2t_keras
from t2t_keras.data.datagen import generate
from t2t_keras.option import UserError
from t2t_keras.training.fine_tune import matching_rows
from t2t_keras.training.run_dir import RunDirectory

TABLE = "model/embedding/table"


@pytest.fixture(scope="module")
def general(data_dir, tmp_path_factory):
    """A run to begin with."""
    directory = tmp_path_factory.mktemp("general")
    trainer(data_dir, directory).train()
    return directory


def initial(training) -> dict[str, np.ndarray]:
    """Returns the values before the first update."""
    assert training._restore() == 0
    return {name: v.read_value().numpy() for name, v in training._variables.items()}


def test_weights_are_taken_and_the_optimizer_is_not(general, data_dir, tmp_path):
    first = initial(trainer(data_dir, tmp_path, seed=2, init_from=general))
    for name, value in weights(general).items():
        if name.startswith("model/"):
            np.testing.assert_array_equal(first[name], value, err_msg=name)
    assert not any(first[name].any() for name in first if name.startswith("adam/"))


def test_a_checkpoint_can_be_named(general, data_dir, tmp_path):
    training = trainer(data_dir, tmp_path, init_from=general / "model.ckpt-2")
    np.testing.assert_array_equal(initial(training)[TABLE], weights(general, 2)[TABLE])


def test_rows_of_another_vocabulary_go_with_their_pieces(
    general, data_dir, tmp_path, capfd
):
    problem = small_data(tmp_path / "small").replace(vocab_size=290)
    generate(problem, tmp_path / "other", workers=1)
    fresh = initial(trainer(tmp_path / "other", tmp_path / "fresh"))[TABLE]
    training = trainer(tmp_path / "other", tmp_path / "run", init_from=general)
    table = initial(training)[TABLE]
    old_table = weights(general)[TABLE]
    old, new = (
        RunDirectory(path).tokenizers[0].pieces for path in (general, tmp_path / "run")
    )
    assert old != new
    for i, piece in enumerate(new):
        expected = old_table[old.index(piece)] if piece in old else fresh[i]
        np.testing.assert_array_equal(table[i], expected, err_msg=piece)
    matched = len(set(old) & set(new))
    said = f"{matched} of {len(new)} rows of {TABLE}, and all other weights"
    assert said in capfd.readouterr().err
    training.train()  # and the shapes are those of the new vocabulary


def test_matching_rows():
    old, new = matching_rows(
        ["<pad>", "<EOS>", "a", "b", "c"], ["<pad>", "</s>", "c", "x", "a", "y"]
    )
    assert list(zip(old, new, strict=True)) == [(0, 0), (1, 1), (4, 2), (2, 4)]


@pytest.mark.parametrize(
    ("hparams", "message"),
    [
        (
            {"d_ff": 32},
            r"inner/kernel' has shape \[16, 16\], the model's is \[16, 32\]",
        ),
        ({"d_model": 8}, "'.*' has shape .*, the model's is .*; take the hparams"),
        ({"num_layers": 2}, "the model has a weight 'model/decoder/layer_1/.*' and"),
        ({"share_embeddings": False}, "checkpoint has a weight 'model/embedding/table"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_named(hparams, message, general, data_dir, tmp_path):
    training = trainer(data_dir, tmp_path, init_from=general, **hparams)
    with pytest.raises(UserError, match=message):
        training.train()


def test_what_is_not_a_run_is_refused_before_anything_is_written(data_dir, tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("empty", "absent"):
        with pytest.raises(UserError, match=f"--init_from: .*{name} is neither a run"):
            t2t_keras.train(
                *("translate_text", "tiny"),
                data_dir=data_dir,
                output_dir=tmp_path / "run",
                init_from=tmp_path / name,
            )
    assert not (tmp_path / "run").exists()

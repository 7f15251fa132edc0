"""Fine-tuning: the initial weights of a run from another run's checkpoint.

Only the weights are taken; optimizer, schedule and data start from the beginning. The
vocabulary may differ: each token keeps its rows of the matrices.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf

from t2t_keras.errors import UserError
from t2t_keras.model.transformer import Transformer
from t2t_keras.run.checkpoint import Checkpoint, model_variables, weight_name
from t2t_keras.run.config import Tokenizers, checkpoint_of, run_of
from t2t_keras.run.directory import RunDirectory
from t2t_keras.text.tokenizer import Tokenizer
from t2t_keras.text.vocabulary import EOS, PAD
from t2t_keras.training.hooks import Hook


class FineTuning(Hook):
    """Gives a fresh model the weights of another run.

    Rows of tokens that the other vocabulary does not have keep their fresh values.

    Args:
        init_from: a run directory, of which the average of the newest step or else the
            newest checkpoint is taken; or one of its checkpoints.
        model: the model to train.
        tokenizers: the source's and the target's.
    """

    def __init__(
        self, init_from: str | Path, model: Transformer, tokenizers: Tokenizers
    ) -> None:
        self._init_from = init_from
        self._model = model
        self._tokenizers = tokenizers

    def on_fresh_weights(self) -> str:
        """Replaces the weights.

        Returns:
            A sentence that says what was taken.

        Raises:
            UserError: there is no such run or checkpoint, or a weight that is not a
                vocabulary's matrix has another name or shape in the checkpoint.
        """
        run, path = find_weights(self._init_from)
        checkpoint = Checkpoint(path)
        weights = model_variables(self._model)
        matrices = _vocabularies(self._model, self._tokenizers)
        _refuse_difference(checkpoint, weights, matrices)
        old_matrices = _vocabularies(self._model, run.tokenizers)
        shares = []
        for name, weight in weights.items():
            value = checkpoint.tensor(name)
            if name in matrices:
                old_ids, new_ids = matching_rows(
                    old_matrices[name].pieces, matrices[name].pieces
                )
                rows = weight.read_value().numpy()
                rows[new_ids] = value[old_ids]
                shares.append(f"{len(new_ids):,} of {len(rows):,} rows of {name}")
                value = rows
            weight.assign(value)
        return f"initialised from {path}: {', '.join(shares)}, and all other weights"


def matching_rows(
    old_pieces: list[str], new_pieces: list[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ids, old and new, of the tokens that both vocabularies have.

    PAD and EOS match in any two vocabularies, however they are spelled.
    """
    special = (PAD, EOS)
    old_ids = {piece: i for i, piece in enumerate(old_pieces) if i not in special}
    pairs = [(i, i) for i in special]
    for i, piece in enumerate(new_pieces):
        if i not in special and piece in old_ids:
            pairs.append((old_ids[piece], i))
    return tuple(np.array(pairs).T)


def find_weights(init_from: str | Path) -> tuple[RunDirectory, Path]:
    """Returns the run and its checkpoint that `init_from` means.

    Raises:
        UserError: there is no such run or checkpoint.
    """
    run = RunDirectory(run_of(init_from))
    is_run_path = run.path == Path(init_from)
    return run, run.checkpoints.find() if is_run_path else checkpoint_of(init_from)


def _vocabularies(model: Transformer, tokenizers: Tokenizers) -> dict[str, Tokenizer]:
    """Returns the tokenizer of each weight with a row for each token, by its name."""
    source, *targets = (weight_name(model, e.table) for e in model.embeddings)
    if model.output_bias is not None:
        targets.append(weight_name(model, model.output_bias))
    return {source: tokenizers[0]} | dict.fromkeys(targets, tokenizers[1])


def _refuse_difference(
    checkpoint: Checkpoint,
    weights: Mapping[str, tf.Variable],
    matrices: Mapping[str, Tokenizer],
) -> None:
    """Raises where names or shapes differ; a vocabulary's number of rows may."""
    names = {name for name in checkpoint.shapes if name.startswith("model/")}
    for name in sorted(names ^ weights.keys()):
        if name in weights:
            difference = f"the model has a weight '{name}' and the checkpoint has not"
        else:
            difference = f"the checkpoint has a weight '{name}' and the model has not"
        raise UserError(
            f"--init_from {checkpoint.path}: {difference}; take the hparams of that run"
        )
    for name, weight in weights.items():
        shape = list(weight.shape)
        old_shape = checkpoint.shapes[name]
        # The number of rows of a vocabulary's matrix may differ.
        axis = 1 if name in matrices else 0
        if shape[axis:] != old_shape[axis:]:
            raise UserError(
                f"--init_from {checkpoint.path}: '{name}' has shape {old_shape}, the "
                f"model's is {shape}; take the hparams of that run"
            )

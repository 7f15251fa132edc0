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
from t2t_keras.run.config import run_of
from t2t_keras.run.directory import RunDirectory
from t2t_keras.text.tokenizer import EOS, PAD, Tokenizer


def initialise_from(
    init_from: str | Path, model: Transformer, tokenizers: tuple[Tokenizer, Tokenizer]
) -> str:
    """Gives a fresh model the weights of another run.

    Rows of tokens that the other vocabulary does not have keep their fresh values.

    Args:
        init_from: a run directory, of which the average of the newest step or else the
            newest checkpoint is taken; or one of its checkpoints.
        model: the model to train.
        tokenizers: the source's and the target's.

    Returns:
        A sentence that says what was taken.

    Raises:
        UserError: there is no such run or checkpoint, or a weight that is not a
            vocabulary's matrix has another name or shape in the checkpoint.
    """
    run, path = find_weights(init_from)
    checkpoint = Checkpoint(path)
    weights = model_variables(model)
    matrices = _vocabularies(model, tokenizers)
    _refuse_difference(checkpoint, weights, matrices)
    theirs = _vocabularies(model, run.tokenizers)
    shares = []
    for name, weight in weights.items():
        value = checkpoint.tensor(name)
        if name in matrices:
            old, new = matching_rows(theirs[name].pieces, matrices[name].pieces)
            rows = weight.read_value().numpy()
            rows[new] = value[old]
            shares.append(f"{len(new):,} of {len(rows):,} rows of {name}")
            value = rows
        weight.assign(value)
    return f"initialised from {path}: {', '.join(shares)}, and all other weights"


def matching_rows(old: list[str], new: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ids, old and new, of the tokens that both vocabularies have.

    PAD and EOS match in any two vocabularies, however they are spelled.
    """
    special = (PAD, EOS)
    ids = {token: i for i, token in enumerate(old) if i not in special}
    pairs = [(i, i) for i in special]
    pairs += [(ids[p], i) for i, p in enumerate(new) if i not in special and p in ids]
    return tuple(np.array(pairs).T)


def find_weights(init_from: str | Path) -> tuple[RunDirectory, Path]:
    """Returns the run and its checkpoint that `init_from` means.

    Raises:
        UserError: there is no such run or checkpoint.
    """
    run = RunDirectory(run_of(init_from))
    is_whole = run.path == Path(init_from)
    return run, run.checkpoints.find() if is_whole else Path(init_from)


def _vocabularies(
    model: Transformer, tokenizers: tuple[Tokenizer, Tokenizer]
) -> dict[str, Tokenizer]:
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
    theirs = {name for name in checkpoint.shapes if name.startswith("model/")}
    for name in sorted(theirs ^ weights.keys()):
        has, lacks = "the checkpoint", "the model"
        if name in weights:
            has, lacks = lacks, has
        raise UserError(
            f"--init_from {checkpoint.path}: {has} has a weight '{name}' and {lacks} "
            "has not; take the hparams of that run"
        )
    for name, weight in weights.items():
        mine, other = list(weight.shape), checkpoint.shapes[name]
        start = 1 if name in matrices else 0  # rows are matched, whatever their number
        if mine[start:] != other[start:]:
            raise UserError(
                f"--init_from {checkpoint.path}: '{name}' has shape {other}, the "
                f"model's is {mine}; take the hparams of that run"
            )

"""Converts a tensor2tensor training directory to a run directory."""

from pathlib import Path

import numpy as np

from t2t_keras import registry
from t2t_keras.data.files import sha256
from t2t_keras.errors import UserError
from t2t_keras.interop.t2t_checkpoint import (
    T2TCheckpoint,
    build,
    load_t2t,
    vocab_sizes,
)
from t2t_keras.runs import is_run
from t2t_keras.runs.checkpoint import CheckpointDirectory, write_checkpoint
from t2t_keras.runs.run_dir import RunConfig, RunDirectory
from t2t_keras.text.load import load_tokenizer


def import_t2t_run(
    checkpoint_path: str | Path,
    hparams_json: str | Path,
    vocab: str | Path,
    problem_name: str,
    output_dir: str | Path,
    target_space_id: int = 0,
) -> RunDirectory:
    """Writes a run directory with the model of a tensor2tensor checkpoint.

    It can be used, evaluated and exported like any other, but its training cannot be
    resumed, because Adam's moments are not imported.

    Args:
        checkpoint_path: see `load_t2t`.
        hparams_json: see `load_t2t`.
        vocab: the `.subwords` file of both languages.
        problem_name: the problem to use the model for, such as `translate_ende`.
        output_dir: the new run directory.
        target_space_id: see `load_t2t`.

    Raises:
        UserError: as in `load_t2t`; or the vocabulary is not the checkpoint's, there is
            no such problem, or the directory holds a run.
    """
    problem = registry.problem(problem_name)
    vocab, output_dir = Path(vocab), Path(output_dir)
    hparams, weights = load_t2t(checkpoint_path, hparams_json, target_space_id)
    vocab_size = load_tokenizer(vocab).vocab_size
    if vocab_sizes(weights) != (vocab_size, None):
        rows = " and ".join(str(n) for n in vocab_sizes(weights) if n)
        raise UserError(
            f"{vocab} has {vocab_size} tokens, and the checkpoint's embeddings have "
            f"{rows} rows; give the vocabulary that the model was trained with"
        )
    build(hparams, weights)  # raises if these do not belong together
    if is_run(output_dir):
        raise UserError(f"{output_dir} holds a run already; give a new --output_dir")
    config = RunConfig(
        problem=problem.name,
        hparams_set="tensor2tensor",
        data_dir=str(vocab.parent.resolve()),
        seed=0,
        source_vocab=vocab.name,
        target_vocab=vocab.name,
        vocab_sha256=dict.fromkeys(("source", "target"), sha256(vocab)),
    )
    output_dir.mkdir(parents=True, exist_ok=True)
    step = T2TCheckpoint(checkpoint_path).step
    path = CheckpointDirectory(output_dir).path(step)
    # The configuration comes last: with it the directory is a run.
    write_checkpoint(path, {"step": np.int64(step), **weights})
    return RunDirectory.create(output_dir, config, hparams)

"""The run directory, which training writes and everything else reads.

config.json     problem, hparams set, data directory, seed, vocabulary hashes
hparams.json    every hyper-parameter
vocab.*         copies of the vocabularies
model.ckpt-*    checkpoints (see `checkpoint`)
best.ckpt-*     weights of the checkpoint that was best on dev
average.ckpt-*  averages of checkpoints
metrics.jsonl   one line for every report and evaluation
samples.jsonl   some sentences of dev at every evaluation
tensorboard/    the metrics for TensorBoard
history.jsonl   one line for every session, average, evaluation and import
train.lock      locked by the process that trains here
"""

import contextlib
import dataclasses
import functools
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np

from t2t_keras.checking import checked
from t2t_keras.data.manifest import Manifest
from t2t_keras.data.pipeline import read_pairs
from t2t_keras.decoding.ensemble import Ensemble
from t2t_keras.decoding.generation import Preprocessor
from t2t_keras.decoding.graph_engine import ModelTranslator
from t2t_keras.errors import UserError, quantity
from t2t_keras.files.atomic import Lock, OccupiedDirectory, atomic, lock
from t2t_keras.files.json_files import sha256, write_json
from t2t_keras.hparam import CHANGEABLE_FIELDS, HParams
from t2t_keras.model import build_model
from t2t_keras.model.backend import require_tensorflow
from t2t_keras.model.transformer import Transformer
from t2t_keras.problem import Problem, Split
from t2t_keras.run.checkpoint import (
    Checkpoint,
    CheckpointDirectory,
    model_variables,
    slot_name,
)
from t2t_keras.run.config import (
    TRAINING_LOCK,
    RunConfig,
    Tokenizers,
    is_path,
    is_run,
    require_run,
)
from t2t_keras.text.vocabulary import UNK


class RunDirectory:
    """A run directory, opened for reading or for resuming training.

    Raises:
        UserError: the directory is not a run.
    """

    @checked
    def __init__(self, path: str | Path) -> None:
        require_tensorflow()
        self.path = Path(path)
        require_run(path)
        settings = self.path / "hparams.json"
        # Twice, because the files may have been replaced while they were read.
        for _ in range(2):
            self.config = RunConfig.read(self.path)
            self.hparams = self.config.read_hparams(settings)
            if self.config.hparams_sha256 in (None, sha256(settings)):
                break
        else:
            raise UserError(
                f"{settings} is not as `t2t train` wrote it, since its checksum in "
                "config.json differs; restore it, and change settings with "
                "`t2t train --change_settings`"
            )
        self.checkpoints = CheckpointDirectory(self.path)

    @classmethod
    def create(
        cls,
        path: str | Path,
        config: RunConfig,
        hparams: HParams,
        change_settings: bool = False,
    ) -> Self:
        """Makes the directory, or opens it to resume the same run.

        Raises:
            UserError: see `refuse_other_settings`.
        """
        path = Path(path)
        cls.refuse_other_settings(path, config, hparams, change_settings)
        path.mkdir(parents=True, exist_ok=True)
        for name in {config.source_vocab, config.target_vocab}:
            with atomic(path / name) as incomplete:
                shutil.copy(Path(config.data_dir) / name, incomplete)
        if is_run(path):
            # Without a checksum the run can be opened if this process is killed here.
            config.write(path)
        write_json(path / "hparams.json", dataclasses.asdict(hparams))
        digest = sha256(path / "hparams.json")
        config = dataclasses.replace(config, hparams_sha256=digest)
        # Last, because config.json makes the directory a run.
        config.write(path)
        return cls(path)

    @classmethod
    def refuse_other_settings(
        cls,
        path: str | Path,
        config: RunConfig,
        hparams: HParams,
        change_settings: bool = False,
        is_new: bool = False,
    ) -> None:
        """Refuses to resume a run whose checkpoints were trained with other settings.

        Args:
            path: the directory.
            config: the new configuration.
            hparams: the new hyper-parameters.
            change_settings: whether hyper-parameters may differ that affect neither
                the model nor the batches nor the optimizer's state.
            is_new: whether the chief has just written the settings, which then bind
                even without a checkpoint.

        Raises:
            UserError: the directory holds such a run; the message lists the
                differences.
        """
        checkpoints = CheckpointDirectory(Path(path))
        prefixes = ("model.ckpt", "best.ckpt", "average.ckpt")
        if not is_run(path) or not (is_new or any(map(checkpoints.steps, prefixes))):
            return
        run = cls(path)
        step = max(checkpoints.steps(), default=0)
        if hparams.train_steps < step:
            raise UserError(
                f"{run.path} has already done {quantity(step, 'steps')}; train_steps "
                f"must be at least {step}, not {hparams.train_steps}"
            )
        changes = run.config.changes(config)
        if "data_dir" in changes:
            # Other data have other vocabularies, which need not be said.
            changes.pop("vocab_sha256", None)
        changes |= run.hparams.difference(hparams)
        changes.pop("train_steps", None)
        if change_settings:
            changes = {k: v for k, v in changes.items() if k not in CHANGEABLE_FIELDS}
        if changes:
            lines = []
            for name, (old, new) in changes.items():
                lines.append(f"{name} was {old}, is now {new}")
            note = " (replicas x --accumulate)" if "batch_parts" in changes else ""
            advice = "give the same settings or another --output_dir"
            if changes.keys() <= CHANGEABLE_FIELDS:
                advice += ", or --change_settings to resume with these"
            raise UserError(
                f"{run.path} holds a run with other settings: {'; '.join(lines)}"
                f"{note}; {advice}"
            )

    @property
    def problem(self) -> Problem:
        """The run's problem, with the symbols and the tags of its data."""
        return self.config.registered_problem()

    @functools.cached_property
    def tokenizers(self) -> Tokenizers:
        """The source and target tokenizers; one object for a shared vocabulary."""
        return self.config.tokenizers(self.path)

    def build_model(self) -> Transformer:
        """Returns the model with newly initialized weights, and its preprocessor."""
        model = build_model(self.hparams, *self.config.sizes_of(self.tokenizers))
        model.preprocessor = Preprocessor(*self.tokenizers, self.problem)
        return model

    def translator(
        self,
        checkpoint: str | int | Path | None = None,
        ensemble: Sequence[str | Path] = (),
    ) -> ModelTranslator:
        """Returns a translator with a checkpoint's weights.

        Args:
            checkpoint: see `restore`; the same step or name for all runs.
            ensemble: further run directories with the same vocabularies, whose models
                decode together with this one (`decoding.ensemble`).

        Raises:
            UserError: a run has other vocabularies or no such checkpoint, or an
                ensemble is given the path of one.
        """
        if ensemble and is_path(checkpoint):
            raise UserError(
                f"checkpoint: {checkpoint} is a file of one run; give a step, or a "
                "name such as best, which all runs of the ensemble have"
            )
        models = []
        for run in (self, *(RunDirectory(path) for path in ensemble)):
            if run.config.vocab_sha256 != self.config.vocab_sha256:
                raise UserError(
                    f"ensemble: {run.path} has other vocabularies than {self.path}; "
                    "all runs must have been trained with the same"
                )
            model = run.build_model()
            run.restore(model, checkpoint)
            models.append(model)
        joined = Ensemble(models) if ensemble else models[0]
        translator = ModelTranslator(self.problem, joined, *self.tokenizers)
        translator.origin = self.config.origin
        return translator

    def example_sources(self, count: int) -> list[str]:
        """Returns sources of the dev data, or else of the training data.

        If the run's data are absent, they are random sequences of tokens.

        Args:
            count: the number of sources; there are fewer if the data have fewer.
        """
        data_dir = Path(self.config.data_dir)
        problem = self.problem
        tokenizer = self.tokenizers[0]
        splits: tuple[Split, ...] = ("dev", "train")
        for split in splits:
            with contextlib.suppress(UserError):
                manifest = Manifest.open(data_dir, problem.data_name)
                index = manifest.open_index(data_dir, split, problem.reverse)
                interval = max(1, len(index) // max(1, count))
                records = range(0, len(index), interval)[:count]
                return [tokenizer.decode(ids) for ids, _ in read_pairs(index, records)]
        random = np.random.default_rng(0)
        ids = random.integers(UNK + 1, tokenizer.vocab_size, (count, 12))
        return [tokenizer.decode(row) for row in ids.tolist()]

    def checkpoint_path(self, checkpoint: str | int | Path | None = None) -> Path:
        """Returns the prefix of the checkpoint from which `restore` takes weights.

        Args:
            checkpoint: see `restore`.

        Raises:
            UserError: there is no such checkpoint.
        """
        # The moving average is stored in the newest checkpoint.
        return self.checkpoints.find("latest" if checkpoint == "ema" else checkpoint)

    def restore(
        self, model: Transformer, checkpoint: str | int | Path | None = None
    ) -> None:
        """Restores a model's weights from a checkpoint.

        Args:
            model: a model from `build_model`.
            checkpoint: see `CheckpointDirectory.find`; or "ema", the moving average in
                the newest checkpoint.

        Raises:
            UserError: there is no such checkpoint.
        """
        weights = model_variables(model)
        if checkpoint == "ema":
            if not self.hparams.ema_decay:
                raise UserError(f"--checkpoint=ema: {self.path} has no ema_decay")
            trainable = model_variables(model, trainable=True)
            weights |= {slot_name("ema", name): weights.pop(name) for name in trainable}
        Checkpoint(self.checkpoint_path(checkpoint)).restore(weights)


def training_lock(path: str | Path) -> contextlib.AbstractContextManager[Lock]:
    """Holds the lock of a run directory: only one process at a time may train in it.

    Args:
        path: the run directory, which is made if absent.

    Raises:
        OccupiedDirectory: another process trains there; the message names it.
    """

    def refusal(holder: str) -> UserError:
        return OccupiedDirectory(
            f"--output_dir: another training writes to {path}"
            f"{holder and f', {holder}'}; wait until it has ended, or give another "
            "directory"
        )

    return lock(Path(path) / TRAINING_LOCK, refusal)

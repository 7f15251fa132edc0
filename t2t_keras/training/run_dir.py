"""The run directory, which training writes and everything else reads.

config.json     problem, hparams set, data directory, seed, vocabulary hashes
hparams.json    every hyper-parameter
vocab.*         copies of the vocabularies
model.ckpt-*    checkpoints (see `checkpoint`)
best.ckpt-*     weights of the checkpoint that was best on dev
average.ckpt-*  averages of checkpoints
metrics.jsonl   one line for every report and evaluation
events.*        the same for TensorBoard
history.jsonl   one line for every training, average, evaluation and import
train.lock      locked by the process that trains here
"""

import contextlib
import dataclasses
import datetime
import functools
import importlib.metadata
import json
import os
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from t2t_keras import registry
from t2t_keras.data.files import atomic, lock, open_records, sha256, write_json
from t2t_keras.data.manifest import Manifest
from t2t_keras.data.pipeline import read_pairs
from t2t_keras.data.records import RecordIndex
from t2t_keras.decoding.ensemble import Ensemble
from t2t_keras.decoding.translator import Translator
from t2t_keras.hparam import MAY_CHANGE, HParams
from t2t_keras.model.backend import require_tensorflow
from t2t_keras.model.transformer import Transformer
from t2t_keras.option import UserError
from t2t_keras.problem import Problem
from t2t_keras.text.tokenizer import UNK, Tokenizer, load_tokenizer
from t2t_keras.training.checkpoint import (
    Checkpoint,
    CheckpointDirectory,
    model_variables,
    slot_name,
)
from t2t_keras.training.runs import is_run, require_run


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
    """The settings that a run was started with, stored in `config.json`."""

    problem: str
    hparams_set: str
    data_dir: str
    seed: int
    source_vocab: str  # file names; both are the same if the vocabulary is shared
    target_vocab: str
    vocab_sha256: dict[str, str]  # as in the manifest of the data
    # Fingerprint of the training data, see `Manifest.fingerprints`; None in older runs.
    data_sha256: str | None = None
    # As in the manifest.
    symbols: list[str] = dataclasses.field(default_factory=list)
    tags: list[str] = dataclasses.field(default_factory=list)
    usr_dir: str | None = None
    init_from: str | None = None  # source of the initial weights, see `fine_tune`
    # Number of parts into which a batch is divided, each with its own dropout seed:
    # replicas times micro-batches. None: training has not begun yet.
    batch_parts: int | None = None
    hparams_sha256: str | None = None  # of hparams.json; None: not verified

    def tokenizers(self, directory: Path) -> tuple[Tokenizer, Tokenizer]:
        """Returns the source and target tokenizers; one object if they are the same.

        Args:
            directory: the data directory, or the run directory.
        """
        source = load_tokenizer(directory / self.source_vocab)
        if self.source_vocab == self.target_vocab:
            return source, source
        return source, load_tokenizer(directory / self.target_vocab)

    @property
    def vocab_sizes(self) -> tuple[int, int | None]:
        """Vocabulary sizes of source and target, the latter None if they share one."""
        return self.sizes_of(self.tokenizers(Path(self.data_dir)))

    def sizes_of(
        self, tokenizers: tuple[Tokenizer, Tokenizer]
    ) -> tuple[int, int | None]:
        """Returns `vocab_sizes`, given the tokenizers.

        Two files with the same tokens are one vocabulary: Marian's often has a file for
        each language, which splits texts in another way.
        """
        source, target = tokenizers
        are_two_files = len(set(self.vocab_sha256.values())) == 2
        if source is target or (are_two_files and source.pieces == target.pieces):
            return source.vocab_size, None
        return source.vocab_size, target.vocab_size

    def micro_batches(self, num_replicas: int) -> int:
        """Returns the number of micro-batches for each of `num_replicas` replicas.

        Raises:
            UserError: so many replicas cannot divide the batch as the run has done.
        """
        parts = self.batch_parts or num_replicas
        if parts % num_replicas:
            raise UserError(
                f"the run divides batches into {parts} parts, which {num_replicas} "
                "replicas cannot share equally; use another number of GPUs"
            )
        return parts // num_replicas


class RunDirectory:
    """A run directory, opened for reading or for resuming training.

    Raises:
        UserError: the directory is not a run.
    """

    def __init__(self, path: str | Path) -> None:
        require_tensorflow()
        self.path = Path(path)
        require_run(path)
        config, settings = self.path / "config.json", self.path / "hparams.json"
        for _ in range(2):  # the files may have been replaced while they were read
            try:
                self.config = RunConfig(**json.loads(config.read_text()))
            except (ValueError, TypeError) as error:
                raise UserError(
                    f"{config} is not as it was written: {error}; restore it, or train "
                    "in another --output_dir"
                ) from None
            self.hparams = HParams.load(settings)
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

        Args:
            path: the directory.
            config: the run's configuration.
            hparams: the run's hyper-parameters.
            change_settings: see `refuse_other_settings`.

        Raises:
            UserError: it holds a run with other settings; the message lists them.
        """
        path = Path(path)
        cls.refuse_other_settings(path, config, hparams, change_settings)
        path.mkdir(parents=True, exist_ok=True)
        for name in {config.source_vocab, config.target_vocab}:
            with atomic(path / name) as incomplete:
                shutil.copy(Path(config.data_dir) / name, incomplete)
        if is_run(path):  # if killed here, the run has no checksum, and can be opened
            write_json(path / "config.json", dataclasses.asdict(config))
        write_json(path / "hparams.json", dataclasses.asdict(hparams))
        digest = sha256(path / "hparams.json")
        config = dataclasses.replace(config, hparams_sha256=digest)
        # Written last: with it the directory is a run.
        write_json(path / "config.json", dataclasses.asdict(config))
        return cls(path)

    @classmethod
    def refuse_other_settings(
        cls,
        path: str | Path,
        config: RunConfig,
        hparams: HParams,
        change_settings: bool = False,
    ) -> None:
        """Refuses to resume a run that was created with other settings.

        Args:
            path: the directory.
            config: the configuration to resume with.
            hparams: the hyper-parameters to resume with.
            change_settings: whether those of them may differ that neither the model nor
                the batches nor the optimizer's state depend on.

        Raises:
            UserError: the directory holds such a run; the message lists the
                differences.
        """
        if not is_run(path):
            return
        run = cls(path)
        mine, others = dataclasses.asdict(run.config), dataclasses.asdict(config)
        # A data directory may be moved as long as its content is the same.
        names = mine.keys() - {"data_dir", "usr_dir", "hparams_set", "symbols", "tags"}
        names -= {"hparams_sha256"}
        manifest = Manifest.open(Path(config.data_dir), run.problem.data_name)
        if run.config.data_sha256 in (None, *manifest.fingerprints("train")):
            names -= {"data_sha256"}
        changes = {k: (mine[k], others[k]) for k in names if mine[k] != others[k]}
        if changes.pop("data_sha256", None):
            changes["data_dir"] = mine["data_dir"], f"{others['data_dir']}, other data"
        if run.config.batch_parts is None:
            changes.pop("batch_parts", None)
        changes |= run.hparams.difference(hparams)
        changes.pop("train_steps", None)  # a run may be made longer
        if change_settings:
            changes = {k: v for k, v in changes.items() if k not in MAY_CHANGE}
        if changes:
            lines = (f"{k} was {a}, is now {b}" for k, (a, b) in changes.items())
            note = " (replicas x --accumulate)" if "batch_parts" in changes else ""
            advice = "give the same settings or another --output_dir"
            if changes.keys() <= MAY_CHANGE:
                advice += ", or --change_settings to go on with these"
            if not run.checkpoints.steps():
                advice += ", or remove the directory (it has no checkpoint yet)"
            raise UserError(
                f"{run.path} holds a run with other settings: {'; '.join(lines)}"
                f"{note}; {advice}"
            )

    @property
    def problem(self) -> Problem:
        """The run's problem, with the symbols and the tags of its data."""
        name, usr_dir = self.config.problem, self.config.usr_dir
        try:
            problem = registry.problem(name)
        except UserError:
            if usr_dir is None:
                raise
            registry.load_usr_dir(usr_dir)
            problem = registry.problem(name)
        problem = problem.with_tags(self.config.tags or problem.tags)
        return problem.with_symbols(self.config.symbols or problem.symbols)

    @functools.cached_property
    def tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        """The source and target tokenizers; one object for a shared vocabulary."""
        return self.config.tokenizers(self.path)

    def build_model(self) -> Transformer:
        """Returns the model with newly initialized weights."""
        return Transformer(self.hparams, *self.config.sizes_of(self.tokenizers))

    def translator(
        self,
        checkpoint: str | int | Path | None = None,
        ensemble: Sequence[str | Path] = (),
    ) -> Translator:
        """Returns a translator with a checkpoint's weights.

        Args:
            checkpoint: see `restore`; the same for all runs.
            ensemble: further run directories with the same vocabularies, whose models
                decode together with this one (`decoding.ensemble`).

        Raises:
            UserError: a run has other vocabularies or no such checkpoint.
        """
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
        return Translator(self.problem, joined, *self.tokenizers)

    def example_sources(self, count: int) -> list[str]:
        """Returns sources of the dev data, in the form of the training data's.

        If the run's data are absent, they are random sequences of tokens.

        Args:
            count: the number of sources; there are fewer if the data have fewer.
        """
        problem, tokenizer = self.problem, self.tokenizers[0]
        for split in ("dev", "train"):
            with contextlib.suppress(UserError):
                data = Path(self.config.data_dir), problem.data_name, split
                index = RecordIndex.open(*data, problem.reverse)
                every = max(1, len(index) // max(1, count))
                records = range(0, len(index), every)[:count]
                return [tokenizer.decode(ids) for ids, _ in read_pairs(index, records)]
        random = np.random.default_rng(0)
        ids = random.integers(UNK + 1, tokenizer.vocab_size, (count, 12))
        return [tokenizer.decode(row) for row in ids.tolist()]

    def record(self, kind: str, **facts: Any) -> None:
        """Adds a line to `history.jsonl`.

        Args:
            kind: "training", "average", "evaluation" or "import".
            **facts: what is known of it.
        """
        line = {
            "kind": kind,
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "version": importlib.metadata.version("t2t_keras"),
            **facts,
        }
        text = json.dumps(
            line, ensure_ascii=False, default=lambda it: type(it).__name__
        )
        with open_records(self.path / "history.jsonl") as file:
            file.write(f"{text}\n")

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
                raise UserError(f"--checkpoint ema: {self.path} has no ema_decay")
            weights = {slot_name("ema", name): v for name, v in weights.items()}
            checkpoint = "latest"
        Checkpoint(self.checkpoints.find(checkpoint)).restore(weights)


def training_lock(path: str | Path) -> contextlib.AbstractContextManager[None]:
    """Holds the lock of a run directory: only one process at a time may train in it.

    Args:
        path: the run directory, which is made if absent.

    Raises:
        UserError: another process trains there; the message names it.
    """

    def refusal(holder: str) -> UserError:
        return UserError(
            f"--output_dir: another training writes to {path}"
            f"{holder and f', {holder}'}; wait until it has ended, or give another "
            "directory"
        )

    here = f"process {os.getpid()} on {socket.gethostname()}"
    return lock(Path(path) / "train.lock", refusal, here)


def config_for(
    problem: Problem,
    hparams_set: str,
    data_dir: str | Path,
    seed: int,
    usr_dir: str | Path | None = None,
    init_from: str | Path | None = None,
) -> RunConfig:
    """Returns the configuration of a new run on a data directory.

    Args:
        problem: the problem to train on.
        hparams_set: the name of the hparam set, before any overrides.
        data_dir: a directory with data of the problem.
        seed: seed of the initial weights, the order of the data, and dropout.
        usr_dir: the user's folder that registers the problem, if there is one.
        init_from: a run directory, or a checkpoint in one, to take the initial weights
            from.

    Raises:
        UserError: the data directory has no data of the problem.
    """
    manifest = Manifest.open(Path(data_dir), problem.data_name)
    manifest.check_vocabularies(Path(data_dir))
    files = manifest.vocab_files
    source, target = files["source"], files["target"]
    if problem.reverse and manifest.tags:
        raise UserError(
            f"the sources in {data_dir} have tags ({', '.join(manifest.tags)}), which "
            f"would be in the targets of '{problem.name}'; make data of that direction"
        )
    if problem.reverse:
        source, target = target, source
    return RunConfig(
        problem=problem.name,
        hparams_set=hparams_set,
        data_dir=str(Path(data_dir).resolve()),
        seed=seed,
        source_vocab=source,
        target_vocab=target,
        vocab_sha256=dict(manifest.vocab_sha256),
        data_sha256=manifest.fingerprints("train")[0],
        symbols=list(manifest.symbols),
        tags=list(manifest.tags),
        usr_dir=str(Path(usr_dir).resolve()) if usr_dir else None,
        init_from=str(Path(init_from).resolve()) if init_from else None,
    )

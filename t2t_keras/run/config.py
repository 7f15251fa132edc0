"""The settings of a run directory and the paths of its checkpoints."""

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

from t2t_keras import registry
from t2t_keras.checking import Positive
from t2t_keras.errors import UserError
from t2t_keras.evaluation.bleu import with_bleu
from t2t_keras.evaluation.tokenization import BleuTokens
from t2t_keras.files.json_files import (
    TWO,
    FileName,
    from_fields,
    read_json,
    sha256,
    write_json,
)
from t2t_keras.hparam import HParams
from t2t_keras.problem import Problem
from t2t_keras.text.tokenizer import Tokenizer, load_tokenizer
from t2t_keras.usr_dir import load_usr_dir

if TYPE_CHECKING:
    from t2t_keras.data.manifest import Manifest


# The decoding options that a run may record.
DecodingDefaults = dict[
    Literal["beam_size", "length_penalty", "alpha"], int | float | str
]
# The names of checkpoints on the command line, besides steps and paths.
_NAMES = ("latest", "average", "best")


def is_path(name: str | int | Path | None) -> bool:
    """Returns whether a user names a checkpoint by its path, which only one run has."""
    return not (name is None or str(name).isdigit() or name in (*_NAMES, "ema"))


def checkpoint_of(path: str | Path) -> Path:
    """Returns the path of a checkpoint, without the suffix of its file `.index`."""
    return Path(str(path).removesuffix(".index"))


def has_checkpoint(path: Path) -> bool:
    """Returns whether a checkpoint is at the path, which has no suffix."""
    return Path(f"{path}.index").exists()


class CheckpointPaths:
    """The paths of the checkpoints in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def steps(self, prefix: str = "model.ckpt") -> list[int]:
        """Returns the steps of all complete checkpoints, ascending."""
        pattern = re.compile(re.escape(prefix) + r"-(\d+)\.index")
        steps = []
        for path in self.directory.glob("*"):
            if match := pattern.fullmatch(path.name):
                steps.append(int(match[1]))
        return sorted(steps)

    def path(self, step: int, prefix: str = "model.ckpt") -> Path:
        """Returns the path, without suffix, of a step's checkpoint."""
        return self.directory / f"{prefix}-{step}"

    def find(self, name: str | int | Path | None = None) -> Path:
        """Returns the checkpoint that a user means.

        Args:
            name: a step, "latest", "average" or "best" (on dev), a path, or the name
                of a file in the directory; None: the average of the newest step if
                there is one, else the newest checkpoint.

        Raises:
            UserError: there is no such checkpoint.
        """
        newest = self.steps()[-1:]
        averages = self.steps("average.ckpt")[-1:]
        if name is None:
            name = "average" if averages and averages >= newest else "latest"
        name = str(name)
        if name in _NAMES:
            prefix = "model.ckpt" if name == "latest" else f"{name}.ckpt"
            steps = self.steps(prefix)
            if not steps:
                raise UserError(f"{self.directory} has no {name} checkpoint")
            return self.path(steps[-1], prefix)
        path = self.path(int(name)) if name.isdigit() else checkpoint_of(name)
        if not has_checkpoint(path) and has_checkpoint(self.directory / path):
            path = self.directory / path
        if not has_checkpoint(path):
            steps_text = ", ".join(map(str, self.steps())) or "none"
            raise UserError(
                f"--checkpoint: there is no {path} (checkpoints at steps: {steps_text})"
            )
        return path

    def pinned(self, name: str | int | Path | None = None) -> str:
        """Returns what means the same checkpoint after a training has written others.

        Args:
            name: see `find`; or "ema", the moving average in the newest checkpoint,
                which stays as it is.

        Raises:
            UserError: there is no such checkpoint.
        """
        return "ema" if name == "ema" else str(self.find(name))


# The file of a run directory that the process which trains there has locked.
TRAINING_LOCK = "train.lock"
# Fields that may differ when a run is resumed.
_CHANGEABLE_FIELDS = {
    *("data_dir", "usr_dir", "hparams_set", "symbols", "tags", "languages"),
    *("bleu_tokenize", "single_sentences", "hparams_sha256"),
    *("accumulate", "train_options"),
}


# A model gets single sentences if at least this share of its training sources are such.
# Corpora that were aligned by sentences have a few pairs of two sentences: 0.01%
# (English) and 0.2% (German) of Multi30k's sources, 2.1% and 4.5% of News Commentary's.
# Most paragraphs and documents have several.
SINGLE_SENTENCES = 0.9

# Source and target; the same object twice for a shared vocabulary.
Tokenizers = tuple[Tokenizer, Tokenizer]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
    """The settings that a run was started with, stored in `config.json`."""

    problem: str
    hparams_set: str
    data_dir: str
    seed: int
    # Source and target have the same file if they share a vocabulary.
    source_vocab: FileName
    target_vocab: FileName
    vocab_sha256: dict[str, str]  # as in the manifest of the data
    # `Manifest.fingerprint` of the training data; None: an imported model without data.
    data_sha256: str | None = None
    # Symbols and tags as in the manifest of the data.
    symbols: list[str] = dataclasses.field(default_factory=list)
    tags: list[str] = dataclasses.field(default_factory=list)
    # The language codes of source and target; None: unknown.
    languages: Annotated[list[str], TWO] | None = None
    bleu_tokenize: BleuTokens | None = None  # None: by the target language
    # Decoding options that replace the problem's: the search of an imported model.
    decoding: DecodingDefaults = dataclasses.field(default_factory=dict)
    # Where the weights come from that others have trained: "repository" and "commit",
    # or "archive", and "license". {}: unknown, or trained here from the beginning.
    origin: dict[str, str] = dataclasses.field(default_factory=dict)
    # The share of the training sources that are one sentence; None: unknown.
    single_sentences: float | None = None
    usr_dir: str | None = None
    init_from: str | None = None  # source of the initial weights, see `fine_tune`
    # The number of parts into which a batch is divided, each with a dropout seed:
    # replicas times micro-batches. None: training has not begun yet.
    batch_parts: Positive | None = None
    # How the run was trained, which does not bind it when it is resumed: the flag
    # `--accumulate`, and the `TrainOptions` that differ from the defaults.
    accumulate: Positive | None = None
    train_options: dict[str, int | float | str] = dataclasses.field(
        default_factory=dict
    )
    hparams_sha256: str | None = None  # of hparams.json; None: not verified

    @classmethod
    def read(cls, run: Path) -> Self:
        """Reads the `config.json` of a run.

        Raises:
            UserError: the file is damaged, of a later version, or of another program.
        """
        path = run / "config.json"
        fields = read_json(path, "train in another --output_dir")
        if fields is None:
            raise UserError(f"there is no {path}; restore it from a copy")
        if "problem" not in fields:
            raise UserError(
                f"{run} is not a run directory: its config.json is that of an export "
                "or of another program's model; give the --output_dir of `t2t train`"
            )
        return from_fields(cls, fields, path)

    def write(self, run: Path) -> None:
        """Writes the `config.json` of a run, atomically."""
        write_json(run / "config.json", dataclasses.asdict(self), with_checksum=True)

    def tokenizers(self, directory: Path) -> Tokenizers:
        """Returns the source and target tokenizers; one object if they are the same.

        Args:
            directory: the data directory, or the run directory.

        Raises:
            UserError: a vocabulary is missing or has been changed.
        """
        tokenizers: dict[str, Tokenizer] = {}
        for name in dict.fromkeys((self.source_vocab, self.target_vocab)):
            path = directory / name
            checksums = self.vocab_sha256.values()
            if checksums and path.exists() and sha256(path) not in checksums:
                raise UserError(
                    f"{path} is not the vocabulary of this run: its SHA-256 is not in "
                    "config.json; restore it from a copy, such as in the run's data "
                    "directory"
                )
            tokenizers[name] = load_tokenizer(path)
        return tokenizers[self.source_vocab], tokenizers[self.target_vocab]

    def read_hparams(self, path: Path) -> HParams:
        """Reads hyper-parameters, whose model may be in the user's directory.

        Raises:
            UserError: see `HParams.load`.
        """
        try:
            return HParams.load(path)
        except UserError:
            if self.usr_dir is None or not Path(self.usr_dir).is_dir():
                raise
            load_usr_dir(self.usr_dir)
            return HParams.load(path)

    def changed_hparams(self, hparams: HParams) -> dict[str, object]:
        """Returns the values that differ from the named set, by field.

        Raises:
            UserError: the set is neither registered nor in the user's directory.
        """
        changes = self._named_set().difference(hparams)
        return {name: value for name, (_, value) in changes.items()}

    def auto_hparams(self, hparams: HParams) -> dict[str, object]:
        """Returns the values where the named set has "auto", by field.

        They are among the results of `changed_hparams`; see there.
        """
        changes = self._named_set().difference(hparams)
        return {name: new for name, (old, new) in changes.items() if old == "auto"}

    def _named_set(self) -> HParams:
        """Returns the set of the run, which may be in the user's directory.

        A run that fine-tunes an imported model has the set of that model, which is not
        registered: those are its hyper-parameters.
        """
        try:
            return registry.hparams(self.hparams_set)
        except UserError:
            if self.usr_dir is not None:
                load_usr_dir(self.usr_dir)
                return registry.hparams(self.hparams_set)
            if self.init_from is None:
                raise
            return first_hparams(None, self.init_from)

    def existing_usr_dir(self) -> str | None:
        """Returns the `--usr_dir` with which the run began; None: it is gone."""
        folder = self.usr_dir
        return folder if folder and Path(folder).is_dir() else None

    def require_training(self, run: str | Path) -> None:
        """Refuses a run that has not been trained, only imported.

        Raises:
            UserError: it has not been trained; the message names the directory.
        """
        if self.batch_parts is None:
            raise UserError(
                f"{run} has no training, as after `t2t import`; begin one in another "
                f"--output_dir with --problem, --data_dir and --init_from {run}"
            )

    def sizes_of(self, tokenizers: Tokenizers) -> tuple[int, int | None]:
        """Returns the sizes of source and target, the latter None if they share one.

        Two files with the same tokens are one vocabulary: an imported model may have a
        file for each language, which splits texts in another way.
        """
        source, target = tokenizers
        are_two_files = len(set(self.vocab_sha256.values())) == 2
        if source is target or (are_two_files and source.pieces == target.pieces):
            return source.vocab_size, None
        return source.vocab_size, target.vocab_size

    def registered_problem(self) -> Problem:
        """Returns the problem, with what depends on the run's data.

        These are the symbols, the tags, the languages, and whether texts are split into
        sentences unless the problem says so itself. It has the run's decoding options.
        """
        try:
            problem = registry.problem(self.problem)
        except UserError:
            if self.usr_dir is None:
                raise
            load_usr_dir(self.usr_dir)
            problem = registry.problem(self.problem)
        if self.languages:
            source, target = self.languages
            problem = problem.replace(languages=(source, target))
        problem = problem.replace(**self.decoding)
        if self.bleu_tokenize:
            problem = with_bleu(problem, "bleu_tokenize", self.bleu_tokenize)
        if problem.split_sentences is None:
            splits = self.has_single_sentences(problem)
            problem = problem.replace(split_sentences=splits)
        problem = problem.with_tags(self.tags or problem.tags)
        return problem.with_symbols(self.symbols or problem.symbols)

    def manifest(self) -> "Manifest | None":
        """Returns the manifest of the run's data; None: they are no longer there.

        Raises:
            UserError: the manifest is damaged, or the problem is not registered.
        """
        from t2t_keras.data.manifest import Manifest

        data_name = self.registered_problem().data_name
        return Manifest.load(Manifest.path(Path(self.data_dir), data_name))

    def has_single_sentences(self, problem: Problem) -> bool:
        """Returns whether the model needs its inputs sentence by sentence.

        It does if nearly all of its training sources are single sentences, provided
        that outputs of the problem can be joined.
        """
        share = self.single_sentences or 0.0
        return share >= SINGLE_SENTENCES and problem.text_processor.splits_long_sources

    def changes(self, new_config: "RunConfig") -> dict[str, tuple[object, object]]:
        """Returns the old and new values that keep a run from being resumed.

        A data directory may be moved as long as its content is the same.
        """
        old_fields = dataclasses.asdict(self)
        new_fields = dataclasses.asdict(new_config)
        names = old_fields.keys() - _CHANGEABLE_FIELDS
        if self.data_sha256 is None:
            names -= {"data_sha256"}
        if self.batch_parts is None:
            names -= {"batch_parts"}
        changes: dict[str, tuple[object, object]] = {}
        for name in names:
            if old_fields[name] != new_fields[name]:
                changes[name] = (old_fields[name], new_fields[name])
        if changes.pop("data_sha256", None):
            changes["data_dir"] = (self.data_dir, f"{new_config.data_dir}, other data")
        return changes

    def micro_batches(self, num_replicas: int) -> int:
        """Returns the number of micro-batches for each of `num_replicas` replicas.

        Raises:
            UserError: the replicas cannot divide the batch as the run has done.
        """
        parts = self.batch_parts or num_replicas
        if parts % num_replicas:
            raise UserError(
                f"the run divides batches into {parts} parts, which {num_replicas} "
                "replicas cannot share equally; use another number of GPUs"
            )
        return parts // num_replicas


def config_for(
    problem: Problem,
    hparams_set: str,
    data_dir: str | Path,
    seed: int,
    usr_dir: str | Path | None = None,
    init_from: str | Path | None = None,
    bleu_tokenize: BleuTokens | None = None,
) -> RunConfig:
    """Returns the configuration of a new run on a data directory.

    The arguments are fields of `RunConfig`; paths may be relative.

    Raises:
        UserError: the data directory has no data of the problem, or the problem is not
            scored by BLEU.
    """
    from t2t_keras.data.manifest import Manifest

    if bleu_tokenize:
        with_bleu(problem, "bleu_tokenize", bleu_tokenize)
    manifest = Manifest.open(Path(data_dir), problem.data_name)
    manifest.check_vocabularies(Path(data_dir))
    source_vocab = manifest.vocab_files["source"]
    target_vocab = manifest.vocab_files["target"]
    if problem.reverse and manifest.tags:
        raise UserError(
            f"the sources in {data_dir} have tags ({', '.join(manifest.tags)}), which "
            f"would be in the targets of '{problem.name}'; make data of that direction"
        )
    if problem.reverse:
        source_vocab, target_vocab = target_vocab, source_vocab
    languages = list(manifest.languages or problem.languages or ())
    if problem.reverse and manifest.languages:
        languages.reverse()
    shares = manifest.single_sentences.get("train", {})
    side = "target" if problem.reverse else "source"
    return RunConfig(
        problem=problem.name,
        hparams_set=hparams_set,
        data_dir=str(Path(data_dir).resolve()),
        seed=seed,
        source_vocab=source_vocab,
        target_vocab=target_vocab,
        vocab_sha256=dict(manifest.vocab_sha256),
        data_sha256=manifest.fingerprint("train"),
        symbols=list(manifest.symbols),
        tags=list(manifest.tags),
        languages=languages or None,
        bleu_tokenize=bleu_tokenize,
        single_sentences=shares.get(side),
        usr_dir=str(Path(usr_dir).resolve()) if usr_dir else None,
        init_from=str(Path(init_from).resolve()) if init_from else None,
    )


def is_run(path: str | Path) -> bool:
    """Returns whether a directory holds a run."""
    return (Path(path) / "config.json").exists()


def existing_config(path: str | Path) -> RunConfig | None:
    """Returns the configuration of the run in a directory; None: there is no run."""
    return RunConfig.read(Path(path)) if is_run(path) else None


def require_run(path: str | Path) -> None:
    """Refuses a path that is not a run directory.

    Raises:
        UserError: there is no run; it says what else the path is.
    """
    if not is_run(path):
        raise UserError(
            other_than_run(path)
            or f"{path} is not a run directory: it has no config.json (the "
            "--output_dir of `t2t train` is one)"
        )


def other_than_run(path: str | Path) -> str:
    """Returns a sentence about a path that was given in place of a run.

    It says what the path is, and what to give; "": it is nothing known.
    """
    from t2t_keras.data.manifest import is_export

    directory = Path(path)
    file = re.sub(r"\.(index|data-\d+-of-\d+)$", "", str(path))
    if has_checkpoint(Path(file)):
        run, name = Path(file).parent, Path(file).name
        return (
            f"{path} is a checkpoint; give its run, {run}, and the checkpoint as "
            f"--checkpoint={name}"
        )
    if any(directory.glob("*.manifest.json")):
        return (
            f"{path} is a data directory; give a run, the --output_dir of "
            f"`t2t train --data_dir {path}`"
        )
    versions = [x for x in directory.glob("*") if x.name.isdecimal() and is_export(x)]
    if versions:
        newest = max(versions, key=lambda version: int(version.name))
        return f"{path} is neither a run nor an export; give {newest}"
    if is_export(path):
        return f"{path} is an export; give the run that was exported"
    return ""


def run_of(init_from: str | Path) -> Path:
    """Returns the run that `--init_from` means: it is one, or a checkpoint in one.

    Raises:
        UserError: it is neither.
    """
    path = Path(init_from)
    if is_run(path):
        return path
    if not has_checkpoint(checkpoint_of(path)):
        what = other_than_run(path) or f"{path} is neither a run nor a checkpoint"
        raise UserError(f"--init_from: {what}")
    return path.parent


def first_hparams(hparams_set: str | None, init_from: str | Path | None) -> HParams:
    """Returns the hyper-parameters of a training, before any changes.

    Args:
        hparams_set: a registered name; None: those of the run `init_from`.
        init_from: the run, or a checkpoint in one, that gives the initial weights.

    Raises:
        UserError: there is no such set, run or checkpoint, or neither is given.
    """
    run = None if init_from is None else run_of(init_from)
    if hparams_set is not None:
        return registry.hparams(hparams_set)
    if run is None:
        raise UserError("--hparams_set is missing; `t2t list` prints the names")
    return RunConfig.read(run).read_hparams(run / "hparams.json")

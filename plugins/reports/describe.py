"""`t2t describe`: a model's size and cost, and what a run or an export is."""

import contextlib
import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

from t2t_keras import registry
from t2t_keras.cli.command import (
    REQUIRED,
    Command,
    CommandResult,
    FlagGroup,
    UsrDirFlags,
    hparams_flag,
    quoted,
)
from t2t_keras.cli.config_file import flag_text
from t2t_keras.console import say, table
from t2t_keras.entry_points import hparams_remarks
from t2t_keras.errors import UserError
from t2t_keras.exporting.directory import size_of
from t2t_keras.exporting.formats import format_of
from t2t_keras.exporting.settings import SETTINGS, ExportSettings
from t2t_keras.files.json_files import from_fields, read_json
from t2t_keras.hparam import HParams
from t2t_keras.metrics import shown_metrics
from t2t_keras.options import option, split_pairs
from t2t_keras.run.config import CheckpointPaths, RunConfig, config_for, require_run

from .costs import (
    KNOWN_MODELS,
    Complexity,
    count_parameters,
    flops_per_token,
    layer_complexities,
    memory_per_batch,
    shown_flops,
    training_cost,
)
from .run_facts import Record, RunFacts, origin_rows, read_run, set_rows


def run_rows(facts: RunFacts) -> dict[str, str]:
    """Returns the settings, data, checkpoints, costs and newest metrics of a run."""
    rows = set_rows(facts.config, facts.hparams)
    rows |= facts.data_rows() | _checkpoint_rows(facts.path)
    if facts.records["train"]:  # none in an imported run
        rows |= facts.costs()
        rows.pop("parameters", None)  # they have rows by component
    for record_kind, records in facts.records.items():
        if record_kind != "train" and records:
            rows[_shown(record_kind)] = _evaluation(records[-1])
    return rows


def _checkpoint_rows(run: Path) -> dict[str, str]:
    """Returns which checkpoints there are."""
    paths = CheckpointPaths(run)
    rows = {}
    if steps := paths.steps():
        rows["checkpoints"] = f"{len(steps)}, up to step {steps[-1]:,}"
    for name in ("average", "best"):
        if steps := paths.steps(f"{name}.ckpt"):
            rows[f"{name} checkpoint"] = f"step {steps[-1]:,}"
    return rows


def _shown(evaluation: str) -> str:
    """Returns the heading of evaluations such as "dev_average"."""
    return "dev, newest" if evaluation == "dev" else evaluation.replace("_", ", ")


def _evaluation(record: Record) -> str:
    """Returns the step and the metrics of an evaluation."""
    metrics = {
        name: value for name, value in record.items() if isinstance(value, float)
    }
    return ", ".join([f"step {record['step']:,}", *shown_metrics(metrics)])


def export_rows(path: Path) -> dict[str, str]:
    """Returns what an export is, from its settings.

    Args:
        path: the directory of the export.

    Raises:
        UserError: its settings are damaged.
    """
    rows = {"format": format_of(path), "bytes": f"{size_of(path):,}"}
    settings = _settings(path)
    if settings is None:  # another program wrote it
        return rows
    rows["problem"] = settings.problem
    if settings.languages:
        rows["languages"] = " → ".join(settings.languages)
    rows |= origin_rows(settings.origin)
    base = vars(HParams())
    changes = {}
    for name, value in settings.hparams.items():
        if value != base.get(name):
            changes[name] = value
    rows["hparams"] = flag_text(changes)
    for name in ("beam_size", "alpha", "length_penalty"):
        if name in settings.decoding:
            rows[name] = str(settings.decoding[name])
    if settings.quantization:
        rows["weights"] = settings.quantization
    if settings.verified:
        rows["verified"] = (
            f"{settings.identical} of {settings.verified} outputs equal the run's"
        )
    rows["written by"] = f"t2t_keras {settings.version}"
    return {name: value for name, value in rows.items() if value}


def _settings(path: Path) -> ExportSettings | None:
    """Returns the settings that all formats have; None: an export has none."""
    file = path / SETTINGS
    fields = read_json(file, "export the model again")
    if fields is None:
        return None
    names = {field.name for field in dataclasses.fields(ExportSettings)}
    common = {name: value for name, value in fields.items() if name in names}
    return from_fields(ExportSettings, common, file)


_PAPER_VOCAB_SIZE = 37_000  # for en-de

# By `bucketing`.
_BATCHES = {
    "auto": "packed rows on GPUs, pairs of similar length on CPUs",
    "exact": "pairs of similar length",
    "t2t": "pairs of similar length, by tensor2tensor's buckets",
    "static": "pairs of similar length, in at most twelve shapes",
    "packed": "packed rows, in one shape",
}


_DATA = FlagGroup("data")
_MACHINE = FlagGroup("the machine; by default the paper's", is_further=True)
_LAYERS = FlagGroup("the other layers of Table 1", is_further=True)


@dataclasses.dataclass(kw_only=True)
class Describe(UsrDirFlags, Command):
    """Describes a set, a run or an export."""

    summary = "describe a set, a run or an export: its size and its cost"
    heading = "data and training"

    hparams_set: str = option(
        REQUIRED,
        "a name of `t2t list`, or the directory of a run or an export",
        metavar="SET",
        positional=True,
        aliases=("--model",),
    )
    hparams: str = hparams_flag()
    data_dir: str | None = option(
        None,
        "a data directory: describe its training data, and a model for its "
        "vocabularies",
        metavar="DIR",
        group=_DATA,
    )
    problem: str | None = option(
        None,
        "the problem of --data_dir (default: the only problem with data there)",
        metavar="NAME",
        group=_DATA,
    )
    vocab_size: int | None = option(
        None,
        "tokens in the vocabulary (default: as in the data, or 37000 as in the paper "
        "for en-de)",
        ge=1,
    )
    target_vocab_size: int | None = option(
        None,
        "tokens in the target vocabulary, if source and target do not share one",
        ge=1,
    )
    length: int = option(32, "length of the source and of the target", ge=1)
    gpus: int = option(8, "GPUs that share a batch", ge=1, group=_MACHINE)
    hours: float | None = option(
        None, "hours of training, for training_cost", gt=0, group=_MACHINE
    )
    tflops: float = option(
        9.5,
        "10^12 FLOPs a second that a GPU sustains (default: 9.5, a P100)",
        gt=0,
        group=_MACHINE,
    )
    kernel: int = option(3, "width of a convolution", ge=2, group=_LAYERS)
    window: int | None = option(
        None,
        "window of restricted self-attention (default: the hparam set's "
        "attention_window, or 16)",
        ge=1,
        group=_LAYERS,
    )

    def check(self) -> None:
        """Refuses flags without an effect, and a directory that cannot be described."""
        directory = self._directory()
        if directory and format_of(directory):
            self.require_only({"hparams_set", "usr_dir", "json"}, "an export")
        elif directory:
            if self.data_dir:
                raise UserError(
                    f"{directory} has its own data; --data_dir is for a set"
                )
            require_run(directory)
        if self.problem and not self.data_dir:
            raise UserError("--problem needs --data_dir")

    def _directory(self) -> Path | None:
        """Returns the directory of a run or an export; None: it is a set.

        Raises:
            UserError: it is a data directory.
        """
        path = Path(self.hparams_set)
        if not path.is_dir():
            return None
        with contextlib.suppress(UserError):
            registry.hparams(self.hparams_set)
            return None  # the directory only has the name of a set
        if any(path.glob("*.manifest.json")):
            raise UserError(f"{path} is a data directory; give SET --data_dir {path}")
        return path

    def run(self) -> CommandResult:
        """Returns the rows of an export, or sizes and costs of a model."""
        directory = self._directory()
        if directory and format_of(directory):
            return {"export": export_rows(directory)}
        subject = self._subject(directory)
        hparams = subject.hparams
        if hparams.model not in KNOWN_MODELS:
            raise UserError(
                f"{self.hparams_set} has the model {hparams.model}, but `t2t describe` "
                f"supports only {' and '.join(KNOWN_MODELS)}; `t2t train` prints the "
                "number of parameters of any model"
            )
        source_size, target_size = subject.vocabulary_sizes()
        source_size = self.vocab_size or source_size
        target_size = self.target_vocab_size or target_size
        return {
            **self._costs(hparams, source_size, target_size),
            "assumed_vocab_size": not (self.vocab_size or subject.vocabulary_dir),
            "data": _describe_data(subject.config) if subject.config else None,
            "run": subject.run,
        }

    def _subject(self, directory: Path | None) -> "_Subject":
        """Returns what is described, a run or a set."""
        if directory:
            facts = read_run(directory)
            hparams = facts.hparams.parse(self.hparams)
            return _Subject(hparams, facts.config, facts.path, run_rows(facts))
        hparams = registry.hparams(self.hparams_set).parse(self.hparams)
        for remark in hparams_remarks(self.hparams_set, split_pairs(self.hparams)):
            say(remark)
        if not self.data_dir:
            return _Subject(hparams)
        path = Path(self.data_dir)
        problem = registry.problem(self.problem or _only_problem(path))
        return _Subject(hparams, config_for(problem, self.hparams_set, path, 0), path)

    def _costs(
        self, hparams: HParams, source_size: int, target_size: int | None
    ) -> dict[str, Any]:
        """Returns the sizes and costs of a model with its vocabularies."""
        output_size = target_size or source_size
        parameters = count_parameters(hparams, source_size, target_size)
        flops = flops_per_token(hparams, output_size, self.length)
        tokens = hparams.batch_tokens * hparams.train_steps
        cost = None
        if self.hours:
            cost = training_cost(self.hours, self.gpus, self.tflops)
        window = self.window or hparams.attention_window or 16
        layers = layer_complexities(self.length, hparams.d_model, self.kernel, window)
        return {
            "parameters": parameters,
            "flops_per_token": flops,
            "training_flops": flops["training"] * tokens,
            "bucketing": hparams.bucketing,
            "training_cost": cost,
            "memory": memory_per_batch(
                hparams, parameters["total"], output_size, self.length, self.gpus
            ),
            "layers": {name: layer._asdict() for name, layer in layers.items()},
            "vocab_sizes": {"source": source_size, "target": output_size},
        }

    def show(self, result: CommandResult) -> str:
        """Formats the result in sections."""
        if "export" in result:
            return table(result["export"])
        training = [
            "Training",
            f"  {shown_flops(result['training_flops'])} in all steps with full batches",
            f"  batches of {_BATCHES[result['bucketing']]} (bucketing)",
        ]
        if cost := result["training_cost"]:
            training.append(f"  {shown_flops(cost)} by hours x GPUs x sustained rate")
        sizes = result["vocab_sizes"]
        vocabulary = f"Vocabulary of {sizes['target']:,} tokens"
        if sizes["source"] != sizes["target"]:
            vocabulary = (
                f"Vocabularies of {sizes['source']:,} and {sizes['target']:,} tokens"
            )
        if result["assumed_vocab_size"]:
            vocabulary += ", as in the paper: assumed (--vocab_size, --data_dir)"
        parts = [table(result["run"])] if result["run"] else []
        parts += [
            vocabulary,
            _show_counts("Parameters", result["parameters"]),
            _show_counts(
                "FLOPs for a source and a target token", result["flops_per_token"]
            ),
            "\n".join(training),
            _show_counts("Bytes on each GPU for a full batch", result["memory"]),
            _show_layers(result["layers"]),
        ]
        if result["data"]:
            parts.append(_show_data(result["data"]))
        return "\n\n".join(parts)

    def next_command(self) -> str:
        """Returns the command that uses what is described."""
        directory = self._directory()
        if not directory:
            return (
                f"t2t train --problem NAME --hparams_set {self.hparams_set} "
                "--data_dir DIR --output_dir RUN"
            )
        next_name = "translate" if format_of(directory) else "page"
        return f"t2t {next_name} {quoted(directory)}"


class _Subject(NamedTuple):
    """The model and data to describe; without data only the hparams are set.

    Attributes:
        hparams: the model's hyper-parameters.
        config: the configuration of a run, or of a new run on the data.
        vocabulary_dir: the directory with the vocabularies.
        run: the rows of a run.
    """

    hparams: HParams
    config: RunConfig | None = None
    vocabulary_dir: Path | None = None
    run: dict[str, str] | None = None

    def vocabulary_sizes(self) -> tuple[int, int | None]:
        """Returns the sizes for source and target; None: they share a vocabulary."""
        if self.config is None or self.vocabulary_dir is None:
            return _PAPER_VOCAB_SIZE, None
        tokenizers = self.config.tokenizers(self.vocabulary_dir)
        return self.config.sizes_of(tokenizers)


def _only_problem(data_dir: Path) -> str:
    """Returns the name of the only problem with data in a directory.

    Raises:
        UserError: no problem or several problems have data there.
    """
    suffix = ".manifest.json"
    names = [file.name.removesuffix(suffix) for file in data_dir.glob(f"*{suffix}")]
    if len(names) != 1:
        raise UserError(
            f"--data_dir: {data_dir} has the data of {len(names)} problems; give "
            "--problem, and a directory that `t2t datagen` has written"
        )
    return names[0]


def _describe_data(config: RunConfig) -> dict[str, Any]:
    """Returns facts about the training data.

    Returns:
        "examples" and their mean lengths "source_tokens" and "target_tokens", unless
        the data directory is missing; "single_sentences", the share of sources that
        are one sentence, or None; and "split_sentences", whether inputs of several
        sentences are split by default.
    """
    problem = config.registered_problem()
    data: dict[str, Any] = {}
    manifest = config.manifest()
    if manifest is not None and manifest.examples.get("train"):
        count = manifest.examples["train"]
        tokens = manifest.tokens["train"]
        source = tokens["source"]
        target = tokens["target"]
        if problem.reverse:
            source, target = target, source
        data["examples"] = count
        data["source_tokens"] = round(source / count, 2)
        data["target_tokens"] = round(target / count, 2)
    data["single_sentences"] = config.single_sentences
    data["split_sentences"] = bool(problem.split_sentences)
    return data


def _show_data(data: dict[str, Any]) -> str:
    lines = ["Training data"]
    if "examples" in data:
        lines.append(
            f"  {data['examples']:,} examples with on average {data['source_tokens']} "
            f"source and {data['target_tokens']} target tokens"
        )
    share = data["single_sentences"]
    formatted = "an unknown share" if share is None else f"{share:.1%}"
    lines.append(f"  {formatted} of the sources are single sentences")
    verb = "are" if data["split_sentences"] else "are not"
    lines.append(f"  inputs of several sentences {verb} split (split_sentences)")
    return "\n".join(lines)


def _show_counts(title: str, counts: dict[str, int]) -> str:
    lines = [title]
    for name, count in counts.items():
        if count:
            lines.append(f"  {name:<24}{count:>16,}")
    return "\n".join(lines)


def _show_layers(rows: dict[str, dict[str, int]]) -> str:
    header = "".join(f"{name:>16}" for name in Complexity._fields)
    lines = [f"{'One layer, one sentence':<29}{header}"]
    for name, row in rows.items():
        cells = "".join(f"{value:>16,}" for value in row.values())
        lines.append(f"  {name:<27}{cells}")
    return "\n".join(lines)


COMMAND = Describe

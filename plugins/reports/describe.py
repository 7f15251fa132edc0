"""`t2t describe`: a model's size and cost, and what a run or an export is."""

import argparse
import contextlib
import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

from t2t_keras import registry
from t2t_keras.cli.command import (
    Command,
    add_further,
    add_hparams,
    add_usr_dir,
    at_least_two,
    positive,
    positive_number,
    quoted,
    require_only,
)
from t2t_keras.cli.program import flag_text
from t2t_keras.console import say, table
from t2t_keras.entry_points import hparams_remarks
from t2t_keras.errors import UserError
from t2t_keras.export.directory import size_of
from t2t_keras.export.formats import format_of
from t2t_keras.export.settings import SETTINGS, ExportSettings
from t2t_keras.files.json_files import from_fields, read_json
from t2t_keras.hparam import HParams
from t2t_keras.metrics import shown_metrics
from t2t_keras.options import split_pairs
from t2t_keras.run.config import CheckpointPaths, RunConfig, config_for, require_run

from .costs import (
    KNOWN_MODELS,
    Complexity,
    count_parameters,
    flops_per_token,
    layer_complexities,
    memory_per_batch,
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
            f"{settings.identical} of {settings.verified} outputs are those of the run"
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


# By `bucketing`.
_BATCHES = {
    "auto": "packed rows on GPUs, pairs of similar length on CPUs",
    "exact": "pairs of similar length",
    "t2t": "pairs of similar length, by tensor2tensor's buckets",
    "static": "pairs of similar length, in at most twelve shapes",
    "packed": "packed rows, in one shape",
}


def _describe_flags(parser: argparse.ArgumentParser) -> None:
    help = "a name of `t2t list`, or the directory of a run or an export"
    add_hparams(parser, default="that of --model", positional=help)
    add_usr_dir(parser)
    _add_data_flags(parser.add_argument_group("a run, or data"))
    _add_size_flags(parser)
    _add_machine_flags(add_further(parser, "the machine; by default the paper's"))
    _add_layer_flags(add_further(parser, "the other layers of Table 1"))


def _add_data_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--model",
        "--output_dir",
        dest="output_dir",
        metavar="RUN",
        help="the same as a directory in the place of SET: describe a run's training, "
        "data and model, or the settings of an export",
    )
    group.add_argument(
        "--data_dir",
        help="a data directory: describe its training data, and a model for its "
        "vocabularies",
    )
    group.add_argument(
        "--problem",
        help="the problem of --data_dir (default: the only problem with data there)",
    )


def _add_size_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--vocab_size",
        type=positive,
        help="tokens in the vocabulary (default: that of the data, or 37000 as in the "
        "paper for en-de)",
    )
    parser.add_argument(
        "--target_vocab_size",
        type=positive,
        metavar="N",
        help="tokens in the target vocabulary, if source and target do not share one",
    )
    parser.add_argument(
        "--length",
        type=positive,
        default=32,
        help="length of the source and of the target (default: 32)",
    )


def _add_machine_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--gpus",
        type=positive,
        default=8,
        help="GPUs that share a batch (default: 8)",
    )
    group.add_argument(
        "--hours",
        type=positive_number,
        help="hours of training, for training_cost",
    )
    group.add_argument(
        "--tflops",
        type=positive_number,
        default=9.5,
        help="10^12 FLOPs a second that a GPU sustains (default: 9.5, a P100)",
    )


def _add_layer_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--kernel",
        type=at_least_two,
        default=3,
        help="width of a convolution (default: 3)",
    )
    group.add_argument(
        "--window",
        type=positive,
        help="window of restricted self-attention (default: the hparam set's "
        "attention_window, or 16)",
    )


def _check_describe(args: argparse.Namespace) -> None:
    directory = _directory(args)
    if directory and format_of(Path(directory)):
        flags = ("--model", "--output_dir", "--hparams_set", "--usr_dir", "--json")
        require_only(args, flags, "an export")
        return
    if directory and args.data_dir:
        raise UserError("--model has its own data; leave out --data_dir")
    if args.output_dir and args.hparams_set:
        raise UserError("--model has its own hparams; leave out --hparams_set")
    if directory:
        require_run(directory)
    elif not args.hparams_set:
        raise UserError(
            "--hparams_set is missing; `t2t list` prints the names (or give the "
            "--output_dir of a run)"
        )
    if args.problem and not args.data_dir:
        raise UserError("--problem needs --data_dir")


def _directory(args: argparse.Namespace) -> str | None:
    """Returns the directory of `--model` or in the place of SET; None: it is a set.

    Raises:
        UserError: it is a data directory.
    """
    name = args.hparams_set
    if args.output_dir or not name or not Path(name).is_dir():
        return args.output_dir
    with contextlib.suppress(UserError):
        registry.hparams(name)
        return None  # the directory only has the name of a set
    if any(Path(name).glob("*.manifest.json")):
        raise UserError(f"{name} is a data directory; give SET --data_dir {name}")
    return name


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


def _read_subject(args: argparse.Namespace) -> _Subject:
    if directory := _directory(args):
        facts = read_run(Path(directory))
        hparams = facts.hparams.parse(args.hparams)
        return _Subject(hparams, facts.config, facts.path, run_rows(facts))
    hparams = registry.hparams(args.hparams_set).parse(args.hparams)
    for remark in hparams_remarks(args.hparams_set, split_pairs(args.hparams)):
        say(remark)
    if not args.data_dir:
        return _Subject(hparams)
    path = Path(args.data_dir)
    problem = registry.problem(args.problem or _only_problem(path))
    config = config_for(problem, args.hparams_set, path, 0)
    return _Subject(hparams, config, path)


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


def _describe(args: argparse.Namespace) -> dict[str, Any]:
    directory = _directory(args)
    if directory and format_of(Path(directory)):
        return {"export": export_rows(Path(directory))}
    subject = _read_subject(args)
    hparams = subject.hparams
    if hparams.model not in KNOWN_MODELS:
        raise UserError(
            f"{args.hparams_set or args.output_dir} has the model {hparams.model}, but "
            f"`t2t describe` supports only {' and '.join(KNOWN_MODELS)}; "
            "`t2t train` prints the number of parameters of any model"
        )
    source_size, target_size = _vocabulary_sizes(args, subject)
    output_size = target_size or source_size
    parameters = count_parameters(hparams, source_size, target_size)
    total = parameters["total"]
    flops = flops_per_token(hparams, output_size, args.length)
    tokens = hparams.batch_tokens * hparams.train_steps
    result: dict[str, Any] = {
        "parameters": parameters,
        "flops_per_token": flops,
        "training_flops": flops["training"] * tokens,
        "bucketing": hparams.bucketing,
        "training_cost": None,
        "memory": memory_per_batch(hparams, total, output_size, args.length, args.gpus),
    }
    if args.hours:
        result["training_cost"] = training_cost(args.hours, args.gpus, args.tflops)
    window = args.window or hparams.attention_window or 16
    layers = layer_complexities(args.length, hparams.d_model, args.kernel, window)
    result["layers"] = {name: layer._asdict() for name, layer in layers.items()}
    result["vocab_sizes"] = {"source": source_size, "target": output_size}
    result["assumed_vocab_size"] = not (args.vocab_size or subject.vocabulary_dir)
    result["data"] = _describe_data(subject.config) if subject.config else None
    result["run"] = subject.run
    return result


def _vocabulary_sizes(
    args: argparse.Namespace, subject: _Subject
) -> tuple[int, int | None]:
    """Returns the sizes of the source and target vocabularies; None: it is shared."""
    source_size = 37_000
    target_size = None
    if subject.config is not None and subject.vocabulary_dir is not None:
        tokenizers = subject.config.tokenizers(subject.vocabulary_dir)
        source_size, target_size = subject.config.sizes_of(tokenizers)
    return args.vocab_size or source_size, args.target_vocab_size or target_size


def _show_describe(result: dict[str, Any]) -> str:
    if "export" in result:
        return table(result["export"])
    training = [
        "Training",
        f"  {result['training_flops']:.2g} FLOPs in all steps with full batches",
        f"  batches of {_BATCHES[result['bucketing']]} (bucketing)",
    ]
    if result["training_cost"]:
        training.append(
            f"  {result['training_cost']:.2g} FLOPs by hours x GPUs x sustained rate"
        )
    sizes = result["vocab_sizes"]
    vocabulary = f"Vocabulary of {sizes['target']:,} tokens"
    if sizes["source"] != sizes["target"]:
        vocabulary = (
            f"Vocabularies of {sizes['source']:,} and {sizes['target']:,} tokens"
        )
    if result["assumed_vocab_size"]:
        vocabulary += ", as in the paper: assumed (--vocab_size, --data_dir)"
    parts = [
        vocabulary,
        _show_counts("Parameters", result["parameters"]),
        _show_counts(
            "FLOPs for a source and a target token", result["flops_per_token"]
        ),
        "\n".join(training),
        _show_counts("Bytes on each GPU for a full batch", result["memory"]),
    ]
    parts.append(_show_layers(result["layers"]))
    if result["data"]:
        parts.append(_show_data(result["data"]))
    if result["run"]:
        parts.insert(0, table(result["run"]))
    return "\n\n".join(parts)


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


def _next_command(args: argparse.Namespace) -> str:
    directory = _directory(args)
    if not directory:
        return (
            f"t2t train --problem NAME --hparams_set {args.hparams_set} "
            "--data_dir DIR --output_dir RUN"
        )
    next_name = "translate" if format_of(Path(directory)) else "page"
    return f"t2t {next_name} {quoted(directory)}"


COMMAND = Command(
    "describe a set, a run or an export: its size and its cost",
    _describe_flags,
    _describe,
    _show_describe,
    check=_check_describe,
    next_command=_next_command,
    group="data and training",
)

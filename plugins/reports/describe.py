"""The command that computes a model's size and cost without training: `describe`."""

import argparse
from pathlib import Path
from typing import Any

from t2t_keras import registry
from t2t_keras.cli.command import (
    Command,
    add_hparams,
    add_usr_dir,
    at_least_two,
    positive,
    positive_number,
)
from t2t_keras.data.files import say
from t2t_keras.data.manifest import Manifest
from t2t_keras.entry_points import hparams_remarks
from t2t_keras.errors import UserError
from t2t_keras.hparam import HParams
from t2t_keras.options import split_pairs
from t2t_keras.run.config import RunConfig, config_for, require_run

from .complexity import Complexity, layer_complexities
from .model_cost import (
    count_parameters,
    flops_per_token,
    memory_per_batch,
    training_cost,
)
from .step_time import CARDS, step_time


def _describe_flags(parser: argparse.ArgumentParser) -> None:
    add_hparams(parser, default="that of --output_dir")
    add_usr_dir(parser)
    of_data = parser.add_argument_group("a run, or data")
    of_data.add_argument(
        "--output_dir",
        help="a run directory: describe its model and its data",
    )
    of_data.add_argument(
        "--data_dir",
        help="a data directory: describe its training data, and a model for its "
        "vocabularies",
    )
    of_data.add_argument(
        "--problem",
        help="the problem of --data_dir (default: the only one with data there)",
    )
    parser.add_argument(
        "--vocab_size",
        type=positive,
        help="tokens in the vocabulary (default: as the data have, or 37000, as the "
        "paper's en-de)",
    )
    parser.add_argument(
        "--target_vocab_size",
        type=positive,
        metavar="N",
        help="tokens in the target's vocabulary, if the two sides do not share one",
    )
    parser.add_argument(
        "--length",
        type=positive,
        default=32,
        help="length of the source and of the target (default: 32)",
    )
    machine = parser.add_argument_group("the machine; the paper's is the default")
    machine.add_argument(
        "--gpus",
        type=positive,
        default=8,
        help="GPUs that share a batch (default: 8)",
    )
    machine.add_argument(
        "--hours",
        type=positive_number,
        help="hours of training, for training_cost",
    )
    machine.add_argument(
        "--tflops",
        type=positive_number,
        default=9.5,
        help="10^12 FLOPs a second that a GPU sustains (default: 9.5, a P100)",
    )
    machine.add_argument(
        "--card",
        choices=CARDS,
        help="estimate the least time of a step on --gpus of these, from their "
        "published rates",
    )
    others = parser.add_argument_group("the other layers of Table 1")
    others.add_argument(
        "--kernel",
        type=at_least_two,
        default=3,
        help="width of a convolution (default: 3)",
    )
    others.add_argument(
        "--window",
        type=positive,
        help="window of restricted self-attention (default: the hparam set's "
        "attention_window, or 16)",
    )


def _check_describe(args: argparse.Namespace) -> None:
    if args.output_dir and args.data_dir:
        raise UserError("--output_dir has its own data; leave out --data_dir")
    if args.output_dir and args.hparams_set:
        raise UserError("--output_dir has its own hparams; leave out --hparams_set")
    if args.output_dir:
        require_run(args.output_dir)
    elif not args.hparams_set:
        raise UserError(
            "--hparams_set is missing; `t2t list` prints the names (or give the "
            "--output_dir of a run)"
        )
    if args.problem and not args.data_dir:
        raise UserError("--problem needs --data_dir")


def _given(args: argparse.Namespace) -> tuple[RunConfig | None, HParams, Path | None]:
    """Returns the settings of a run or of one on the data, and where its files are."""
    if args.output_dir:
        run = Path(args.output_dir)
        config = RunConfig.read(run)
        hparams = config.read_hparams(run / "hparams.json")
        return config, hparams.parse(args.hparams), run
    hparams = registry.hparams(args.hparams_set).parse(args.hparams)
    for remark in hparams_remarks(args.hparams_set, split_pairs(args.hparams)):
        say(remark)
    if not args.data_dir:
        return None, hparams, None
    path = Path(args.data_dir)
    name = args.problem
    if name is None:
        suffix = ".manifest.json"
        names = [file.name.removesuffix(suffix) for file in path.glob(f"*{suffix}")]
        if len(names) != 1:
            raise UserError(
                f"--data_dir: {path} has the data of {len(names)} problems; give "
                "--problem, and a directory that `t2t datagen` has written"
            )
        (name,) = names
    problem = registry.problem(name)
    return config_for(problem, args.hparams_set, path, 0), hparams, path


def _data(config: RunConfig) -> dict[str, Any]:
    """Returns what is known of the training data.

    Returns:
        "examples" and their mean numbers of tokens, "source_tokens" and
        "target_tokens", unless the data directory is absent; "single_sentences", the
        share of the sources that are one sentence, or None; and "split_sentences",
        whether inputs of several sentences are split by default.
    """
    problem = config.registered_problem()
    data: dict[str, Any] = {}
    manifest = Manifest.load(Manifest.path(Path(config.data_dir), problem.data_name))
    if manifest is not None and manifest.examples.get("train"):
        count = manifest.examples["train"]
        sides = ["source", "target"]
        read = sides[::-1] if problem.reverse else sides
        data["examples"] = count
        for side, of_data in zip(sides, read, strict=True):
            tokens = manifest.tokens["train"][of_data]
            data[f"{side}_tokens"] = round(tokens / count, 2)
    data["single_sentences"] = config.single_sentences
    data["split_sentences"] = bool(problem.split_sentences)
    return data


def _describe(args: argparse.Namespace) -> dict[str, Any]:
    config, hparams, files = _given(args)
    if hparams.model not in ("transformer", "extended_transformer"):
        raise UserError(
            f"{args.hparams_set or args.output_dir} has the model {hparams.model}, but "
            "`t2t describe` knows only transformer and extended_transformer; "
            "`t2t train` prints the number of parameters of any model"
        )
    size, other_size = 37_000, None
    if config is not None and files is not None:
        size, other_size = config.sizes_of(config.tokenizers(files))
    size = args.vocab_size or size
    other_size = args.target_vocab_size or other_size
    target_size = other_size or size
    parameters = count_parameters(hparams, size, other_size)
    flops = flops_per_token(hparams, target_size, args.length)
    tokens, hours = hparams.batch_tokens * hparams.train_steps, args.hours
    window = args.window or hparams.attention_window or 16
    card = CARDS[args.card] if args.card else None
    layers = layer_complexities(args.length, hparams.d_model, args.kernel, window)
    return {
        "parameters": parameters,
        "flops_per_token": flops,
        "training_flops": flops["training"] * tokens,
        "training_cost": hours and training_cost(hours, args.gpus, args.tflops),
        "memory": memory_per_batch(
            hparams, parameters["total"], target_size, args.length, args.gpus
        ),
        "step_time": card
        and step_time(
            hparams, parameters["total"], target_size, args.length, card, args.gpus
        ),
        "layers": {name: layer._asdict() for name, layer in layers.items()},
        "data": config and _data(config),
    }


def _show_describe(result: dict[str, Any]) -> str:
    cost = result["training_cost"]
    return "\n\n".join(
        [
            _numbers("Parameters", result["parameters"]),
            _numbers(
                "FLOPs for a source and a target token", result["flops_per_token"]
            ),
            "Training\n"
            f"  {result['training_flops']:.2g} FLOPs in all steps, batches full"
            + (f"\n  {cost:.2g} by hours x GPUs x sustained rate" if cost else ""),
            _numbers("Bytes on each GPU for a full batch", result["memory"]),
            *([_step_time(result["step_time"])] if result["step_time"] else []),
            _layers(result["layers"]),
            *([_show_data(result["data"])] if result["data"] else []),
        ]
    )


def _show_data(data: dict[str, Any]) -> str:
    lines = ["Training data"]
    if "examples" in data:
        lines.append(
            f"  {data['examples']:,} examples, on average of {data['source_tokens']} "
            f"source and {data['target_tokens']} target tokens"
        )
    share = data["single_sentences"]
    known = "an unknown share" if share is None else f"{share:.1%}"
    lines.append(f"  {known} of the sources are single sentences")
    does = "are" if data["split_sentences"] else "are not"
    lines.append(f"  inputs of several sentences {does} split (split_sentences)")
    return "\n".join(lines)


def _numbers(title: str, rows: dict[str, int]) -> str:
    lines = (f"  {name:<24}{value:>16,}" for name, value in rows.items() if value)
    return "\n".join([title, *lines])


def _step_time(parts: dict[str, float]) -> str:
    """Formats milliseconds, and tokens per second."""
    *seconds, (_, speed) = parts.items()
    lines = (f"  {name:<24}{1000 * value:>16.1f}" for name, value in seconds)
    title = "Milliseconds of a step at the card's full rates"
    return "\n".join([title, *lines, f"  at most {speed:,.0f} target tokens/s"])


def _layers(rows: dict[str, dict[str, int]]) -> str:
    """Formats the numbers under the column names of Table 1."""
    head = "".join(f"{name:>16}" for name in Complexity._fields)
    lines = (
        f"  {name:<27}" + "".join(f"{value:>16,}" for value in row.values())
        for name, row in rows.items()
    )
    return "\n".join([f"{'One layer, one sentence':<29}{head}", *lines])


COMMAND = Command(
    "compute a model's size and cost without building it",
    _describe_flags,
    _describe,
    _show_describe,
    check=_check_describe,
)

"""The verb that computes a model's size and cost without training: `describe`."""

import argparse
from typing import Any

from t2t_keras import registry
from t2t_keras.cli.verb import (
    Verb,
    add_hparams,
    add_usr_dir,
    at_least_two,
    positive,
    positive_number,
)
from t2t_keras.option import UserError

from .complexity import Complexity, layer_complexities
from .model_cost import (
    count_parameters,
    flops_per_token,
    memory_per_batch,
    training_cost,
)
from .step_time import CARDS, step_time


def _describe_flags(parser: argparse.ArgumentParser) -> None:
    add_hparams(parser)
    add_usr_dir(parser)
    parser.add_argument(
        "--vocab_size",
        type=positive,
        default=37_000,
        help="tokens in the vocabulary (default: 37000, as the paper's en-de)",
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


def _describe(args: argparse.Namespace) -> dict[str, Any]:
    hparams = registry.hparams(args.hparams_set).parse(args.hparams)
    if hparams.model not in ("transformer", "extended_transformer"):
        raise UserError(
            f"{args.hparams_set} has the model {hparams.model}, but `t2t describe` "
            "knows only transformer and extended_transformer; `t2t train` prints the "
            "number of parameters of any model"
        )
    target_size = args.target_vocab_size or args.vocab_size
    parameters = count_parameters(hparams, args.vocab_size, args.target_vocab_size)
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
        ]
    )


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


VERB = Verb(
    "compute a model's size and cost without building it",
    _describe_flags,
    _describe,
    _show_describe,
)

"""The verbs about weights: `train`, `average`, `export`."""

import argparse
import time
from pathlib import Path
from typing import Any

from t2t_keras import registry
from t2t_keras.cli.decoding import add_decoding_flags, decoding_options
from t2t_keras.cli.verb import (
    Verb,
    add_checkpoint,
    add_usr_dir,
    not_negative,
    positive,
    seed,
    table,
)


def _train_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--problem", required=True, help="a name of `t2t list`")
    parser.add_argument("--hparams_set", required=True, help="a name of `t2t list`")
    parser.add_argument(
        "--hparams",
        default="",
        metavar="K=V,K=V",
        help='changes to the set, such as "dropout=0.2,num_layers=4"',
    )
    parser.add_argument("--data_dir", required=True, help="what `t2t datagen` wrote")
    parser.add_argument(
        "--output_dir",
        required=True,
        help="the run directory: new, or one to go on with",
    )
    add_usr_dir(parser)
    parser.add_argument(
        "--train_steps", type=positive, help="in all (default: the hparam set's)"
    )
    parser.add_argument("--seed", type=seed, default=0)
    parser.add_argument(
        "--simulate_devices",
        type=not_negative,
        default=0,
        metavar="N",
        help="replicas to make on the CPU, for tests (default: every GPU is one)",
    )
    parser.add_argument(
        "--log_every", type=positive, metavar="STEPS", help="steps between log lines"
    )
    parser.add_argument(
        "--save_every", type=positive, metavar="STEPS", help="steps between checkpoints"
    )
    parser.add_argument("--keep", type=positive, help="how many checkpoints to keep")
    parser.add_argument(
        "--eval_every", type=positive, metavar="STEPS", help="steps between evaluations"
    )
    parser.add_argument(
        "--eval_sentences",
        type=not_negative,
        metavar="N",
        help="dev sentences to decode at each, for BLEU or F1; 0: only the loss",
    )


def _train(args: argparse.Namespace) -> dict[str, Any]:
    problem = registry.problem(args.problem)
    hparams = registry.hparams(args.hparams_set).parse(args.hparams)
    if args.train_steps:
        hparams = hparams.override(train_steps=args.train_steps)

    from t2t_keras.training.run_dir import RunDirectory, config_for
    from t2t_keras.training.strategy import make_strategy
    from t2t_keras.training.trainer import Trainer, TrainOptions

    names = ("log_every", "save_every", "keep", "eval_every", "eval_sentences")
    given = {name: getattr(args, name) for name in names}
    options = TrainOptions(**{k: v for k, v in given.items() if v is not None})
    config = config_for(
        problem, args.hparams_set, args.data_dir, args.seed, args.usr_dir
    )
    strategy = make_strategy(args.simulate_devices)
    run = RunDirectory.create(args.output_dir, config, hparams)
    figures = Trainer(run, strategy, options).train()
    names = ("step", "loss", "dev_loss", "dev_metrics", "target_tokens_per_s")
    return {name: figures.get(name) for name in names}


def _show_train(result: dict[str, Any]) -> str:
    metrics = result.pop("dev_metrics") or {}
    figures = result | {f"dev_{name}": value for name, value in metrics.items()}
    return table({name: value for name, value in figures.items() if value is not None})


def _average_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output_dir", required=True, help="a run directory")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--last", type=positive, metavar="N", help="the newest N checkpoints"
    )
    which.add_argument(
        "--minutes",
        type=float,
        metavar="M",
        help="the checkpoints of the last M minutes of training",
    )


def _average(args: argparse.Namespace) -> dict[str, Any]:
    from t2t_keras.training.average import average_run

    checkpoint = average_run(
        Path(args.output_dir), last=args.last, minutes=args.minutes
    )
    return {"checkpoint": str(checkpoint)}


def _export_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output_dir", required=True, help="a run directory")
    parser.add_argument("--export_dir", required=True, help="the new folder to write")
    parser.add_argument(
        "--format",
        choices=["savedmodel"],
        default="savedmodel",
        help="savedmodel: TensorFlow's, from strings to strings",
    )
    add_checkpoint(parser)
    add_usr_dir(parser)
    parser.add_argument(
        "--n_best", type=positive, metavar="N", help="outputs a sentence (default: 1)"
    )
    add_decoding_flags(parser)


def _export(args: argparse.Namespace) -> dict[str, Any]:
    from t2t_keras.serving.saved_model import export_saved_model
    from t2t_keras.training.run_dir import RunDirectory

    start = time.monotonic()
    translator = RunDirectory(args.output_dir).translator(args.checkpoint)
    size = export_saved_model(translator, args.export_dir, **decoding_options(args))
    return {
        "export_dir": args.export_dir,
        "bytes": size,
        "seconds": round(time.monotonic() - start, 2),
    }


VERBS = {
    "train": Verb(
        "train a model, or go on training it",
        _train_flags,
        _train,
        _show_train,
        uses_tensorflow=True,
    ),
    "average": Verb(
        "average the newest checkpoints of a run",
        _average_flags,
        _average,
        lambda result: result["checkpoint"],
        uses_tensorflow=True,
    ),
    "export": Verb(
        "write a trained model for serving: strings in, strings out",
        _export_flags,
        _export,
        table,
        uses_tensorflow=True,
    ),
}

"""The command that writes a model card from the files of a run: `card`."""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_keras import registry
from t2t_keras.cli.checks import require_outputs
from t2t_keras.cli.command import Command, add_run
from t2t_keras.data.files import write_lines
from t2t_keras.data.manifest import Manifest
from t2t_keras.errors import UserError

if TYPE_CHECKING:
    from t2t_keras.run.directory import RunDirectory


def model_card(run: "RunDirectory", checkpoint: str | None = None) -> str:
    """Returns the model card of a run in Markdown, with the header of model hubs.

    Args:
        run: the run directory.
        checkpoint: see `RunDirectory.restore`; None: the default one.

    Raises:
        UserError: there is no such checkpoint.
    """
    from t2t_keras.run.checkpoint import Checkpoint

    problem, config = run.problem, run.config
    path = run.checkpoints.find("latest" if checkpoint == "ema" else checkpoint)
    model = run.build_model()
    languages = problem.languages or ()
    head: dict[str, Any] = {
        "library_name": "t2t_keras",
        "tags": ["transformer", problem.name],
    }
    if languages:
        head["language"] = [*languages]
    manifest = _manifest(run)
    if manifest and manifest.license:
        head["license"] = manifest.license
    sizes = [str(tokenizer.vocab_size) for tokenizer in run.tokenizers]
    facts = {
        "problem": problem.name,
        "hparam set": config.hparams_set,
        "changed hyper-parameters": _changed(run),
        "parameters": f"{model.count_params():,}",
        "checkpoint": f"{path.name}, step {Checkpoint(path).step:,}",
        "vocabulary sizes": ", ".join(dict.fromkeys(sizes)),
        "initial weights": config.init_from,
        "seed": str(config.seed),
        "data": config.data_dir,
    }
    data = {}
    if manifest:
        data = {f"{k} examples": f"{n:,}" for k, n in manifest.examples.items()}
        for split, reasons in manifest.dropped.items():
            data |= {f"{split}, dropped: {k}": f"{n:,}" for k, n in reasons.items()}
    history = list(_lines(run.path / "history.jsonl"))
    training = list(filter(None, map(_training, history)))
    evaluations = list(filter(_is_evaluation, history))
    scores = [
        f"{line['split']}, {line['checkpoint']}, {line['sentences']} sentences: "
        f"{_numbers(line['metrics'])}{_difference(line, evaluations)}"
        for line in evaluations
    ]
    dev = [
        f"step {line['step']:,}: {_numbers(line)}"
        for line in _lines(run.path / "metrics.jsonl")
        if isinstance(line.get("step"), int) and line.get("kind", "train") != "train"
    ]
    decoding = {
        name: str(getattr(problem, name))
        for name in ("beam_size", "alpha", "extra_length")
    }
    return "\n\n".join(
        filter(
            None,
            [
                f"---\n{json.dumps(head, ensure_ascii=False)}\n---",
                f"# {problem.name}: {run.path.name}",
                problem.summary,
                _section("Model", _table(facts)),
                _section("Data", _table(data)),
                _section("Training", _list(training)),
                _section("Scores", _list(scores)),
                _section("Scores on dev during training", _list(dev[-3:])),
                _section("Decoding", _table(decoding)),
            ],
        )
    )


def _manifest(run: "RunDirectory") -> Manifest | None:
    """Returns the manifest of the run's data; None if the data are gone.

    Raises:
        UserError: it is damaged.
    """
    name = run.problem.data_name
    return Manifest.load(Manifest.path(Path(run.config.data_dir), name))


def _changed(run: "RunDirectory") -> str:
    """Returns the hyper-parameters that differ from the set's."""
    try:
        first = registry.hparams(run.config.hparams_set)
    except UserError:
        return ""
    changes = first.difference(run.hparams)
    return ", ".join(f"{name}={new}" for name, (_, new) in changes.items())


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the objects of a file of JSON lines; damaged lines are skipped."""
    text = path.read_text("utf-8", "replace") if path.exists() else ""
    for line in text.split("\n"):
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value


def _training(line: dict[str, Any]) -> str | None:
    """Returns the sentence about a training; None for another line of the history."""
    match line:
        case {
            "kind": "training",
            "first_step": int(first_step),
            "last_step": int(last_step),
            "minutes": int() | float() as minutes,
            "devices": devices,
            "date": date,
        }:
            return (
                f"steps {first_step:,} to {last_step:,} in {minutes:.0f} minutes on "
                f"{devices} ({date})"
            )
    return None


def _is_evaluation(line: dict[str, Any]) -> bool:
    """Returns whether a line of the history is about an evaluation."""
    names = {"split", "checkpoint", "sentences"}
    return (
        line.get("kind") == "evaluation"
        and line.keys() >= names
        and isinstance(line.get("metrics"), dict)
    )


def _difference(line: dict[str, Any], evaluations: list[dict[str, Any]]) -> str:
    """Returns an export's scores minus the run's latest on the same sentences."""
    if "export" not in line:
        return ""
    same = ("split", "data", "sentences", "decoding", "settings")
    runs = [
        other
        for other in evaluations
        if "step" in other and all(other.get(key) == line.get(key) for key in same)
    ]
    if not runs:
        return ""
    less = _less(line["metrics"], runs[-1]["metrics"])
    return f"; difference from {runs[-1]['checkpoint']}: {_numbers(less)}"


def _less(metrics: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Returns nested metrics minus others; only floats that both have are kept."""
    return {
        name: _less(value, others[name])
        if isinstance(value, Mapping)
        else value - others[name]
        for name, value in metrics.items()
        if isinstance(others.get(name), (Mapping, float)) and name != "signatures"
    }


def _numbers(metrics: Mapping[str, Any]) -> str:
    """Returns the numbers of nested metrics, and sacreBLEU's signature."""
    parts = []
    for name, value in metrics.items():
        if isinstance(value, Mapping) and name != "signatures":
            parts.append(_numbers(value))
        elif isinstance(value, float):
            parts.append(f"{name} {value:.4g}")
        elif name == "signature":
            parts.append(f"`{value}`")
    return ", ".join(parts)


def _section(title: str, body: str) -> str:
    return f"## {title}\n\n{body}" if body else ""


def _table(rows: Mapping[str, str | None]) -> str:
    lines = [
        f"| {name} | {str(value).replace('|', '&#124;')} |"
        for name, value in rows.items()
        if value
    ]
    return "\n".join(["| | |", "|---|---|", *lines]) if lines else ""


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _flags(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument(
        "--write", metavar="FILE", help="write the card here (default: print it)"
    )


def _card(args: argparse.Namespace) -> dict[str, Any]:
    from t2t_keras.run.directory import RunDirectory

    text = model_card(RunDirectory(args.output_dir), args.checkpoint)
    if args.write:
        write_lines(args.write, [text])
        print(f"{args.write}: written", file=sys.stderr)
    return {"card": text, "file": args.write}


COMMAND = Command(
    "write the model card of a run",
    _flags,
    _card,
    lambda result: "" if result["file"] else result["card"],
    uses_tensorflow=True,
    check=lambda args: require_outputs(
        args, {"write": [args.write] if args.write else []}
    ),
)

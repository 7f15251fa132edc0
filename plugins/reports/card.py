"""`t2t card`: a model card from the files of a run."""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_keras.cli.command import (
    CheckpointFlags,
    Command,
    CommandResult,
    RunFlags,
    export_command,
    quoted,
)
from t2t_keras.cli.config_file import flag_text
from t2t_keras.cli.lines import require_outputs
from t2t_keras.console import duration, say, short_number
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.errors import quantity
from t2t_keras.files.atomic import write_lines
from t2t_keras.metrics import LOSS_METRICS
from t2t_keras.options import option
from t2t_keras.pages import templates
from t2t_keras.problem import Problem
from t2t_keras.run.config import require_run
from t2t_keras.run.history import read_history, sessions

from .run_facts import decoded_part, metric_records, origin_rows, set_rows

if TYPE_CHECKING:
    from t2t_keras.data.manifest import Manifest
    from t2t_keras.run.directory import RunDirectory

# What is evaluated at the end of a training, besides the weights of the last step.
_DEV_LABELS = {
    "dev_best": "the best checkpoint",
    "dev_average": "the average of the last checkpoints",
    "dev_ema": "the moving average",
}
_DECODING = ("beam_size", "alpha", "length_penalty", "extra_length")
# How many evaluations during training a card has.
_EVALUATIONS = 3


def model_card(run: "RunDirectory", checkpoint: str | None = None) -> str:
    """Returns the model card of a run in Markdown, with a header for model hubs.

    Args:
        run: the run directory.
        checkpoint: see `RunDirectory.restore`; None: the default.

    Raises:
        UserError: there is no such checkpoint.
    """
    path = run.checkpoint_path(checkpoint)
    manifest = run.config.manifest()
    history = read_history(run.path)
    problem = run.problem
    card = templates(Path(__file__).parent).get_template("card.md")
    hub_header = _hub_header(problem, manifest, run.config.origin)
    text = card.render(
        header=json.dumps(hub_header, ensure_ascii=False),
        origin=origin_rows(run.config.origin).get("origin"),
        problem=problem.name,
        name=run.path.resolve().name,
        **_usage(run.path, checkpoint),
        model=_model_rows(run, path, manifest),
        data=_data_rows(manifest),
        sessions=_session_sentences(history),
        scores=_score_sentences(history, problem),
        dev_scores=_dev_sentences(run, history),
        decoding={name: str(getattr(problem, name)) for name in _DECODING},
    )
    return text.rstrip("\n")


def _usage(path: Path, checkpoint: str | None) -> dict[str, str]:
    """Returns the words after `t2t translate`, and the arguments of `load`.

    They name the run by its path from the current folder, or by its name if it is
    elsewhere, because a card has no absolute paths.
    """
    folder = path.resolve()
    is_below = Path.cwd() in folder.parents
    shown = str(folder.relative_to(Path.cwd()) if is_below else folder.name)
    words = [shown, "--checkpoint", checkpoint] if checkpoint else [shown]
    arguments = [shown, checkpoint] if checkpoint else [shown]
    return {
        "run": " ".join(map(quoted, words)),
        "arguments": json.dumps(arguments, ensure_ascii=False)[1:-1],
    }


def _hub_header(
    problem: Problem, manifest: "Manifest | None", origin: Mapping[str, str]
) -> dict[str, Any]:
    header: dict[str, Any] = {
        "library_name": "t2t_keras",
        "tags": ["transformer", problem.name],
    }
    if languages := _languages(problem, manifest):
        header["language"] = [*languages]
    license_name = manifest.license if manifest else None
    if license_name := license_name or origin.get("license"):
        header["license"] = license_name
    if "repository" in origin:
        header["base_model"] = origin["repository"]
    return header


def _languages(problem: Problem, manifest: "Manifest | None") -> tuple[str, ...]:
    """Returns the languages of source and target; (): unknown.

    `RunDirectory.problem` has those of the run's data.
    """
    if not problem.languages and manifest and manifest.languages:
        languages = manifest.languages
        return languages[::-1] if problem.reverse else languages
    return tuple(problem.languages or ())


def _model_rows(
    run: "RunDirectory", checkpoint: Path, manifest: "Manifest | None"
) -> dict[str, str | None]:
    from t2t_keras.run.checkpoint import Checkpoint

    config = run.config
    sizes = [f"{tokenizer.vocab_size:,}" for tokenizer in run.tokenizers]
    return {
        "problem": f"{run.problem.name}: {run.problem.summary}",
        **set_rows(config, run.hparams),
        "parameters": f"{run.build_model().count_params():,}",
        "checkpoint": f"{checkpoint.name}, step {Checkpoint(checkpoint).step:,}",
        "vocabulary sizes": ", ".join(dict.fromkeys(sizes)),
        "initial weights": Path(config.init_from).name if config.init_from else None,
        "seed": str(config.seed),
        "data": Path(config.data_dir).name,
        "languages": " to ".join(_languages(run.problem, manifest)),
    }


def _data_rows(manifest: "Manifest | None") -> dict[str, str | None]:
    rows: dict[str, str | None] = {}
    if manifest:
        for split, count in manifest.examples.items():
            rows[f"{split} examples"] = f"{count:,}"
        for split, reasons in manifest.dropped.items():
            for reason, count in reasons.items():
                if count:
                    rows[f"{split}, dropped: {reason}"] = f"{count:,}"
    return rows


def _session_sentences(history: Iterable[dict[str, Any]]) -> list[str]:
    """Returns a sentence for each session of training in the history."""
    sentences = []
    for record in sessions(history):
        match record:
            case {
                "first_step": int(first_step),
                "last_step": int(last_step),
                "minutes": int() | float() as minutes,
                "devices": devices,
                "date": date,
            } if first_step < last_step:
                time = duration(60 * minutes)
                sentences.append(
                    f"steps {first_step:,} to {last_step:,} in {time} on {devices} "
                    f"({date})"
                )
    return sentences


def _score_sentences(
    history: Iterable[dict[str, Any]], problem: Problem
) -> Iterable[str]:
    """Returns a sentence for each evaluation in the history, once if it was repeated.

    It has the decoding options that are not the problem's.
    """
    evaluations = list(filter(_is_evaluation, history))
    defaults = DecodingOptions.of_problem(problem).recorded()
    sentences = []
    for record in evaluations:
        scores = dict(record["metrics"])
        losses = {name: scores.pop(name) for name in LOSS_METRICS if name in scores}
        text = f"{record['split']}, {Path(str(record['checkpoint'])).name}"
        if scores:
            if engine := record.get("engine"):
                text += f", decoded with {engine}"
            for name, value in record.get("decoding", {}).items():
                if value != defaults.get(name, value):
                    text += f", {name}={flag_text(value)}"
            text += f", {quantity(record['sentences'], 'sentences')}: "
            text += _format_metrics(scores) + _difference_from_run(record, evaluations)
        if losses:
            text += f"{';' if scores else ','} whole split: {_format_metrics(losses)}"
        sentences.append(text)
    return dict.fromkeys(sentences)


def _dev_sentences(run: "RunDirectory", history: Iterable[dict[str, Any]]) -> list[str]:
    """Returns a sentence for each of the last evaluations during training.

    The best checkpoint is not evaluated again: it has the metrics of its step.
    """
    records = metric_records(run.path)
    del records["train"]
    labels: dict[tuple[int, str], list[str]] = {}
    for label, evaluations in records.items():
        for record in evaluations[-_EVALUATIONS if label == "dev" else -1 :]:
            names = labels.setdefault((record["step"], _format_metrics(record)), [])
            if label != "dev":
                names.append(_DEV_LABELS.get(label, label))
    sentences = []
    decoded = decoded_part(run.config.manifest(), history)
    if labels and decoded:
        num_decoded = quantity(decoded, "sentences")
        sentences.append(f"scores are of the first {num_decoded}, nll of all")
    for (step, metrics), names in labels.items():
        shown = f" ({', '.join(names)})" if names else ""
        sentences.append(f"step {step:,}{shown}: {metrics}")
    return sentences


def _is_evaluation(record: dict[str, Any]) -> bool:
    names = {"split", "checkpoint", "sentences"}
    return (
        record.get("kind") == "evaluation"
        and record.keys() >= names
        and isinstance(record["sentences"], int)
        and isinstance(record.get("metrics"), dict)
    )


def _difference_from_run(
    record: dict[str, Any], evaluations: list[dict[str, Any]]
) -> str:
    """Returns how an export's scores differ from the run's latest ones.

    Only evaluations of the same sentences with the same decoding are compared.
    """
    if "export" not in record:
        return ""
    same_fields = ("split", "data", "sentences", "decoding", "settings")
    for evaluation in reversed(evaluations):
        if "step" in evaluation and all(
            evaluation.get(field) == record.get(field) for field in same_fields
        ):
            change = _subtract_metrics(record["metrics"], evaluation["metrics"])
            formatted = _format_metrics(change)
            return f"; difference from {evaluation['checkpoint']}: {formatted}"
    return ""


def _subtract_metrics(
    metrics: Mapping[str, Any], baseline: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns nested metrics minus the baseline's, for the floats that both have."""
    differences: dict[str, Any] = {}
    for name, value in metrics.items():
        baseline_value = baseline.get(name)
        if name == "signatures":
            continue
        if isinstance(value, Mapping) and isinstance(baseline_value, Mapping):
            differences[name] = _subtract_metrics(value, baseline_value)
        elif isinstance(baseline_value, float):
            differences[name] = value - baseline_value
    return differences


def _format_metrics(metrics: Mapping[str, Any]) -> str:
    """Formats the values of nested metrics, and sacreBLEU's signature."""
    parts = []
    for name, value in metrics.items():
        if isinstance(value, Mapping) and name != "signatures":
            parts.append(_format_metrics(value))
        elif isinstance(value, float):
            parts.append(f"{name} {short_number(value)}")
        elif name == "signature":
            parts.append(f"`{value}`")
    return ", ".join(parts)


@dataclasses.dataclass(kw_only=True)
class Card(CheckpointFlags, RunFlags, Command):
    """Writes the model card of a run."""

    summary = "write the model card of a run"
    heading = "judging a model"
    waiting = "writing the model card"
    words_hint = "name the file that is written: --output FILE"

    output: str | None = option(
        None, "write the card here (default: print it)", metavar="FILE"
    )

    def needs_tensorflow(self) -> bool:
        """Needs it to build the model, whose parameters are counted."""
        return True

    def check(self) -> None:
        """Refuses what is no run, and a file that cannot be written."""
        require_run(self.output_dir)
        require_outputs(self, {"output": [self.output] if self.output else []})

    def run(self) -> CommandResult:
        """Returns the card, and the file it is written to."""
        from t2t_keras.run.directory import RunDirectory

        text = model_card(RunDirectory(self.output_dir), self.checkpoint)
        if self.output:
            write_lines(self.output, [text])
            say(f"{self.output}: written")
        return {"card": text, "file": self.output}

    def show(self, result: CommandResult) -> str:
        """Returns the card, unless it is in a file."""
        return "" if result["file"] else str(result["card"])

    def next_command(self) -> str:
        """Returns the command that exports the model."""
        return export_command(self.output_dir, self.checkpoint)


COMMAND = Card

"""The evaluation of a run: a checkpoint or an export on a split of its data.

All checkpoints can be evaluated during training or afterwards, for which tensor2tensor
has three programs (`t2t-translate-all`, `t2t-bleu`, `t2t-eval`).
"""

import contextlib
import dataclasses
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Protocol

from t2t_keras.checking import Rule
from t2t_keras.console import progress, say
from t2t_keras.decoding.graph_engine import ModelTranslator
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.errors import UserError
from t2t_keras.evaluation.bleu import metrics_of
from t2t_keras.evaluation.evaluator import Evaluator, LoadedExport, SplitData
from t2t_keras.evaluation.tokenization import GUESSING_TEXTS
from t2t_keras.files.atomic import write_lines
from t2t_keras.files.json_files import from_fields, read_json, write_json
from t2t_keras.metrics import counts_line, evaluation_line
from t2t_keras.model.transformer import Transformer
from t2t_keras.problem import Problem, Split
from t2t_keras.run.checkpoint import Checkpoint
from t2t_keras.run.config import is_run
from t2t_keras.run.directory import RunDirectory
from t2t_keras.run.history import record_event

if TYPE_CHECKING:
    from tensorboard.summary.writer.event_file_writer import EventFileWriter


def open_split(
    run: RunDirectory,
    translator: ModelTranslator,
    split: Split,
    data_dir: str | Path | None = None,
) -> Evaluator:
    """Opens a split of a run's data; see `Evaluator`.

    Args:
        run: the run directory.
        translator: a translator with the run's model.
        split: the split.
        data_dir: the data directory; None: the one used in training.
    """
    data_dir = data_dir or run.config.data_dir
    return Evaluator(translator, split, data_dir, run.config.vocab_sha256)


def split_texts(
    run: RunDirectory, split: Split, data_dir: str | Path | None, sentences: int | None
) -> tuple[list[str], list[str]]:
    """Returns the first sources and references of a split, without the run's model.

    It takes the arguments of `evaluate`.
    """
    data_dir = data_dir or run.config.data_dir
    data = SplitData.open(run.problem, split, data_dir, run.config.vocab_sha256)
    _, sources, references = data.sentences(run.problem, run.tokenizers, sentences)
    return sources, references


def decoding_settings(options: DecodingOptions) -> dict[str, object]:
    """Returns the decoding options that change metrics, by name."""
    names = options.names("changes_metrics")
    return {name: getattr(options, name) for name in names}


class RecordedExport(LoadedExport, Protocol):
    """An export with the settings that `t2t export` recorded."""

    settings: Any


class _Subject(NamedTuple):
    """What is evaluated: a checkpoint or an export."""

    facts: dict[str, object]  # that the history of the run records
    translator: ModelTranslator
    options: DecodingOptions


def evaluate(
    run: RunDirectory,
    split: Split,
    problem: Problem,
    *,
    checkpoint: str | int | Path | None = None,
    export: tuple[str, RecordedExport] | None = None,
    engine: LoadedExport | None = None,
    data_dir: str | Path | None = None,
    sentences: int | None = None,
    write: str | Path | None = None,
    **options: Any,
) -> dict[str, object]:
    """Evaluates a checkpoint or an export on a split: all metrics, and the loss.

    Args:
        run: the run directory.
        split: the split of its data.
        problem: the run's problem, which may have other metrics.
        checkpoint: see `RunDirectory.restore`.
        export: an export of the run to evaluate instead of a checkpoint: its
            directory, and what `t2t_keras.load` returns for it. The loss is not
            computed.
        engine: an export of the checkpoint, of which the loss is computed, to decode
            with.
        data_dir: see `open_split`.
        sentences: number of sentences to decode; None: all; 0: only the loss.
        write: prefix of the files to which the decoded sentences are written:
            `{write}.source`, `.reference` and `.hypothesis`.
        **options: decoding options; the defaults are the problem's, or the export's.

    Returns:
        "sentences", the number of decoded ones, and "engine", the library that decoded
        them; what `Metrics.report` returns for them; "repaired" if the text processor
        repairs outputs; and, unless an export is evaluated, "nll", "perplexity" and
        "accuracy" on the whole split, and "loss_sentences", its size. The history of
        the run keeps the metrics.

    Raises:
        UserError: there is no such checkpoint, or there are no such data.
    """
    if export:
        subject = _export_subject(run, problem, *export, options)
        engine = export[1]
    else:
        subject = _checkpoint_subject(run, checkpoint, options)
    evaluator = open_split(run, subject.translator, split, data_dir)
    result: dict[str, object] = {}
    count = 0
    decoder: dict[str, object] = {}
    if sentences != 0:
        decoded = evaluator.decode(sentences, progress, engine, **options)
        decoder["engine"] = (engine or subject.translator).engine_name
        sources, references, outputs, repaired = decoded
        if write:
            write_lines(f"{write}.source", sources)
            write_lines(f"{write}.reference", references)
            write_lines(f"{write}.hypothesis", outputs)
        count = len(outputs)
        result |= metrics_of(problem).report(sources, outputs, references)
        result |= repaired
    if not export:
        result |= evaluator.loss(progress)
    record_event(
        run.path,
        "evaluation",
        **subject.facts,
        split=split,
        data=evaluator.data.fingerprint,
        sentences=count,
        **decoder,
        decoding=decoding_settings(subject.options),
        settings=metrics_of(problem, evaluator.references(GUESSING_TEXTS)).settings(),
        metrics=_without_lists(result),
    )
    counts = {"sentences": count}
    if not export:
        counts["loss_sentences"] = len(evaluator)
    return counts | decoder | result


def _export_subject(
    run: RunDirectory,
    problem: Problem,
    path: str,
    export: RecordedExport,
    options: dict[str, Any],
) -> _Subject:
    translator = ModelTranslator(problem, run.build_model(), *run.tokenizers)
    recorded = export.settings.decoding | options
    resolved = DecodingOptions.of_recorded(recorded, Path(path))
    return _Subject({"checkpoint": path, "export": True}, translator, resolved)


def _checkpoint_subject(
    run: RunDirectory, checkpoint: str | int | Path | None, options: dict[str, Any]
) -> _Subject:
    is_ema = checkpoint == "ema"
    # The path is resolved now, because a training may write other checkpoints and
    # delete this one in the meantime.
    path = run.checkpoint_path(checkpoint)
    is_of_run = path.parent.resolve() == run.path.resolve()
    name = path.name if is_of_run else str(path)
    facts: dict[str, object] = {"checkpoint": "ema" if is_ema else name}
    facts["step"] = Checkpoint(path).step
    translator = run.translator("ema" if is_ema else path)
    return _Subject(facts, translator, translator.choose(**options))


def _without_lists(report: Mapping[str, object]) -> dict[str, object]:
    """Returns a report without lists, such as those of sentences."""
    result: dict[str, object] = {}
    for name, value in report.items():
        if isinstance(value, Mapping):
            result[name] = _without_lists(value)
        elif not isinstance(value, list):
            result[name] = value
    return result


Point = dict[str, float]  # "step", and the metrics at that step

_POLL_SECONDS = 5.0
_HAS_STEP = Rule(
    lambda point: type(point.get("step")) is int, "an object with a number 'step'"
)


@dataclasses.dataclass(frozen=True)
class SavedCurve:
    """The content of `scores.json`, see `Curve`."""

    settings: dict[str, Any]
    checkpoints: list[Annotated[dict[str, Any], _HAS_STEP]]


class Curve:
    """The metrics on one split at every evaluated step of a run.

    They are kept in `RUN/evaluation-SPLIT`: in `scores.json`, from which a later
    evaluation continues, and in an event file for TensorBoard.

    Args:
        directory: that folder.
        split: its name begins the tags in TensorBoard, as in training.
        settings: everything that the metrics depend on except the weights.

    Raises:
        UserError: the folder has metrics that were computed with other settings.
    """

    def __init__(
        self,
        directory: Path,
        split: Split,
        settings: dict[str, object],
    ) -> None:
        self._path = directory / "scores.json"
        self._split = split
        # Tuples become lists, as in the file.
        settings = json.loads(json.dumps(settings))
        self._settings = settings
        fields = read_json(self._path)
        if fields is None:
            saved = SavedCurve(settings, [])
        else:
            saved = from_fields(SavedCurve, fields, self._path)
        changes = []
        for name, value in settings.items():
            old_value = saved.settings.get(name, value)
            if old_value != value:
                changes.append(f"{name} was {old_value}, is now {value}")
        if changes:
            raise UserError(
                f"{self._path} has metrics of other settings: {'; '.join(changes)}; "
                "give the same ones, or remove the folder to evaluate everything again"
            )
        self._points: dict[int, Point] = {}
        for point in saved.checkpoints:
            self._points[point["step"]] = point
        self._events: EventFileWriter | None = None

    def __contains__(self, step: int) -> bool:
        return step in self._points

    @property
    def points(self) -> list[Point]:
        """The points so far, in the order of the steps."""
        return [self._points[step] for step in sorted(self._points)]

    def add(self, step: int, metrics: dict[str, float], written: float) -> None:
        """Adds a point to both files.

        TensorBoard shows it at the time of the training: when the checkpoint was
        `written`, in seconds since 1970.
        """
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        # tf.summary can only record the present time.
        if self._events is None:
            self._events = EventFileWriter(str(self._path.parent))
        values = [
            Summary.Value(tag=f"{self._split}/{name}", simple_value=value)
            for name, value in metrics.items()
        ]
        summary = Summary(value=values)
        self._events.add_event(Event(wall_time=written, step=step, summary=summary))
        self._events.flush()
        self._points[step] = {"step": step, **metrics}
        saved = SavedCurve(self._settings, self.points)
        write_json(self._path, dataclasses.asdict(saved), with_checksum=True)

    def close(self) -> None:
        """Closes the event file."""
        if self._events is not None:
            self._events.close()


def await_run(path: str | Path, wait_minutes: float) -> RunDirectory:
    """Opens a run directory, and waits for it if its training has not begun.

    Raises:
        UserError: there is no run after `wait_minutes`.
    """
    deadline = time.monotonic() + 60 * wait_minutes
    while not is_run(path) and _pause(deadline):
        pass
    return RunDirectory(path)


def continuous_eval(
    run: RunDirectory,
    split: Split,
    problem: Problem,
    *,
    data_dir: str | Path | None = None,
    sentences: int | None = None,
    wait_minutes: float = 0.0,
    **options: Any,
) -> list[Point]:
    """Evaluates the checkpoints of a run that are not evaluated yet, oldest first.

    Then it waits for new checkpoints, until the run has reached its last step or
    `wait_minutes` have passed without one.

    Args:
        run: the run directory; another process may be training there.
        split: the split of its data.
        problem: the run's problem, which may have other metrics.
        data_dir: see `open_split`.
        sentences: number of sentences to decode at each checkpoint; None: all; 0: only
            the loss.
        wait_minutes: how long to wait for a checkpoint; 0: do not wait.
        **options: decoding options; the defaults are the problem's.

    Returns:
        "step" and what `Evaluator.metrics` returns, for each checkpoint ever evaluated.

    Raises:
        UserError: there is no checkpoint, or earlier metrics were computed with other
            settings.
    """
    model = run.build_model()
    translator = ModelTranslator(problem, model, *run.tokenizers)
    evaluator = open_split(run, translator, split, data_dir)
    decoding = decoding_settings(translator.choose(**options))
    settings = {
        **decoding,
        "data": evaluator.data.fingerprint[:12],
        "sentences": "all" if sentences is None else sentences,
        **metrics_of(problem, evaluator.references(GUESSING_TEXTS)).settings(),
    }
    curve = Curve(run.path / f"evaluation-{split}", split, settings)

    counts = counts_line(split, len(evaluator), sentences)
    with contextlib.closing(curve):
        deadline = time.monotonic() + 60 * wait_minutes
        while True:
            new_steps = [step for step in run.checkpoints.steps() if step not in curve]
            if new_steps and counts:
                say(counts)
                counts = ""
            for step in new_steps:
                written = _restore(run, model, step)
                if written is None:
                    path = run.checkpoints.path(step)
                    say(f"checkpoint {path} was deleted before it could be evaluated")
                    continue
                metrics = evaluator.metrics(sentences, progress, **options)
                curve.add(step, metrics, written)
                say(evaluation_line(step, split, metrics))
            if new_steps:
                deadline = time.monotonic() + 60 * wait_minutes
            last_step = RunDirectory(run.path).hparams.train_steps
            if last_step in curve or not _pause(deadline):
                break
    if not curve.points:
        raise UserError(f"{run.path} has no checkpoint")
    return curve.points


def _restore(run: RunDirectory, model: Transformer, step: int) -> float | None:
    """Restores a checkpoint; returns when it was written, None if it was deleted."""
    try:
        written = run.checkpoints.written(step)
        run.restore(model, step)
    except (UserError, OSError):
        if step in run.checkpoints.steps():
            raise
        return None
    return written


def _pause(deadline: float) -> bool:
    """Waits a few seconds and returns True; returns False after the deadline."""
    seconds = deadline - time.monotonic()
    if seconds > 0:
        time.sleep(min(_POLL_SECONDS, seconds))
    return seconds > 0

"""The evaluation of a run: a checkpoint or an export on a split of its data."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from t2t_keras.data.atomic_files import write_lines
from t2t_keras.data.manifest import Manifest
from t2t_keras.data.progress import progress
from t2t_keras.decoding.model_translator import ModelTranslator
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.evaluation.bleu import metrics_of
from t2t_keras.evaluation.evaluator import Evaluator, LoadedExport
from t2t_keras.evaluation.tokenization import GUESSING_TEXTS
from t2t_keras.problem import Problem, Split
from t2t_keras.run.checkpoint import Checkpoint
from t2t_keras.run.directory import RunDirectory
from t2t_keras.run.history import record_event


def open_split(
    run: RunDirectory,
    translator: ModelTranslator,
    split: Split,
    data_dir: str | Path | None = None,
) -> Evaluator:
    """Opens a split of a run's data; see `Evaluator.open`.

    Args:
        run: the run directory.
        translator: a translator with the run's model.
        split: the split.
        data_dir: the data directory; None: the one used in training.
    """
    data_dir = data_dir or run.config.data_dir
    return Evaluator.open(translator, split, data_dir, run.config.vocab_sha256)


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
    export: LoadedExport | None = None


def evaluate(
    run: RunDirectory,
    split: Split,
    problem: Problem | None = None,
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
        problem: the run's problem, which may have other metrics; None: the run's.
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
        "sentences", the number of decoded ones; what `Metrics.report` returns for them;
        "repaired" if the text processor repairs outputs; and, unless an export is
        evaluated, "loss", "perplexity" and "accuracy" on the whole split, and
        "loss_sentences", its size. The history of the run keeps the metrics.

    Raises:
        UserError: there is no such checkpoint, or there are no such data.
    """
    problem = problem or run.problem
    if export:
        subject = _export_subject(run, problem, *export, options)
    else:
        subject = _checkpoint_subject(run, checkpoint, options)
    evaluator = open_split(run, subject.translator, split, data_dir)
    result: dict[str, object] = {}
    count = 0
    if sentences != 0:
        decoded = evaluator.decode(
            sentences, progress, subject.export or engine, **options
        )
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
    manifest = Manifest.open(Path(data_dir or run.config.data_dir), problem.data_name)
    record_event(
        run.path,
        "evaluation",
        **subject.facts,
        split=split,
        data=manifest.fingerprints(split)[0],
        sentences=count,
        decoding=decoding_settings(subject.options),
        settings=metrics_of(problem, evaluator.references(GUESSING_TEXTS)).settings(),
        metrics=_without_lists(result),
    )
    counts = {"sentences": count}
    if not export:
        counts["loss_sentences"] = len(evaluator)
    return counts | result


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
    return _Subject({"checkpoint": path, "export": True}, translator, resolved, export)


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

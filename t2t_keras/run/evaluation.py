"""The evaluation of a run: a checkpoint or an export on a split of its data."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t2t_keras.data.atomic_files import write_lines
from t2t_keras.data.manifest import Manifest
from t2t_keras.data.progress import progress
from t2t_keras.decoding.model_translator import ModelTranslator
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.evaluation.bleu import metrics_of
from t2t_keras.evaluation.evaluator import Evaluator
from t2t_keras.evaluation.tokenization import GUESSING_TEXTS
from t2t_keras.problem import Problem, Split
from t2t_keras.run.checkpoint import Checkpoint
from t2t_keras.run.directory import RunDirectory


def open_split(
    run: RunDirectory,
    translator: ModelTranslator,
    split: Split,
    data_dir: str | Path | None = None,
) -> Evaluator:
    """Opens a split of a run's data.

    Args:
        run: the run directory.
        translator: a translator with the run's model.
        split: the split.
        data_dir: the data directory; None: the one used in training.

    Raises:
        UserError: see `Evaluator.open`.
    """
    data_dir = data_dir or run.config.data_dir
    return Evaluator.open(translator, split, data_dir, run.config.vocab_sha256)


def evaluate(
    run: RunDirectory,
    split: Split,
    problem: Problem | None = None,
    *,
    checkpoint: str | int | Path | None = None,
    export: tuple[str, Any] | None = None,
    data_dir: str | Path | None = None,
    sentences: int | None = None,
    write: str | Path | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Evaluates a checkpoint or an export on a split: all metrics, and the loss.

    Args:
        run: the run directory.
        split: the split of its data.
        problem: the run's problem, which may have other metrics; None: the run's.
        checkpoint: see `RunDirectory.restore`.
        export: an export of the run to evaluate instead of a checkpoint: its
            directory, and what `t2t_keras.load` returns for it. The loss is not
            computed.
        data_dir: see `open_split`.
        sentences: number of sentences to decode; None: all; 0: only the loss.
        write: prefix of the files to which the decoded sentences are written:
            `{write}.source`, `.reference` and `.hypothesis`.
        **options: decoding options; the defaults are the problem's, or the export's.

    Returns:
        "sentences", the number of decoded ones; what `Metrics.report` returns for them;
        "repaired" if the text form repairs outputs; and "loss", "perplexity" and
        "accuracy" on the whole split, unless an export is evaluated. The history of the
        run keeps them.

    Raises:
        UserError: there is no such checkpoint, or there are no such data.
    """
    problem = problem or run.problem
    facts: dict[str, Any]
    exported = None
    if export:
        path, exported = export
        facts = {"checkpoint": path, "export": True}
        translator = ModelTranslator(problem, run.build_model(), *run.tokenizers)
        recorded = exported.settings.decoding | options
        chosen = DecodingOptions.of_recorded(recorded, Path(path))
    else:
        # Now, because a training may write others and delete this one meanwhile.
        found = run.checkpoints.find("latest" if checkpoint == "ema" else checkpoint)
        is_own = found.parent.resolve() == run.path.resolve()
        name = "ema" if checkpoint == "ema" else found.name if is_own else str(found)
        facts = {"checkpoint": name, "step": Checkpoint(found).step}
        translator = run.translator("ema" if checkpoint == "ema" else found)
        chosen = translator.choose(**options)
    evaluator = open_split(run, translator, split, data_dir)
    result: dict[str, Any] = {"sentences": 0}
    if sentences != 0:
        decoded = evaluator.decode(sentences, progress, exported, **options)
        sources, references, outputs, repaired = decoded
        if write:
            write_lines(f"{write}.source", sources)
            write_lines(f"{write}.reference", references)
            write_lines(f"{write}.hypothesis", outputs)
        result["sentences"] = len(outputs)
        result |= metrics_of(problem).report(sources, outputs, references)
        result |= repaired
    if not export:
        result |= evaluator.loss(progress)
    manifest = Manifest.open(Path(data_dir or run.config.data_dir), problem.data_name)
    run.record(
        "evaluation",
        **facts,
        split=split,
        data=manifest.fingerprints(split)[0],
        sentences=result["sentences"],
        decoding={
            name: getattr(chosen, name) for name in chosen.names("changes_metrics")
        },
        settings=metrics_of(problem, evaluator.references(GUESSING_TEXTS)).settings(),
        metrics=_numbers({k: v for k, v in result.items() if k != "sentences"}),
    )
    return result


def _numbers(report: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a report without lists, such as those of sentences."""
    return {
        name: _numbers(value) if isinstance(value, Mapping) else value
        for name, value in report.items()
        if not isinstance(value, list)
    }

"""What is known of a run: its history, and the model card that is written from it.

`history.jsonl` has a line for each training, average, evaluation and import. Nothing
here raises an error: a training must not fail because its card cannot be written.
"""

import contextlib
import dataclasses
import datetime
import importlib.metadata
import json
import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from t2t_keras import registry
from t2t_keras.data.files import atomic, open_records, read_json, sha256
from t2t_keras.data.lock import lock
from t2t_keras.data.manifest import Manifest
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.evaluation.bleu import metrics_of
from t2t_keras.option import UserError
from t2t_keras.training.checkpoint import Checkpoint
from t2t_keras.training.run_dir import RunDirectory

from .model_card import MODEL_CARD, model_card

HISTORY = "history.jsonl"

_MANIFEST = "manifest.json"  # a copy, because the data may be removed
_LOCK = "model_card.lock"
_KINDS = {"average.ckpt": "dev_average", "model.ckpt": "dev", "best.ckpt": "dev"}


def record(run: RunDirectory, kind: str, **facts: Any) -> None:
    """Adds a line to the run's history, and writes its model card.

    Args:
        run: the run directory.
        kind: "training", "average", "evaluation" or "import".
        **facts: what is known of it.
    """
    line = {
        "kind": kind,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "version": importlib.metadata.version("t2t_keras"),
        **facts,
    }
    with _harmless(run.path):
        text = json.dumps(line, ensure_ascii=False, default=_type_name)
        with lock(run.path / _LOCK, refusal=None):
            with open_records(run.path / HISTORY) as file:
                file.write(f"{text}\n")
            _write_card(run)


def write_card(run: RunDirectory) -> None:
    """Writes the model card of a run."""
    with _harmless(run.path), lock(run.path / _LOCK, refusal=None):
        _write_card(run)


@contextlib.contextmanager
def _harmless(path: Path) -> Iterator[None]:
    """Prints an error of the block, whatever it is, and goes on."""
    try:
        yield
    except Exception as error:
        print(f"{path}: the model card is not written: {error}", file=sys.stderr)


def _type_name(value: object) -> str:
    return type(value).__name__  # of a constraint that was given as an object


def _write_card(run: RunDirectory) -> None:
    if (manifest := _manifest(run)) is not None:
        manifest.save(run.path / _MANIFEST)
    text = model_card(records(run))
    with atomic(run.path / MODEL_CARD) as incomplete:
        incomplete.write_text(text, encoding="utf-8", errors="replace")


def records(
    run: RunDirectory, checkpoint: str | int | Path | None = None
) -> dict[str, Any]:
    """Returns what is known of a run and of one of its checkpoints, for a model card.

    Args:
        run: the run directory.
        checkpoint: see `RunDirectory.restore`.

    Returns:
        The settings of the run, and

        "languages": the codes of source and target; None: they are not known.
        "changed": hyper-parameter -> its values in the set and here; None: the set is
            not registered.
        "checkpoint", "step", "parameters": of the checkpoint, if there is one.
        "data": the manifest of the data, in the run's direction; None: it is gone.
        "dev": the metrics on dev of checkpoints that training has evaluated.
        "curves": the best checkpoints that `t2t evaluate --all_checkpoints` has found.
        "trainings", "averages", "evaluations", "import": lines of the history.
        "decoding": the problem's options.
    """
    problem, config, hparams = run.problem, run.config, run.hparams
    files = {"source": config.source_vocab, "target": config.target_vocab}
    sizes = (tokenizer.vocab_size for tokenizer in run.tokenizers)
    history = _history(run.path)
    found: dict[str, Any] = {
        "version": importlib.metadata.version("t2t_keras"),
        "problem": problem.name,
        "summary": problem.summary,
        "languages": problem.languages,
        "metrics": [metrics_of(problem).selection_metric],
        "metrics_settings": metrics_of(problem).settings(),
        "hparams_set": config.hparams_set,
        "hparams": dataclasses.asdict(hparams),
        "changed": _changed(run),
        "vocabularies": files,
        "vocab_sizes": dict(zip(files, sizes, strict=True)),
        "vocab_sha256": {s: sha256(run.path / name) for s, name in files.items()},
        "seed": config.seed,
        "init_from": config.init_from,
        "data_dir": config.data_dir,
        "data_sha256": config.data_sha256,
        "data": _data(run),
        "dev": _dev(run, history),
        "curves": _curves(run),
        "trainings": [line for line in history if line["kind"] == "training"],
        "averages": _latest(history, "average", "checkpoint"),
        "evaluations": _evaluations(history),
        "import": next((x for x in history if x["kind"] == "import"), None),
        "decoding": DecodingOptions.of(problem).recorded(),
    }
    is_ema = checkpoint == "ema"
    with contextlib.suppress(UserError):
        path = run.checkpoints.find("latest" if is_ema else checkpoint)
        weights = Checkpoint(path)
        found["checkpoint"] = "ema" if is_ema else path.name
        found["step"] = weights.step
        found["parameters"] = sum(
            math.prod(shape)
            for name, shape in weights.shapes.items()
            if name.startswith("model/")
        )
    known: dict[str, Any] = json.loads(json.dumps(found, default=_type_name))
    for name in ("seed", "data_dir") if known["import"] else ():
        del known[name]  # they are not those of the training
    optional = ("init_from", "data_dir", "data_sha256")
    return {k: v for k, v in known.items() if k not in optional or v is not None}


def _history(path: Path) -> list[dict[str, Any]]:
    """Returns the lines of the history, without what killed processes have left."""
    return [line for line in _lines(path / HISTORY) if "kind" in line]


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the objects of a file of JSON lines; other lines are left out."""
    for text in path.read_bytes().splitlines() if path.exists() else ():
        with contextlib.suppress(ValueError):
            if isinstance(line := json.loads(text), dict):
                yield line


def _latest(
    history: list[dict[str, Any]], kind: str, *names: str
) -> list[dict[str, Any]]:
    """Returns the lines of a kind, of those with the same values the last."""
    lines = (line for line in history if line["kind"] == kind)
    found = {json.dumps([line[name] for name in names]): line for line in lines}
    return list(found.values())


def _evaluations(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the last evaluation of each checkpoint on each split, by settings."""
    current = [
        line
        for number, line in enumerate(history)
        if line["kind"] != "evaluation"
        or not _is_replaced(line["checkpoint"], history[number + 1 :])
    ]
    names = ("checkpoint", "split", "data", "sentences", "decoding", "settings")
    return _latest(current, "evaluation", *names)


def _is_replaced(checkpoint: str, later: list[dict[str, Any]]) -> bool:
    """Returns whether a checkpoint was written anew, with other weights perhaps.

    Args:
        checkpoint: its name.
        later: the history since.
    """
    if not checkpoint.startswith("average.ckpt"):
        return False
    return any(
        (line["kind"] == "average" and line["checkpoint"] == checkpoint)
        or (line["kind"] == "training" and checkpoint.endswith(f"-{line['last_step']}"))
        for line in later
    )


def _dev(run: RunDirectory, history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the metrics that training has measured on dev, by checkpoint."""
    measured = {
        (line["kind"], line["step"]): line
        for line in _lines(run.path / "metrics.jsonl")
        if {"kind", "step"} <= line.keys()
    }
    steps = run.checkpoints.steps
    names = [f"{prefix}-{steps(prefix)[-1]}" for prefix in _KINDS if steps(prefix)]
    # `t2t average` may have written another average since the training.
    trained = [n for n, x in enumerate(history) if x["kind"] == "training"]
    since = history[trained[-1] + 1 :] if trained else history
    rows = []
    for name in names:
        prefix, _, step = name.rpartition("-")
        line = measured.get((_KINDS[prefix], int(step)))
        if line and not _is_replaced(name, since):
            rows.append(_row(name, line))
    newest = steps()[-1:]
    if newest and (line := measured.get(("dev_ema", newest[0]))):
        rows.append(_row("ema", line))
    return rows


def _row(checkpoint: str, line: Mapping[str, Any]) -> dict[str, Any]:
    metrics = {k: v for k, v in line.items() if k not in ("kind", "step")}
    return {"checkpoint": checkpoint, "step": line["step"], "metrics": metrics}


def _curves(run: RunDirectory) -> list[dict[str, Any]]:
    """Returns the best point of each curve of `evaluation.follow`."""
    curves = []
    for path in sorted(run.path.glob("evaluation-*/scores.json")):
        saved = None
        with contextlib.suppress(UserError):  # it is damaged
            saved = read_json(path)
        if saved and (points := saved["checkpoints"]):
            curves.append(
                {
                    "split": path.parent.name.removeprefix("evaluation-"),
                    "settings": saved["settings"],
                    "checkpoints": len(points),
                    "best": max(points, key=metrics_of(run.problem).selection_score),
                }
            )
    return curves


def _changed(run: RunDirectory) -> dict[str, tuple[object, object]] | None:
    """Returns the hyper-parameters that are not the set's."""
    try:
        return registry.hparams(run.config.hparams_set).difference(run.hparams)
    except UserError:  # a card is no reason to import the run's `usr_dir`
        return None


def _manifest(run: RunDirectory) -> Manifest | None:
    """Returns the manifest of the run's data, or the run's copy of it."""
    config, name = run.config, run.problem.data_name
    for path in (Manifest.path(Path(config.data_dir), name), run.path / _MANIFEST):
        with contextlib.suppress(UserError, OSError):
            manifest = Manifest.load(path)
            if manifest is None:
                continue
            if config.data_sha256 in (None, *manifest.fingerprints("train")):
                return manifest
    return None


def _data(run: RunDirectory) -> dict[str, Any] | None:
    """Returns the manifest, with source and target as the run has them."""
    manifest = _manifest(run)
    if manifest is None:
        return None
    data = dataclasses.asdict(manifest)
    if run.problem.reverse:
        other = {"source": "target", "target": "source"}
        data["tokens"] = {
            split: {side: counts[other[side]] for side in counts}
            for split, counts in manifest.tokens.items()
        }
    return data

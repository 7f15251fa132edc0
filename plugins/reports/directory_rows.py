"""What `t2t describe` tells about a run directory or an export, by name."""

import dataclasses
from pathlib import Path

from t2t_keras.cli.program import flag_text
from t2t_keras.export.directory import size_of
from t2t_keras.export.settings import SETTINGS, ExportSettings
from t2t_keras.files.json_files import from_fields, read_json
from t2t_keras.hparam import HParams
from t2t_keras.metrics import shown_metrics
from t2t_keras.run.config import CheckpointPaths

from .run_facts import RunFacts, set_rows
from .run_records import Record


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


def export_rows(path: Path, export_format: str) -> dict[str, str]:
    """Returns what an export is, from its settings.

    Args:
        path: the directory of the export.
        export_format: its format, see `formats.format_of`.

    Raises:
        UserError: its settings are damaged.
    """
    rows = {"format": export_format, "bytes": f"{size_of(path):,}"}
    settings = _settings(path)
    if settings is None:  # an earlier version wrote it
        return rows
    rows["problem"] = settings.problem
    if settings.languages:
        rows["languages"] = " → ".join(settings.languages)
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

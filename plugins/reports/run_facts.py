"""What a page tells about a run, read from the files of its directory."""

import dataclasses
import math
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from t2t_keras.cli.config_file import flag_text
from t2t_keras.cli.repeating import training_flags
from t2t_keras.console import duration
from t2t_keras.errors import UserError
from t2t_keras.files.json_files import read_log, without_repeated_steps
from t2t_keras.hparam import HParams
from t2t_keras.problem import Problem
from t2t_keras.run.config import RunConfig
from t2t_keras.run.history import DevSamples, read_history, read_samples, sessions

from .costs import KNOWN_MODELS, count_parameters, flops_per_token, shown_flops

if TYPE_CHECKING:
    from t2t_keras.data.manifest import Manifest


Record = dict[str, Any]


def metric_records(run_dir: Path, warns: bool = True) -> dict[str, list[Record]]:
    """Returns the records of `metrics.jsonl` by kind; see `without_repeated_steps`.

    Args:
        run_dir: the run directory.
        warns: whether to warn of damaged lines.
    """
    by_kind: dict[str, list[Record]] = {"train": [], "dev": []}
    path = run_dir / "metrics.jsonl"
    for record in read_log(
        path, lambda fields: isinstance(fields.get("step"), int), warns
    ):
        by_kind.setdefault(str(record.get("kind")), []).append(record)
    return {name: without_repeated_steps(lines) for name, lines in by_kind.items()}


def values(records: list[Record], name: str) -> list[tuple[int, float]]:
    """Returns step and value of the records that have a finite number of that name."""
    points = []
    for record in records:
        value = record.get(name)
        if isinstance(value, int | float) and math.isfinite(value):
            points.append((record["step"], float(value)))
    return points


def training_seconds(records: list[Record]) -> float:
    """Returns the time of all steps, without evaluations, from records of training."""
    seconds = 0.0
    last_step = 0
    for step, rate in values(records, "steps_per_s"):
        if rate > 0:
            seconds += (step - last_step) / rate
        last_step = step
    return seconds


def target_tokens(records: list[Record]) -> float:
    """Returns how many target tokens a training has seen, from its records."""
    tokens = 0.0
    last_step = 0
    for record in records:
        match record:
            case {
                "step": int(step),
                "steps_per_s": float(rate),
                "target_tokens_per_s": float(speed),
            } if rate > 0:
                tokens += (step - last_step) * speed / rate
                last_step = step
    return tokens


# The length of the sentences for which FLOPs are computed.
_LENGTH = 32


@dataclasses.dataclass(frozen=True)
class RunFacts:
    """The settings and the records of a run.

    Attributes:
        path: the run directory.
        config: the settings with which the run was started.
        hparams: all hyper-parameters.
        problem: the problem.
        vocab_sizes: the tokens of source and target; None: the target shares the
            source's vocabulary.
        records: the records of `metrics.jsonl` by kind, "train" and "dev" among them.
        history: see `history.read_history`.
        samples: sentences of dev at the evaluations.
    """

    path: Path
    config: RunConfig
    hparams: HParams
    problem: Problem
    vocab_sizes: tuple[int, int | None]
    records: dict[str, list[Record]]
    history: list[Record]
    samples: list[DevSamples]

    @property
    def step(self) -> int:
        """The last recorded step."""
        records = self.records["train"] + self.records["dev"]
        return max((record["step"] for record in records), default=0)

    @property
    def sessions(self) -> list[Record]:
        """See `history.sessions`."""
        return sessions(self.history)

    def updated(self) -> Self:
        """Returns the facts with what a training has recorded since they were read."""
        return dataclasses.replace(self, **_read_logs(self.path, warns=False))

    def training_command(self) -> str:
        """Returns the command that repeats the training, with a flag on each line."""
        changes = self.changed_hparams()
        steps = changes.pop("train_steps", None)
        flags = training_flags(self.config, changes)
        flags["output_dir"] = f"{self.path}-again"
        if steps is not None:
            flags["train_steps"] = steps
        lines = ["t2t train"]
        for name, value in flags.items():
            lines.append(f"--{name} {shlex.quote(flag_text(value))}")
        return " \\\n    ".join(lines)

    def changed_hparams(self) -> dict[str, object]:
        """Returns `RunConfig.changed_hparams`; {}: the set is not registered."""
        try:
            return self.config.changed_hparams(self.hparams)
        except UserError:
            return {}

    def costs(self) -> dict[str, str]:
        """Returns what the training has cost, by name."""
        records = self.records["train"]
        tokens = target_tokens(records)
        seconds = training_seconds(records)
        rows = {"steps": f"{self.step:,} of {self.hparams.train_steps:,}"}
        if seconds:
            rows["time of the steps"] = duration(seconds)
            rows["target tokens"] = f"{tokens:,.0f}"
            rows["target tokens a second"] = f"{tokens / seconds:,.0f}"
        if records:
            rows["epochs"] = f"{records[-1].get('epoch', 0):.2f}"
            rows["padding"] = f"{records[-1].get('padding_share', 0):.1%}"
        if self.sessions:
            minutes = 0.0
            devices = []
            for record in self.sessions:
                minutes += record.get("minutes", 0)
                devices.append(str(record.get("devices", "unknown")))
            rows["devices"] = "; ".join(dict.fromkeys(devices))
            rows["time with evaluations"] = duration(60 * minutes)
        return rows | self._size(tokens)

    def _size(self, tokens: float) -> dict[str, str]:
        """Returns the size of the model, and its FLOPs for some target tokens."""
        if self.hparams.model not in KNOWN_MODELS:
            return {}
        source_size, target_size = self.vocab_sizes
        output_size = target_size or source_size
        parameters = count_parameters(self.hparams, source_size, target_size)
        flops = flops_per_token(self.hparams, output_size, _LENGTH)["training"] * tokens
        rows = {"parameters": f"{parameters['total']:,}"}
        if flops:
            rows["matrix products"] = shown_flops(flops)
        return rows

    def data_rows(self) -> dict[str, str]:
        """Returns what the data are, by name."""
        rows = {
            "problem": self.config.problem,
            "data_dir": self.config.data_dir,
        }
        if self.config.languages:
            rows["languages"] = " → ".join(self.config.languages)
        manifest = self.config.manifest()
        if manifest:
            for split, count in manifest.examples.items():
                rows[f"{split} examples"] = f"{count:,}"
            if decoded := decoded_part(manifest, self.history):
                rows["decoded in training"] = f"the first {decoded:,} of dev"
            sizes = dict.fromkeys(f"{n:,}" for n in manifest.vocab_sizes.values())
            rows["tokens in the vocabulary"] = ", ".join(sizes)
        return rows


def set_rows(config: RunConfig, hparams: HParams) -> dict[str, str]:
    """Returns the named set of a run, and where its hyper-parameters differ, by name.

    The origin of its weights comes first, if others have trained them. Only the set is
    named if it is not registered.

    Args:
        config: the settings of the run.
        hparams: its hyper-parameters.
    """
    rows = {**origin_rows(config.origin), "hparam set": config.hparams_set}
    try:
        changes = config.changed_hparams(hparams)
        instead_of_auto = config.auto_hparams(hparams)
    except UserError:
        return rows
    for name in instead_of_auto:
        del changes[name]
    for label, values in (
        ("changed hyper-parameters", changes),
        ("auto hyper-parameters", instead_of_auto),
    ):
        if values:
            texts = [f"{name}={flag_text(value)}" for name, value in values.items()]
            rows[label] = ", ".join(texts)
    return rows


def origin_rows(origin: Mapping[str, str]) -> dict[str, str]:
    """Returns where weights come from and their licence, by name.

    Args:
        origin: see `RunConfig`.
    """
    rows = {}
    if "repository" in origin:
        rows["origin"] = f"{origin['repository']}@{origin.get('commit', 'main')}"
    elif "archive" in origin:
        rows["origin"] = origin["archive"]
    if "license" in origin:
        rows["licence of the origin"] = origin["license"]
    return rows


def decoded_part(manifest: "Manifest | None", history: Iterable[Record]) -> int:
    """Returns how many sentences of dev a training has decoded at evaluations.

    Args:
        manifest: the manifest of the data; None: they are not there.
        history: see `history.read_history`.

    Returns:
        The number; 0: all of them, or it is unknown.
    """
    total = manifest.examples.get("dev", 0) if manifest else 0
    decoded = 0
    for record in sessions(history)[-1:]:
        decoded = record.get("eval_sentences", 0)
    return decoded if decoded < total else 0


def read_run(path: Path, warns: bool = True) -> RunFacts:
    """Reads the files of a run directory.

    Args:
        path: the run directory.
        warns: whether to warn of damaged lines in its logs.

    Raises:
        UserError: a file is damaged.
    """
    config = RunConfig.read(path)
    return RunFacts(
        path,
        config,
        config.read_hparams(path / "hparams.json"),
        config.registered_problem(),
        config.sizes_of(config.tokenizers(path)),
        **_read_logs(path, warns),
    )


def _read_logs(path: Path, warns: bool) -> dict[str, Any]:
    """Returns the fields of `RunFacts` that grow during a training."""
    return {
        "records": metric_records(path, warns),
        "history": read_history(path, warns),
        "samples": read_samples(path, warns),
    }

"""What an actor of a command on a cluster does: it computes chunks of lines."""

import dataclasses
import math
import os
import pickle
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from t2t_keras import load
from t2t_keras.cli.command import MAX_SEED, quoted
from t2t_keras.cli.scoring import score_row
from t2t_keras.cli.translation import (
    checkpoint_id,
    export_id,
    numbered_rows,
)
from t2t_keras.devices import PYTHON_CPU_COUNT
from t2t_keras.errors import UserError, first_line
from t2t_keras.exporting.formats import find_loader
from t2t_keras.options import OptionValues
from t2t_keras.run.config import RunConfig
from t2t_keras.usr_dir import load_usr_dir

from .bulk_files import Chunk

_MAX_LOSSES = 3  # of workers, with the same lines


@dataclasses.dataclass(frozen=True)
class Request:
    """A model by paths that every node has, and what is asked of it.

    Attributes:
        directory: the run or export.
        checkpoint: see `t2t_keras.load`.
        ensemble: see `t2t_keras.load`.
        usr_dir: the folder of `--usr_dir`; "": none.
        options: the decoding options that are given.
        scores_pairs: whether pairs are scored, and texts are not translated.
        is_numbered: whether rows have line numbers, ranks and scores.
        token_scores: whether rows have the log-probabilities of tokens.
        cores: the number of cores that a worker may use.
    """

    directory: str
    checkpoint: str | None = None
    ensemble: tuple[str, ...] = ()
    usr_dir: str = ""
    options: OptionValues = dataclasses.field(default_factory=dict)
    scores_pairs: bool = False
    is_numbered: bool = False
    token_scores: bool = False
    cores: int = 1

    def ids(self) -> list[str]:
        """Returns a checksum of the weights of each model.

        They may differ on a node that has a copy. A name such as "latest" may mean
        other weights later, when a training has gone on.
        """
        if find_loader(Path(self.directory)):
            return [export_id(self.directory)]
        runs = (self.directory, *self.ensemble)
        return [checkpoint_id(run, self.checkpoint)[1] for run in runs]

    def files(self) -> list[Path]:
        """Returns the files that every node must have."""
        files: list[Path] = []
        folders = {self.usr_dir}
        for directory in (self.directory, *self.ensemble):
            if find_loader(Path(directory)):
                files += Path(directory).rglob("*")
                continue
            name = "latest" if self.checkpoint == "ema" else self.checkpoint
            path, _ = checkpoint_id(directory, name)
            files += [Path(f"{path}.index"), Path(directory, "config.json")]
            files += Path(directory).glob("vocab.*")
            folders.add(RunConfig.read(Path(directory)).usr_dir or "")
        for folder in folders - {""}:
            files += Path(folder).rglob("*.py")
        return sorted({path for path in files if path.is_file()})


class Result(NamedTuple):
    """What a worker returns for a chunk.

    Attributes:
        file: the index of the file.
        rows: what is written for each line, with line ends.
        faults: what is wrong with a line, by its number from 1.
        counts: sums over the lines, by name.
        mistake: see `Chunk`.
        is_last: see `Chunk`.
    """

    file: int
    rows: list[str]
    faults: dict[int, str]
    counts: dict[str, float]
    mistake: str = ""
    is_last: bool = False


class TextWorker:
    """A process with the model.

    Args:
        request: the model, and what is asked of it.
        ids: the `ids` of the request where the command runs.
        losses: the actor of `Losses`.
    """

    def __init__(
        self, request: Request, ids: Sequence[str], losses: Any = None
    ) -> None:
        self._request = request
        self._ids = list(ids)
        self._losses = losses
        self._translator: Any = None

    def __call__(self, row: dict[str, bytes]) -> dict[str, bytes]:
        """Returns the result of a chunk; both are pickled, as rows of a dataset.

        Raises:
            UserError: see `compute`; or the lines have ended several workers.
        """
        chunk = pickle.loads(row["chunk"])
        if chunk.texts:
            self._count_begin(chunk)
        return {"result": pickle.dumps(self.compute(chunk))}

    def compute(self, chunk: Chunk) -> Result:
        """Returns the rows of a chunk.

        Raises:
            UserError: the model cannot be loaded or is not the command's, or the
                worker fails with every line.
        """
        if chunk.texts:
            self._load()
        faults = dict(chunk.faults)
        counts = Counter[str](lines=len(chunk.texts))
        rows = dict.fromkeys(faults, "")
        intact = [i for i in range(len(chunk.texts)) if i not in faults]
        self._fill(chunk, intact, rows, faults, counts)
        counts["faulty"] = len(faults)
        for i in faults:
            rows[i] = self._faulty_row(chunk.start + i + 1)
        return Result(
            chunk.file,
            [rows[i] for i in range(len(chunk.texts))],
            {chunk.start + i + 1: faults[i] for i in sorted(faults)},
            dict(counts),
            chunk.mistake,
            chunk.is_last,
        )

    def _count_begin(self, chunk: Chunk) -> None:
        """Refuses lines that have ended several workers."""
        import ray

        losses = ray.get(self._losses.begin.remote(chunk.file, chunk.start))
        if losses >= _MAX_LOSSES:
            last_line = chunk.start + len(chunk.texts)
            raise UserError(
                f"{chunk.name}: lines {chunk.start + 1:,} to {last_line:,} have ended "
                f"{losses} workers, perhaps out of memory; try these lines without "
                "--cluster; the outputs of finished files are complete"
            )

    def _load(self) -> None:
        """Loads the model, unless that is done."""
        if self._translator is not None:
            return
        request = self._request
        limit_cores(request.cores)
        if request.usr_dir:
            load_usr_dir(request.usr_dir)
        translator = load(request.directory, request.checkpoint, request.ensemble)
        if request.ids() != self._ids:
            raise _replaced_weights(request)
        translator.choose(**request.options)
        self._translator = translator

    def _fill(
        self,
        chunk: Chunk,
        indices: list[int],
        rows: dict[int, str],
        faults: dict[int, str],
        counts: Counter[str],
    ) -> None:
        """Computes some lines of a chunk, their halves if there is an error."""
        if not indices:
            return
        try:
            texts = [chunk.texts[i] for i in indices]
            lines = [chunk.start + i + 1 for i in indices]
            new_rows, new_counts = self._rows(texts, lines, chunk.start)
        except Exception as error:
            if len(indices) > 1:
                middle = len(indices) // 2
                for part in (indices[:middle], indices[middle:]):
                    self._fill(chunk, part, rows, faults, counts)
                return
            self._require_health(error)
            faults[indices[0]] = first_line(error)
            return
        rows.update(zip(indices, new_rows, strict=True))
        counts.update(new_counts)

    def _require_health(self, error: Exception) -> None:
        """Raises UserError if the worker also fails with a simple line."""
        simple = ("a", "a") if self._request.scores_pairs else ("a",)
        try:
            self._rows([simple], [1], 0)
        except Exception:
            raise UserError(
                f"a worker fails with every line: {first_line(error)}"
            ) from None

    def _rows(
        self, texts: list[tuple[str, ...]], lines: list[int], start: int
    ) -> tuple[list[str], dict[str, Any]]:
        """Returns the rows of some lines, and sums over them.

        Args:
            texts: the text of each line, or source and target.
            lines: the number of each line, from 1.
            start: the number of lines before the chunk, on which samples depend.
        """
        request = self._request
        scored = self._translator if request.token_scores else None
        if request.scores_pairs:
            scores = self._translator.score(*zip(*texts, strict=True))
            finite = [x for x in scores if x.log_prob > -math.inf]
            rows = [f"{score_row(score, scored)}\n" for score in scores]
            return rows, {
                "truncated": sum(x.is_truncated for x in scores),
                "log_prob": math.fsum(x.log_prob for x in finite),
                "tokens": sum(x.tokens for x in finite),
            }
        options = dict(request.options)
        if options.get("sampling"):
            options["seed"] = (options.get("seed", 0) + start) % MAX_SEED
        if request.token_scores:
            options["token_scores"] = True
        outputs = self._translator.n_best([text for (text,) in texts], **options)
        rows = [f"{hypotheses[0].text}\n" for hypotheses in outputs]
        if request.is_numbered:
            rows = [
                "".join(numbered_rows(line, hypotheses, scored))
                for line, hypotheses in zip(lines, outputs, strict=True)
            ]
        return rows, {
            "truncated": sum(x[0].is_truncated for x in outputs),
            "repaired": sum(x[0].is_repaired for x in outputs),
        }

    def _faulty_row(self, line: int) -> str:
        """Returns what is written for a faulty line, given its number."""
        if self._request.scores_pairs:
            return "-inf\t0\n"
        return f"{line}\t1\t-inf\t\n" if self._request.is_numbered else "\n"


class Losses:
    """Counts how many workers were lost with the same lines; an actor of Ray."""

    def __init__(self) -> None:
        self._begins = Counter[tuple[int, int]]()

    def begin(self, file: int, start: int) -> int:
        """Returns how often a chunk was begun before; see `Chunk`."""
        self._begins[file, start] += 1
        return self._begins[file, start] - 1


def _replaced_weights(request: Request) -> UserError:
    """Returns the error for weights that differ from the command's."""
    advice = "wait for the end of the training"
    if request.checkpoint != "ema":
        advice = f"name a step, or {advice}"
    elif not request.ensemble:
        # A checkpoint that is named by its step has no moving average.
        export = f"t2t export {quoted(request.directory)} DIR --checkpoint ema"
        advice = f"use an export of it (`{export}`), or {advice}"
    if find_loader(Path(request.directory)):
        return UserError(
            f"a node has another model in {request.directory}; copy it to all nodes "
            "again"
        )
    return UserError(
        f"{request.checkpoint or 'the newest checkpoint'} of "
        f"{', '.join((request.directory, *request.ensemble))} is no longer what it was "
        "when the command began: a training writes there, or a node has an old copy; "
        f"{advice}"
    )


def limit_cores(cores: int) -> None:
    """Makes the libraries of this process use some cores; called before they load."""
    os.environ[PYTHON_CPU_COUNT] = str(cores)
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["TF_NUM_INTRAOP_THREADS"] = str(cores)
    os.environ["TF_NUM_INTEROP_THREADS"] = str(cores)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")

"""`t2t translate --cluster` and `score --cluster`: many files, on a Ray cluster.

Ray Data does the work: tasks read the files and cut them into the chunks of lines that
`t2t translate` computes together, actors with the model compute them, and the results
come back in the order of the lines. If an actor or its node is lost, Ray computes its
chunks again.

An output appears under its name when it is complete. A log in the folder of the
outputs, `cluster.jsonl`, has the settings on which they depend, and then an object for
each finished output, which is not written again. Faulty lines are listed in
`cluster.faults.jsonl`. There may be many, so they are never all in memory.
"""

import contextlib
import dataclasses
import glob
import itertools
import json
import logging
import math
import os
import pickle
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from t2t_keras import load
from t2t_keras.cli.command import MAX_SEED, quoted
from t2t_keras.cli.translation import (
    MAX_CHARACTERS,
    MAX_LINES,
    Score,
    Translate,
    checkpoint_id,
    ensemble_ids,
    export_id,
    model_id,
    numbered_rows,
    score_row,
)
from t2t_keras.console import progress, say
from t2t_keras.devices import PYTHON_CPU_COUNT
from t2t_keras.errors import UserError, first_line, quantity, require_extra
from t2t_keras.export.formats import find_loader
from t2t_keras.files.atomic import lock, open_lines
from t2t_keras.files.json_files import open_log, read_log
from t2t_keras.files.text_files import (
    COMPRESSED,
    LONGEST_LINE,
    open_binary,
    readable,
    require_text,
)
from t2t_keras.options import OptionValues
from t2t_keras.run.config import RunConfig, is_path, require_run
from t2t_keras.usr_dir import load_usr_dir

from .cluster import (
    WorkerFlags,
    WorkerSize,
    absolute,
    connected,
    require_capacity,
    require_same_nodes,
    require_start,
)

_LOG = "cluster.jsonl"
_FAULTS = "cluster.faults.jsonl"
_LOCK = "cluster.lock"
_MAX_SHOWN_FAULTS = 20
_MAX_LOSSES = 3  # of workers, with the same lines
# For a worker with the slowest of models, and for nodes that come back.
_SECONDS_WITHOUT_RESULT = 1800.0


# Files that are read, and names of the outputs.


def matching_files(flag: str, pattern: str) -> list[Path]:
    """Returns the files that match a pattern such as `crawl-*.gz`, sorted by name.

    Raises:
        UserError: there is none.
    """
    names = glob.glob(pattern, recursive=True) or glob.glob(glob.escape(pattern))
    files = sorted(Path(name) for name in names if os.path.isfile(name))
    if not files:
        raise UserError(f"--{flag}: no file matches {pattern}")
    return files


def matching_pairs(
    source_pattern: str, target_pattern: str
) -> tuple[list[Path], list[Path]]:
    """Returns the files of sources and of targets, pairs at the same place.

    Files are a pair if the wildcards stand for the same text in both patterns.

    Raises:
        UserError: a file has no partner.
    """
    targets = {}
    for path in matching_files("target", target_pattern):
        targets[_wildcard_text(path, target_pattern)] = path
    sources = matching_files("input", source_pattern)
    partners = []
    for path in sources:
        partner = targets.pop(_wildcard_text(path, source_pattern), None)
        if partner is None:
            raise UserError(
                f"--target: no file that matches {target_pattern} belongs to {path}; "
                "the wildcards must stand for the same in both names"
            )
        partners.append(partner)
    for path in targets.values():
        raise UserError(
            f"--input: no file that matches {source_pattern} belongs to {path}; the "
            "wildcards must stand for the same in both names"
        )
    return sources, partners


# The wildcards of `glob`, and what a regular expression has in their place.
_WILDCARDS = {
    r"\*\*/": "(?:(.*)/)?",  # any number of folders, or none
    r"\*+": "(.*)",
    r"\?": "(.)",
    r"\[[^]]*\]": "(.)",
}


def _wildcard_text(path: Path, pattern: str) -> tuple[str | None, ...]:
    """Returns what each wildcard of a pattern stands for in a path."""
    parts = re.split(f"({'|'.join(_WILDCARDS)})", os.path.normpath(pattern))
    expression = ""
    for part in parts:
        groups = [
            x for wildcard, x in _WILDCARDS.items() if re.fullmatch(wildcard, part)
        ]
        expression += groups[0] if groups else re.escape(part)
    match = re.fullmatch(expression, os.path.normpath(path), re.DOTALL)
    return match.groups() if match else (str(path),)


def output_paths(inputs: Sequence[Path], folder: Path) -> list[Path]:
    """Returns the output of each file: its name without the suffix of a compression.

    Raises:
        UserError: two outputs have the same name, or one is an input or has the name of
            a file that the command itself writes.
    """
    owners: dict[Path, Path] = {}
    real_inputs = {os.path.realpath(path) for path in inputs}
    for path in inputs:
        name = path.stem if path.suffix.lower() in COMPRESSED else path.name
        output = folder / name
        if name in (_LOG, _FAULTS, _LOCK):
            raise UserError(
                f"--output: {path} would be written to {output}, which is a file of "
                "the command itself; rename the input"
            )
        if output in owners:
            raise UserError(
                f"--output: {owners[output]} and {path} would both be written to "
                f"{output}; rename one of them"
            )
        if os.path.realpath(output) in real_inputs:
            raise UserError(
                f"--output: {output} is an input; name another folder for the outputs"
            )
        owners[output] = path
    return list(owners)


# Reading, on any node.


class Chunk(NamedTuple):
    """Lines of a file, or of a pair of files, that are computed together.

    Attributes:
        file: the index of the file.
        name: the path of the file, or of both, for messages.
        start: the number of lines before them.
        texts: the text of each line, or source and target.
        faults: what is wrong with a line, by its index in the chunk.
        mistake: why the rest of the file cannot be read; "": there is no mistake.
        is_last: whether the file has no further lines.
    """

    file: int
    name: str
    start: int
    texts: list[tuple[str, ...]]
    faults: dict[int, str]
    mistake: str = ""
    is_last: bool = False


def read_chunks(file: int, paths: Sequence[str]) -> Iterator[Chunk]:
    """Yields the lines of a file, in the chunks of `t2t translate`.

    The last one may be empty.

    Args:
        file: the index of the file.
        paths: the file, or those of sources and of targets.
    """
    name = " and ".join(paths)
    chunk = Chunk(file, name, 0, [], {})
    characters = 0
    mistake = ""
    try:
        for rows in itertools.zip_longest(*map(checked_lines, paths)):
            if None in rows:
                raise UserError(f"{name} differ in their number of lines")
            texts, faults = zip(*rows, strict=True)
            if fault := next(filter(None, faults), ""):
                chunk.faults[len(chunk.texts)] = fault
            chunk.texts.append(texts)
            characters += sum(map(len, texts))
            if len(chunk.texts) == MAX_LINES or characters >= MAX_CHARACTERS:
                yield chunk
                chunk = Chunk(file, name, chunk.start + len(chunk.texts), [], {})
                characters = 0
    except UserError as error:
        mistake = str(error)
    yield chunk._replace(mistake=mistake, is_last=True)


def checked_lines(path: str) -> Iterator[tuple[str, str]]:
    """Yields each line as `read_lines` does, and what is wrong with it; "": nothing.

    The text of a faulty line is empty.

    Raises:
        UserError: the file cannot be read, is damaged, or is not a text.
    """
    with readable(path), open_binary(path) as file:
        require_text(file, path)
        for index, line in enumerate(iter(lambda: _read_line(file), b"")):
            if len(line) > LONGEST_LINE:
                yield "", f"more than {LONGEST_LINE:,} bytes"
                continue
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                yield "", f"byte {line[error.start]:#04x} is not valid UTF-8"
                continue
            if index == 0:
                text = text.removeprefix("\ufeff")
            yield text.removesuffix("\n").removesuffix("\r"), ""


def _read_line(file: BinaryIO) -> bytes:
    """Returns a line with its end; of one that is too long, only the beginning."""
    line = file.readline(LONGEST_LINE + 1)
    part = line
    while len(part) > LONGEST_LINE and not part.endswith(b"\n"):
        part = file.readline(LONGEST_LINE + 1)
    return line


# The work of an actor.


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
        losses: the actor of `Losses`; None: losses of workers are not counted.
    """

    def __init__(
        self, request: Request, ids: Sequence[str], losses: Any = None
    ) -> None:
        self._request = request
        self._ids = list(ids)
        self._losses = losses
        self._translator: Any = None

    def __call__(self, row: dict[str, bytes]) -> dict[str, bytes]:
        """Returns the result of a chunk; both are pickled, as rows of a dataset."""
        chunk = pickle.loads(row["chunk"])
        return {"result": pickle.dumps(self.compute(chunk))}

    def compute(self, chunk: Chunk) -> Result:
        """Returns the rows of a chunk.

        Raises:
            UserError: the model cannot be loaded or is not the command's, the worker
                fails with every line, or the lines have ended several workers.
        """
        if chunk.texts:
            self._count_begin(chunk)
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
        if self._losses is None:
            return
        import ray

        losses = ray.get(self._losses.begin.remote(chunk.file, chunk.start))
        if losses >= _MAX_LOSSES:
            end = chunk.start + len(chunk.texts)
            raise UserError(
                f"{chunk.name}: lines {chunk.start + 1:,} to {end:,} have ended "
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
            numbers = [chunk.start + i + 1 for i in indices]
            new_rows, new_counts = self._rows(texts, numbers, chunk.start)
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
        self, texts: list[tuple[str, ...]], numbers: list[int], start: int
    ) -> tuple[list[str], dict[str, Any]]:
        """Returns the rows of some lines, and sums over them.

        Args:
            texts: the text of each line, or source and target.
            numbers: the number of each line, from 1.
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
                "".join(numbered_rows(number, hypotheses, scored))
                for number, hypotheses in zip(numbers, outputs, strict=True)
            ]
        return rows, {
            "truncated": sum(x[0].is_truncated for x in outputs),
            "repaired": sum(x[0].is_repaired for x in outputs),
        }

    def _faulty_row(self, number: int) -> str:
        """Returns what is written for a faulty line.

        Args:
            number: the number of the line, from 1.
        """
        if self._request.scores_pairs:
            return "-inf\t0\n"
        return f"{number}\t1\t-inf\t\n" if self._request.is_numbered else "\n"


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


# The command that waits for the results and writes the outputs.


@dataclasses.dataclass(frozen=True)
class BulkJob:
    """What a command on a cluster does.

    Attributes:
        task: the name of the command, for messages.
        request: the model, and what is asked of it.
        inputs: the files of each output: one, or those of sources and of targets.
        outputs: the output of each, in one folder.
        settings: everything that the outputs depend on except the inputs.
    """

    task: str
    request: Request
    inputs: list[tuple[Path, ...]]
    outputs: list[Path]
    settings: Mapping[str, object]

    @property
    def folder(self) -> Path:
        """The folder of the outputs."""
        return self.outputs[0].parent


def run_job(
    job: BulkJob, address: str, size: WorkerSize, workers: int | None
) -> dict[str, float]:
    """Does a job; returns the counts of lines and files.

    Args:
        job: the job.
        address: the address of the cluster.
        size: what a worker takes.
        workers: the number of workers; None: as many as fit.

    Raises:
        UserError: the cluster cannot do the job, or an input cannot be read; the
            outputs of the other inputs are complete then.
    """
    begin = time.monotonic()
    done_before = len(_finished(job))
    if done_before:
        total = quantity(len(job.inputs), "files")
        say(f"{job.task}: done already: {done_before:,} of {total}")
    mistakes = []
    if done_before < len(job.inputs):
        inputs = [path.absolute() for paths in job.inputs for path in paths]
        with connected(address):
            count = require_capacity(size, workers)
            require_same_nodes([*job.request.files(), *inputs])
            with _locked(job.folder):
                done = _finished(job)
                files = [i for i in range(len(job.inputs)) if i not in done]
                say(f"{job.task}: {quantity(count, 'workers')} of {size}")
                mistakes = write_outputs(job, files, _results(job, files, size, count))
    counts = Counter[str](lines=0)
    for facts in _finished(job).values():
        counts.update(facts["counts"])
    if mistakes:
        other_files = quantity(len(mistakes) - 1, "other files")
        further = f" ({other_files} as well)" if mistakes[1:] else ""
        raise UserError(f"{mistakes[0]}{further}; the other outputs are complete")
    return {
        "files": len(job.inputs),
        "done_before": done_before,
        **counts,
        "seconds": round(time.monotonic() - begin, 2),
    }


def _results(
    job: BulkJob, files: Sequence[int], size: WorkerSize, workers: int
) -> Iterator[Result]:
    """Yields what workers on the cluster return, in the order of the lines.

    Raises:
        UserError: a worker cannot do its work, or there is no result for long.
    """
    import ray
    import ray.data
    from ray.data.exceptions import ExecutionTimeoutError

    resources = {"num_cpus": size.cores, "num_gpus": size.gpus}
    probe = ray.remote(lambda: None).options(**resources)
    require_start([probe.remote()], f"worker of {size}")
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True
    context.target_max_block_size = 1  # each chunk is a block, which an actor gets
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.raise_original_map_exception = True
    context.execution_no_progress_timeout_s = _SECONDS_WITHOUT_RESULT
    losses = (
        ray.remote(Losses)
        .options(num_cpus=0, max_restarts=-1, max_task_retries=-1)
        .remote()
    )
    paths = [list(map(absolute, job.inputs[file])) for file in files]
    items = [{"file": file, "paths": x} for file, x in zip(files, paths, strict=True)]
    dataset = (
        ray.data.from_items(items, override_num_blocks=len(items))
        .flat_map(
            _read_file, compute=ray.data.TaskPoolStrategy(size=workers), num_cpus=0
        )
        .map(
            TextWorker,
            fn_constructor_args=(job.request, job.request.ids(), losses),
            compute=ray.data.ActorPoolStrategy(
                size=workers, max_tasks_in_flight_per_actor=2
            ),
            **resources,
        )
    )
    try:
        for row in dataset.iter_rows():
            yield pickle.loads(row["result"])
    except ray.exceptions.RayTaskError as error:
        raise UserError(f"--cluster: {first_line(error.cause)}") from None
    except ExecutionTimeoutError:
        raise UserError(
            f"--cluster: no worker has returned lines in {_SECONDS_WITHOUT_RESULT:.0f} "
            "s; add nodes and run the same command again: it continues"
        ) from None
    except ray.exceptions.RayError as error:
        raise UserError(
            f"--cluster: {first_line(error)}; run the same command again: it continues"
        ) from None


def _read_file(row: dict[str, Any]) -> Iterator[dict[str, bytes]]:
    """Yields the chunks of a file, pickled, as rows of a dataset."""
    for chunk in read_chunks(row["file"], row["paths"]):
        yield {"chunk": pickle.dumps(chunk)}


class _UnreadableInput(UserError):
    """An input cannot be read to its end; its output is removed."""


def write_outputs(
    job: BulkJob, files: Sequence[int], results: Iterable[Result]
) -> list[str]:
    """Writes the outputs of some files; returns why others cannot be read.

    Args:
        job: the job.
        files: the indices of the files.
        results: their results, in this order.
    """
    stamps = {file: _stamps(job.inputs[file]) for file in files}
    _remove_faults(job, files)
    mistakes = []
    shown_faults = 0
    with progress(job.task, "lines") as advance:
        for file, results_of_file in itertools.groupby(results, lambda x: x.file):
            counts = Counter[str]()
            try:
                with open_lines(job.outputs[file]) as output:
                    for result in results_of_file:
                        output.writelines(result.rows)
                        counts.update(result.counts)
                        shown_faults += _list_faults(job, result, shown_faults)
                        advance(len(result.rows))
                        if result.mistake:
                            raise _UnreadableInput(result.mistake)
                        if result.is_last:  # the next result may be an error
                            break
            except _UnreadableInput as error:
                mistakes.append(str(error))
                continue
            _log_output(job, file, stamps[file], counts)
    return mistakes


def _list_faults(job: BulkJob, result: Result, shown_before: int) -> int:
    """Lists the faulty lines of a chunk, and shows the first ones of a job.

    Args:
        job: the job.
        result: the result of the chunk.
        shown_before: the number of faulty lines in earlier chunks.

    Returns:
        The number of faulty lines in the chunk.
    """
    if not result.faults:
        return 0
    output = job.outputs[result.file]
    rows = []
    for index, (number, fault) in enumerate(result.faults.items(), shown_before):
        rows.append({"output": output.name, "line": number, "fault": fault})
        if index < _MAX_SHOWN_FAULTS:
            path = job.inputs[result.file][0]
            say(f"{path}, line {number}: {fault}; its output is empty")
        elif index == _MAX_SHOWN_FAULTS:
            say(f"further faulty lines are listed in {job.folder / _FAULTS}")
    _append(job.folder / _FAULTS, rows)
    return len(rows)


def _remove_faults(job: BulkJob, files: Sequence[int]) -> None:
    """Removes the faulty lines of outputs that are written again from their list."""
    path = job.folder / _FAULTS
    if not path.exists():
        return
    outputs = {job.outputs[file].name for file in files}
    with path.open("rb") as earlier, open_lines(path) as rewritten:
        for row in earlier:
            with contextlib.suppress(ValueError):  # a killed process wrote it
                if json.loads(row)["output"] not in outputs:
                    rewritten.write(row.decode())


def _finished(job: BulkJob) -> dict[int, dict[str, Any]]:
    """Returns the log's objects of the finished outputs, by the index of the file.

    An output is not finished if it or an input has changed.

    Raises:
        UserError: the folder has outputs with other settings.
    """
    settings = json.loads(json.dumps(job.settings))  # tuples become lists
    entries = {}
    for entry in read_log(job.folder / _LOG):
        if "output" in entry:
            entries[entry["output"]] = entry
            continue
        earlier = entry.get("settings", {})
        names = {**earlier, **settings}
        changed = [x for x in names if earlier.get(x) != settings.get(x)]
        if changed:
            raise UserError(
                f"--output: {job.folder} has outputs of other settings "
                f"({', '.join(changed)}); name another folder, or give the same ones"
            )
    finished = {}
    for file, (paths, output) in enumerate(zip(job.inputs, job.outputs, strict=True)):
        entry = entries.get(output.name, {})
        if (
            output.exists()
            and entry.get("size") == output.stat().st_size
            and entry.get("inputs") == _stamps(paths)
        ):
            finished[file] = entry
    return finished


def _log_output(
    job: BulkJob, file: int, stamps: list[list[int]], counts: Mapping[str, float]
) -> None:
    """Notes that an output is finished.

    Args:
        job: the job.
        file: the index of the file.
        stamps: the stamps of the inputs before they were read.
        counts: the sums over its lines.
    """
    output = job.outputs[file]
    with output.open("rb") as content:
        os.fsync(content.fileno())
    log = job.folder / _LOG
    entry = {
        "output": output.name,
        "size": output.stat().st_size,
        "inputs": stamps,
        "counts": counts,
    }
    _append(log, [entry] if log.exists() else [{"settings": job.settings}, entry])


def _append(path: Path, values: Iterable[Mapping[str, object]]) -> None:
    """Appends objects to a log, and waits until they are on the disk."""
    with open_log(path) as log:
        for value in values:
            log.write(json.dumps(value, ensure_ascii=False) + "\n")
        log.flush()
        os.fsync(log.fileno())


def _stamps(paths: Sequence[Path]) -> list[list[int]]:
    """Returns the size in bytes and the time of the last change of each file."""
    return [[path.stat().st_size, path.stat().st_mtime_ns] for path in paths]


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keeps other commands from writing to a folder.

    Raises:
        UserError: another one does.
    """

    def refusal(holder: str) -> UserError:
        return UserError(
            f"--output: {holder or 'another process'} writes to {folder}; wait for it, "
            "or name another folder"
        )

    with lock(folder / _LOCK, refusal):
        yield


# The commands.


def _request(
    command: "TranslateOnCluster | ScoreOnCluster",
    directory: str | Path,
    checkpoint: str | None,
) -> Request:
    """Returns the model of a command, with absolute paths.

    Args:
        command: the command.
        directory: the run or export.
        checkpoint: see `t2t_keras.load`.
    """
    if checkpoint and is_path(checkpoint):
        checkpoint = absolute(checkpoint)
    return Request(
        absolute(directory),
        checkpoint,
        tuple(map(absolute, command.ensemble)),
        absolute(command.usr_dir) if command.usr_dir else "",
        token_scores=command.token_scores,
        cores=command.cores_per_worker,
    )


def _require_folder(path: str) -> None:
    """Refuses an output that is a file.

    Raises:
        UserError: it is.
    """
    if Path(path).exists() and not Path(path).is_dir():
        raise UserError(
            f"--output: {path} is a file; with --cluster the output is a folder"
        )


@dataclasses.dataclass(kw_only=True)
class TranslateOnCluster(WorkerFlags, Translate):
    """Translates many files."""

    waiting = "translating on the cluster"

    def check(self) -> None:
        """Refuses a model, options, files and flags that do not fit."""
        require_extra("ray", "--cluster", "ray")
        if self.input is None or self.output is None:
            flag = "input" if self.input is None else "output"
            raise UserError(
                f"--cluster needs --{flag}: a pattern such as 'crawl-*.gz' as input, "
                "and a folder as output"
            )
        if self.alignments:
            raise UserError(
                "--alignments has no effect with --cluster: it writes translations only"
            )
        if self.resume:
            raise UserError(
                "--resume has no effect with --cluster: a command on a cluster always "
                "continues"
            )
        self.check_model()
        _require_folder(self.output)
        output_paths(matching_files("input", self.input), Path(self.output))

    def run(self) -> dict[str, Any]:
        """Translates the files; returns the counts of lines and files."""
        assert self.input is not None and self.output is not None
        size = self.worker_size()
        model, checkpoint = Path(self.model), self.checkpoint
        # Other engines compute on CPUs.
        if not self.is_export and (not size.gpus or self.engine == "ctranslate2"):
            # What the cluster lacks is refused before the run is converted.
            with connected(self.cluster):
                require_capacity(size, self.workers)
                require_same_nodes()
            model, checkpoint = self.chosen_model()
        checkpoint, identity = model_id(model, checkpoint, self.ensemble)
        request = dataclasses.replace(
            _request(self, model, checkpoint),
            options=self.decoding,
            is_numbered=self.is_numbered,
        )
        inputs = matching_files("input", self.input)
        job = BulkJob(
            task="translate",
            request=request,
            inputs=[(path,) for path in inputs],
            outputs=output_paths(inputs, Path(self.output)),
            settings=self.output_settings(identity),
        )
        return {**run_job(job, self.cluster, size, self.workers)}

    def show(self, result: dict[str, Any]) -> str:
        """Formats the end of a job in one line."""
        files = quantity(int(result["files"]), "files")
        text = f"{quantity(int(result['lines']), 'lines')} of {files}"
        for name in ("faulty", "truncated", "repaired"):
            if result.get(name):
                text += f", {result[name]:,} {name}"
        return text

    def next_command(self) -> str:
        """Returns ""."""
        return ""


@dataclasses.dataclass(kw_only=True)
class ScoreOnCluster(WorkerFlags, Score):
    """Scores the pairs of many files."""

    waiting = "scoring on the cluster"

    def check(self) -> None:
        """Refuses what is no run, and files and flags that do not fit."""
        require_extra("ray", "--cluster", "ray")
        for run in (self.output_dir, *self.ensemble):
            require_run(run)
        if self.output is None:
            raise UserError("--cluster needs --output, a folder for the scores")
        if self.alignments or self.gold_alignments:
            flag = "alignments" if self.alignments else "gold_alignments"
            raise UserError(
                f"--{flag} has no effect with --cluster: it writes scores only"
            )
        _require_folder(self.output)
        output_paths(matching_pairs(self.source, self.target)[0], Path(self.output))

    def run(self) -> dict[str, Any]:
        """Scores the pairs; returns counts and the perplexity."""
        assert self.output is not None
        checkpoint, identity = model_id(self.output_dir, self.checkpoint, self.ensemble)
        settings: dict[str, object] = {"model": identity, "scores_pairs": True}
        if self.token_scores:
            settings["token_scores"] = True
        if self.ensemble:
            settings["ensemble"] = ensemble_ids(self.ensemble, self.checkpoint)
        sources, targets = matching_pairs(self.source, self.target)
        job = BulkJob(
            task="score",
            request=dataclasses.replace(
                _request(self, self.output_dir, checkpoint), scores_pairs=True
            ),
            inputs=list(zip(sources, targets, strict=True)),
            outputs=output_paths(sources, Path(self.output)),
            settings=settings,
        )
        result: dict[str, Any] = run_job(
            job, self.cluster, self.worker_size(), self.workers
        )
        if tokens := result.get("tokens"):
            log_prob = result["log_prob"]
            result["perplexity"] = math.exp(min(-log_prob / tokens, 700.0))
        return result

    def next_command(self) -> str:
        """Returns ""."""
        return ""


TRANSLATE = TranslateOnCluster
SCORE = ScoreOnCluster

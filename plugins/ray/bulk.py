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
import itertools
import json
import logging
import math
import os
import pickle
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_keras.cli.command import CommandResult
from t2t_keras.cli.scoring import Score
from t2t_keras.cli.translation import Translate, ensemble_ids, model_id
from t2t_keras.console import progress, say
from t2t_keras.errors import UserError, first_line, quantity, require_extra
from t2t_keras.files.atomic import lock, open_lines
from t2t_keras.files.json_files import open_log, read_log
from t2t_keras.run.config import is_path, require_run

from .bulk_files import (
    FAULTS,
    LOCK,
    LOG,
    matching_files,
    matching_pairs,
    output_paths,
    read_chunks,
)
from .bulk_worker import Losses, Request, Result, TextWorker
from .cluster import (
    WorkerFlags,
    WorkerSize,
    absolute,
    connected,
    require_capacity,
    require_same_nodes,
    require_start,
)

_MAX_SHOWN_FAULTS = 20
# For a worker with the slowest of models, and for nodes that come back.
_SECONDS_WITHOUT_RESULT = 1800.0


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
            say(f"further faulty lines are listed in {job.folder / FAULTS}")
    _append(job.folder / FAULTS, rows)
    return len(rows)


def _remove_faults(job: BulkJob, files: Sequence[int]) -> None:
    """Removes the faulty lines of outputs that are written again from their list."""
    path = job.folder / FAULTS
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
    for entry in read_log(job.folder / LOG):
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
    log = job.folder / LOG
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

    with lock(folder / LOCK, refusal):
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

    def run(self) -> CommandResult:
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

    def show(self, result: CommandResult) -> str:
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
        """Refuses paths that are not runs, and files and flags that do not fit."""
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

    def run(self) -> CommandResult:
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

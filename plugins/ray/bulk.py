"""`t2t translate --cluster` and `score --cluster`: many files, on a Ray cluster.

Ray Data does the work: tasks read the files and cut them into the chunks of lines that
`t2t translate` computes together, actors with the model compute them, and the results
come back in the order of the lines. If an actor or its node is lost, Ray computes its
chunks again.
"""

import dataclasses
import logging
import math
import pickle
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from t2t_keras.cli.command import CommandResult
from t2t_keras.cli.scoring import Score
from t2t_keras.cli.translation import Translate, ensemble_ids, model_id
from t2t_keras.console import say
from t2t_keras.errors import UserError, first_line, quantity, require_extra
from t2t_keras.run.config import is_path, require_run

from .bulk_files import matching_files, matching_pairs, output_paths, read_chunks
from .bulk_outputs import BulkJob, finished_outputs, lock_outputs, write_outputs
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

# For a worker with the slowest of models, and for nodes that come back.
_SECONDS_WITHOUT_RESULT = 1800.0


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
    done_before = len(finished_outputs(job))
    if done_before:
        total = quantity(len(job.inputs), "files")
        say(f"{job.task}: done already: {done_before:,} of {total}")
    mistakes = []
    if done_before < len(job.inputs):
        inputs = [path.absolute() for paths in job.inputs for path in paths]
        with connected(address):
            count = require_capacity(size, workers)
            require_same_nodes([*job.request.files(), *inputs])
            with lock_outputs(job.folder):
                done = finished_outputs(job)
                files = [i for i in range(len(job.inputs)) if i not in done]
                say(f"{job.task}: {quantity(count, 'workers')} of {size}")
                mistakes = write_outputs(job, files, _results(job, files, size, count))
    counts = Counter[str](lines=0)
    for facts in finished_outputs(job).values():
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

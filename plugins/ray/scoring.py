"""`t2t score --cluster`: scores the pairs of many files on a Ray cluster."""

import argparse
import dataclasses
import math
from pathlib import Path
from typing import Any

from t2t_keras.cli.command import Command
from t2t_keras.cli.translation import ensemble_ids, run_id
from t2t_keras.console import table
from t2t_keras.errors import UserError, require_extra
from t2t_keras.run.config import require_run

from .flags import add_cluster_flags, cluster_extension, worker_size
from .input_files import matching_pairs, output_paths
from .model_files import Model
from .translating import require_folder


def _check(args: argparse.Namespace) -> None:
    require_extra("ray", "--cluster", "ray")
    for flag in ("alignments", "gold_alignments"):
        if getattr(args, flag):
            raise UserError(
                f"--{flag} has no effect with --cluster: it writes scores only"
            )
    for run in (args.output_dir, *args.ensemble):
        require_run(run)
    if args.output is None:
        raise UserError("--cluster needs --output, a folder for the scores")
    require_folder(args.output)
    output_paths(matching_pairs(args.source, args.target)[0], Path(args.output))


def _run(args: argparse.Namespace) -> dict[str, Any]:
    from .bulk import BulkJob, run_job
    from .text_worker import Request

    size = worker_size(args)
    checkpoint, identity = run_id(args)
    model = Model.from_args(args, args.output_dir, checkpoint)
    request = Request(
        model=model,
        weights=model.weight_ids(),
        options={},
        scores_pairs=True,
        token_scores=args.token_scores,
        cores=size.cores,
    )
    settings: dict[str, object] = {"model": identity, "scores_pairs": True}
    if args.token_scores:
        settings["token_scores"] = True
    if args.ensemble:
        settings["ensemble"] = ensemble_ids(args)
    sources, targets = matching_pairs(args.source, args.target)
    job = BulkJob(
        task="score",
        request=request,
        inputs=list(zip(sources, targets, strict=True)),
        outputs=output_paths(sources, Path(args.output)),
        folder=Path(args.output),
        settings=settings,
        read=model.files(),
        faulty_row=lambda line_number: "-inf\t0\n",
    )
    result: dict[str, Any] = {**run_job(job, args.cluster, size, args.workers)}
    log_prob = result.get("log_prob", 0.0)
    tokens = result.get("tokens", 0)
    if tokens:
        result["perplexity"] = math.exp(min(-log_prob / tokens, 700.0))
    return result


def _on_cluster(command: Command) -> Command:
    return dataclasses.replace(
        command,
        run=_run,
        check=_check,
        show=table,
        next_command=lambda args: "",
        waiting="scoring on the cluster",
    )


EXTENSION = cluster_extension(add_cluster_flags, _on_cluster)

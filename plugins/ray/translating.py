"""`t2t translate --cluster`: translates many files on a Ray cluster."""

import argparse
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t2t_keras.cli.command import Command, check_decoder, given_decoding
from t2t_keras.cli.translation import (
    choose_engine,
    is_numbered,
    model_id,
    output_settings,
)
from t2t_keras.errors import UserError, quantity, require_extra

from .flags import add_cluster_flags, cluster_extension, worker_size
from .input_files import matching_files, output_paths
from .model_files import Model


def _check(args: argparse.Namespace) -> None:
    require_extra("ray", "--cluster", "ray")
    for flag in ("input", "output"):
        if getattr(args, flag) is None:
            raise UserError(
                f"--cluster needs --{flag}: a pattern such as 'crawl-*.gz' as input, "
                "and a folder as output"
            )
    for flag in ("alignments", "resume"):
        if getattr(args, flag):
            advice = (
                "a command on a cluster always continues"
                if flag == "resume"
                else "it writes translations only"
            )
            raise UserError(f"--{flag} has no effect with --cluster: {advice}")
    check_decoder(args)
    require_folder(args.output)
    output_paths(matching_files("input", args.input), Path(args.output))


def require_folder(path: str) -> None:
    """Refuses an output that is a file.

    Raises:
        UserError: it is.
    """
    if Path(path).exists() and not Path(path).is_dir():
        raise UserError(
            f"--output: {path} is a file; with --cluster the output is a folder"
        )


def _run(args: argparse.Namespace) -> dict[str, Any]:
    from .bulk import BulkJob, run_job
    from .cluster import connected, require_capacity
    from .nodes import require_same_nodes
    from .text_worker import Request

    size = worker_size(args)
    # Other engines compute on CPUs.
    if args.output_dir and (not size.gpus or args.engine == "ctranslate2"):
        # What the cluster lacks is refused before the run is converted.
        with connected(args.cluster):
            require_capacity(size, args.workers)
            require_same_nodes()
        choose_engine(args)
    checkpoint, identity = model_id(args)
    options = given_decoding(args)
    has_numbers = is_numbered(args, options)
    model = Model.from_args(args, args.output_dir or args.export_dir, checkpoint)
    request = Request(
        model=model,
        weights=model.weight_ids(),
        options=options,
        is_numbered=has_numbers,
        token_scores=args.token_scores,
        cores=size.cores,
    )
    inputs = matching_files("input", args.input)
    job = BulkJob(
        task="translate",
        request=request,
        inputs=[(path,) for path in inputs],
        outputs=output_paths(inputs, Path(args.output)),
        folder=Path(args.output),
        settings=output_settings(args, identity, options),
        read=model.files(),
        faulty_row=lambda line_number: (
            f"{line_number}\t1\t-inf\t\n" if has_numbers else "\n"
        ),
    )
    return {**run_job(job, args.cluster, size, args.workers)}


def show(result: Mapping[str, float]) -> str:
    """Formats the end of a job in one line."""
    files = quantity(int(result["files"]), "files")
    text = f"{quantity(int(result['lines']), 'lines')} of {files}"
    for name in ("faulty", "truncated", "repaired"):
        if result.get(name):
            text += f", {result[name]:,} {name}"
    return text


def _on_cluster(command: Command) -> Command:
    return dataclasses.replace(
        command,
        run=_run,
        check=_check,
        show=show,
        next_command=lambda args: "",
        waiting="translating on the cluster",
    )


EXTENSION = cluster_extension(add_cluster_flags, _on_cluster)

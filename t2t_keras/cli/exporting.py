"""The command that writes a model for serving: `export`."""

import argparse
import time
from pathlib import Path
from typing import Any

from t2t_keras.cli.command import (
    Command,
    add_checkpoint,
    add_decoding_flags,
    add_ensemble,
    add_further,
    add_positional,
    add_run_dir,
    check_decoding,
    flag_name,
    given_decoding,
    not_negative,
    quoted,
)
from t2t_keras.cli.lines import require_utf8
from t2t_keras.console import table
from t2t_keras.errors import UserError
from t2t_keras.export.directory import require_free
from t2t_keras.export.formats import export_formats, require_quantization
from t2t_keras.run.config import require_run


def _export_flags(parser: argparse.ArgumentParser) -> None:
    add_run_dir(parser)
    add_positional(
        parser,
        "DIR",
        "--export_dir",
        dest="export_dir",
        required=True,
        help="the directory to write",
    )
    add_checkpoint(parser)
    parser.add_argument(
        "--overwrite", action="store_true", help="replace an earlier export"
    )
    formats = export_formats()
    summaries = [f"{name}: {format_.summary}" for name, format_ in formats.items()]
    quantizations = [
        f"{name}: {', '.join(format_.quantizations)}"
        for name, format_ in formats.items()
        if format_.quantizations
    ]
    parser.add_argument(
        "--format",
        choices=[*formats],
        default="savedmodel",
        help=f"{'; '.join(summaries)} (default: savedmodel)",
    )
    parser.add_argument(
        "--quantization",
        metavar="DTYPE",
        help="dtype to which the weights are rounded: "
        f"{'; '.join(quantizations)} (default: float32)",
    )
    parser.add_argument(
        "--verify",
        type=not_negative,
        default=20,
        metavar="N",
        help="number of sentences of the run's data; the export is refused unless its "
        "outputs are those of the run; 0: no verification (default: 20)",
    )
    add_ensemble(add_further(parser, "further options"))
    add_decoding_flags(parser)


def _check_export(args: argparse.Namespace) -> None:
    require_utf8("export_dir", args.export_dir)
    for run in (args.output_dir, *args.ensemble):
        require_run(run)
    require_free(Path(args.export_dir), args.overwrite)
    export_format = export_formats()[args.format]
    for name in check_decoding(args):
        if export_format.options is not None and name not in export_format.options:
            raise UserError(
                f"{flag_name(name)} has no effect with --format {args.format}; leave "
                "it out, and give it to the library that translates with the export"
            )
    export_format.check()
    require_quantization(args.quantization, args.format)


def _export(args: argparse.Namespace) -> dict[str, Any]:
    from t2t_keras.export.verify import Verification
    from t2t_keras.run.directory import RunDirectory

    start = time.monotonic()
    run = RunDirectory(args.output_dir)
    verification = Verification(run.example_sources(args.verify))
    size = export_formats()[args.format].export(
        run.translator(args.checkpoint, args.ensemble),
        args.export_dir,
        quantization=args.quantization,
        overwrite=args.overwrite,
        verify=verification if args.verify else None,
        **given_decoding(args),
    )
    return {
        "export_dir": args.export_dir,
        "bytes": size,
        "verified": len(verification.texts),
        "identical": verification.identical,
        "seconds": round(time.monotonic() - start, 2),
    }


COMMANDS = {
    "export": Command(
        "export a trained model, as a SavedModel or for another program",
        _export_flags,
        _export,
        table,
        uses_tensorflow=True,
        check=_check_export,
        waiting="exporting and verifying the model",
        next_command=lambda args: f"t2t serve {quoted(args.export_dir)}",
        group="using a model",
    ),
}

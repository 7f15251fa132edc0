"""The model that `translate` loads: which files, and what identifies them."""

import argparse
from pathlib import Path

from t2t_keras.cli.decoding import given_decoding
from t2t_keras.cli.output_rows import is_numbered
from t2t_keras.data.checksums import sha256
from t2t_keras.export.formats import converted
from t2t_keras.export.integrity import SUMS
from t2t_keras.options import OptionValues


def choose_engine(args: argparse.Namespace) -> None:
    """Replaces a run by its conversion for a faster engine, as `--engine` says."""
    if args.engine == "auto" and args.output_dir and not args.ensemble:
        run = Path(args.output_dir)
        path, args.checkpoint = converted(run, args.checkpoint, given_decoding(args))
        args.output_dir = run if path == run else None
        args.export_dir = None if path == run else path


def model_id(args: argparse.Namespace) -> tuple[str | None, str]:
    """Returns the checkpoint to load, and a checksum of the model."""
    if args.export_dir:
        names = ("saved_model.pb", "variables/variables.index", SUMS)
        paths = [Path(args.export_dir, name) for name in names]
        digests = [sha256(path)[:12] for path in paths if path.exists()]
        return args.checkpoint, "-".join(digests)
    return run_id(args)


def run_id(args: argparse.Namespace) -> tuple[str | None, str]:
    """Returns the checkpoint of a run, or of an ensemble, to load, and a checksum.

    The checksum is of the weights of the first run. Each run of an ensemble has its own
    files, so that its checkpoint is what the user has given, not a path.
    """
    path, checksum = checkpoint_id(args.output_dir, args.checkpoint)
    return args.checkpoint if args.ensemble else path, checksum


def checkpoint_id(output_dir: str, checkpoint: str | None = None) -> tuple[str, str]:
    """Returns the checkpoint of a run to load, and a checksum of its weights.

    Args:
        output_dir: the run.
        checkpoint: see `t2t_keras.load`; a name becomes a path, except "ema".
    """
    from t2t_keras.run.directory import RunDirectory

    is_average = checkpoint == "ema"
    checkpoints = RunDirectory(output_dir).checkpoints
    path = checkpoints.find("latest" if is_average else checkpoint)
    # The index has the checksums of all weights.
    checksum = sha256(Path(f"{path}.index"))[:12]
    return ("ema", f"ema-{checksum}") if is_average else (str(path), checksum)


def ensemble_ids(args: argparse.Namespace) -> dict[str, str]:
    """Returns a checksum of the weights of each further run of an ensemble."""
    return {run: checkpoint_id(run, args.checkpoint)[1] for run in args.ensemble}


def output_settings(
    args: argparse.Namespace, model_id: str, options: OptionValues
) -> dict[str, object]:
    """Returns everything that the output depends on except the input."""
    settings = {"model": model_id, "scores": is_numbered(args, options), **options}
    if args.token_scores:
        settings["token_scores"] = True
    if args.ensemble:
        settings["ensemble"] = ensemble_ids(args)
    settings.pop("batch_tokens", None)  # it only changes how results are rounded
    return settings

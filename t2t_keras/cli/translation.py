"""The commands that run a trained model on text: `translate`, `score`."""

import argparse
import contextlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from t2t_keras import load
from t2t_keras.cli.command import (
    MAX_SEED,
    Command,
    add_decoding_flags,
    add_engine,
    add_ensemble,
    add_further,
    add_model,
    add_positional,
    add_run,
    check_decoder,
    chosen_engine,
    given_decoding,
    is_converted,
    quoted,
)
from t2t_keras.cli.lines import (
    STDOUT,
    OutputFile,
    count_lines,
    incomplete_files,
    open_output,
    read_lines,
    require_outputs,
    require_readable,
)
from t2t_keras.console import busy, say, table
from t2t_keras.display import end_spinner
from t2t_keras.errors import UserError, quantity
from t2t_keras.export.directory import SUMS, is_saved_model
from t2t_keras.export.formats import converted
from t2t_keras.files.atomic import is_special, open_lines, write_lines
from t2t_keras.files.json_files import sha256
from t2t_keras.options import OptionValues
from t2t_keras.run.config import require_run
from t2t_keras.text.alignment import (
    Alignment,
    alignment_scores,
    format_alignment,
    parse_reference,
)

if TYPE_CHECKING:
    from t2t_keras.decoding.engine import Hypothesis, Score
    from t2t_keras.decoding.translator import Translator


MAX_LINES = 2000
MAX_CHARACTERS = 4_000_000


def chunks(lines: Iterator[str], one_by_one: bool) -> Iterator[list[str]]:
    """Yields lines to decode together, and reads no further than these."""
    chunk: list[str] = []
    characters = 0
    for line in lines:
        chunk.append(line)
        characters += len(line)
        is_full = len(chunk) == MAX_LINES or characters >= MAX_CHARACTERS
        if is_full or one_by_one:
            yield chunk
            chunk = []
            characters = 0
    if chunk:
        yield chunk


def is_numbered(args: argparse.Namespace, options: OptionValues) -> bool:
    """Returns whether the output has line numbers, ranks and scores."""
    return bool(args.scores or args.token_scores or options.get("n_best", 1) > 1)


def numbered_rows(
    line_number: int,
    hypotheses: "Sequence[Hypothesis]",
    translator: "Translator | None",
) -> Iterator[str]:
    """Yields the lines of `--scores`.

    Args:
        line_number: number of the input, from 1.
        hypotheses: its outputs, best first.
        translator: the translator, for token scores; None: they are not written.
    """
    for rank, hypothesis in enumerate(hypotheses, 1):
        row = f"{line_number}\t{rank}\t{hypothesis.score:.6f}\t{hypothesis.text}"
        if translator is not None:
            row += f"\t{token_scores(translator, hypothesis)}"
        yield f"{row}\n"


def token_scores(translator: "Translator", scored: "Hypothesis | Score") -> str:
    """Returns a list in JSON: the tokens, each with its log-probability."""
    pieces = translator.target_tokenizer.pieces
    pairs = zip(scored.ids, scored.token_log_probs, strict=True)
    rows = [(pieces[token], round(log_prob, 6)) for token, log_prob in pairs]
    return json.dumps(rows, ensure_ascii=False)


def score_row(score: "Score", translator: "Translator | None" = None) -> str:
    """Returns the line of a pair, `log-probability TAB tokens`.

    Args:
        score: the score of the target.
        translator: the translator, for token scores; None: they are not written.
    """
    row = f"{score.log_prob:.6f}\t{score.tokens}"
    return row if translator is None else f"{row}\t{token_scores(translator, score)}"


def choose_engine(args: argparse.Namespace) -> None:
    """Replaces a run by its conversion for another engine, as `--engine` says."""
    if args.output_dir and not args.ensemble:
        run = Path(args.output_dir)
        path, args.checkpoint = converted(
            run, args.checkpoint, given_decoding(args), chosen_engine(args)
        )
        args.output_dir = run if path == run else None
        args.export_dir = None if path == run else path


def model_id(args: argparse.Namespace) -> tuple[str | None, str]:
    """Returns the checkpoint to load, and a checksum of the model."""
    if args.export_dir:
        return args.checkpoint, export_id(args.export_dir)
    return run_id(args)


def export_id(directory: str | Path) -> str:
    """Returns a checksum of an export."""
    names = ("saved_model.pb", "variables/variables.index", SUMS)
    paths = [Path(directory, name) for name in names]
    return "-".join(sha256(path)[:12] for path in paths if path.exists())


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


def _translate_flags(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_engine(parser)
    add_positional(
        parser,
        "FILE",
        "--input",
        dest="input",
        help="a text per line (default: standard input)",
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="one line per text (default: standard output)",
    )
    parser.add_argument(
        "--scores",
        action="store_true",
        help="write `line number TAB rank TAB score TAB text`, as with --n_best"
        " above 1",
    )
    add_decoding_flags(parser, sampling=True)
    further = add_further(parser, "further options")
    add_ensemble(further)
    further.add_argument(
        "--token_scores",
        action="store_true",
        help="the same, and at the end of each line `TAB [[token, log-probability], "
        "...]`, a list in JSON",
    )
    further.add_argument(
        "--alignments",
        metavar="FILE",
        help="write the word alignment of each output, such as `0-0 1-2`: source word "
        "0 and target word 0, source word 1 and target word 2",
    )
    further.add_argument(
        "--resume",
        action="store_true",
        help="continue the FILE.incomplete of a killed process; start from the "
        "beginning if there is none",
    )


def _check_translate(args: argparse.Namespace) -> None:
    if args.input is None and sys.stdin is None:
        raise UserError("standard input is closed; give --input FILE")
    if args.alignments and args.export_dir and _needs_tensorflow(args):
        raise UserError("--alignments needs --output_dir; a SavedModel returns none")
    check_decoder(args)
    if args.resume and args.alignments:
        raise UserError(
            "--resume does not work with --alignments; leave out one of them"
        )
    model = quoted(args.output_dir or args.export_dir)
    if args.config and args.input is not None and Path(args.input).is_dir():
        raise UserError(
            f"{args.input} is a directory, but {args.config} already names the model "
            f"{model}; give another model by --model"
        )
    require_readable(
        args.input, f'to translate a text: echo "..." | t2t translate {model}'
    )
    written: dict[str, list[str | Path]] = {"output": [], "alignments": []}
    if args.output is not None:
        written["output"] = [args.output]
        if not is_special(args.output):
            written["output"] += incomplete_files(args.output)
    elif args.input is not None and _is_file(args.input, STDOUT):
        raise UserError(f"standard output is {args.input}, the input; name another")
    if args.alignments is not None:
        written["alignments"] = [args.alignments]
    require_outputs(args, written)
    if args.resume and (args.output is None or is_special(args.output)):
        raise UserError("--resume needs --output FILE; only a file can be resumed")


def _is_file(path: str, descriptor: int) -> bool:
    """Returns whether an open file is the regular file at a path."""
    if not Path(path).is_file():
        return False
    with contextlib.suppress(OSError):  # it may be closed
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    return False


def _needs_tensorflow(args: argparse.Namespace) -> bool:
    """Returns whether the model is a SavedModel, or a run that is not yet converted."""
    if args.export_dir:
        return is_saved_model(Path(args.export_dir))
    return args.ensemble or not is_converted(args, args.output_dir)


def _next_command(args: argparse.Namespace) -> str:
    if args.run:
        return f"t2t evaluate {args.run}"
    return f"t2t serve {quoted(args.export_dir)}"


def _translate(args: argparse.Namespace) -> dict[str, Any]:
    args.run = args.output_dir  # its engine may be an export
    choose_engine(args)
    checkpoint, identity = model_id(args)
    translator: Any = load(
        args.output_dir or args.export_dir, checkpoint, args.ensemble
    )
    options = given_decoding(args)
    settings = output_settings(args, identity, options)
    translator.choose(**options)  # raises before any text is read
    if args.token_scores:
        options["token_scores"] = True
    if args.alignments:
        options["alignment"] = translator.alignment_head()
    end_spinner()
    start = time.monotonic()
    with (
        open_lines(args.alignments) if args.alignments else nullcontext() as alignments,
        open_output(args.output, settings, args.resume) as output,
    ):
        _translate_lines(args, translator, options, output, alignments)
    counts = output.done
    sentences = counts.get("sentences", 0)
    if counts.get("several"):
        from t2t_keras.decoding.inputs import splitting_note

        say(splitting_note(counts["several"], sentences))
    result = {
        "sentences": sentences,
        "engine": translator.engine_name,
        "seconds": round(time.monotonic() - start, 2),
    }
    if sentences and args.output_dir and translator.text_processor.repairs_outputs:
        result["repaired"] = counts.get("repaired", 0) / sentences
    return result


def _translate_lines(
    args: argparse.Namespace,
    translator: Any,
    options: OptionValues,
    output: OutputFile,
    alignments: TextIO | None,
) -> None:
    """Translates the lines of the input for which there is no output yet."""
    options = dict(options)
    start_seed = options.pop("seed", 0)
    has_numbers = is_numbered(args, options)
    counts = {"sentences": 0, "repaired": 0, "several": 0} | output.done
    with _progress(args, counts["sentences"]) as advance:
        for lines in chunks(output.unread(_input_lines(args)), _is_interactive(args)):
            start_index = counts["sentences"]
            if options.get("sampling"):
                options["seed"] = (start_seed + start_index) % MAX_SEED
            with busy("translating") if advance is None else nullcontext():
                outputs = translator.n_best(
                    lines, start_index=start_index, advance=advance, **options
                )
            for line_number, hypotheses in enumerate(outputs, start_index + 1):
                counts["repaired"] += hypotheses[0].is_repaired
                counts["several"] += hypotheses[0].sentences > 1
                if alignments:
                    for hypothesis in hypotheses:
                        links = format_alignment(hypothesis.alignment)
                        alignments.write(f"{links}\n")
                rows = [f"{hypotheses[0].text}\n"]
                if has_numbers:
                    scored = translator if args.token_scores else None
                    rows = list(numbered_rows(line_number, hypotheses, scored))
                output.file.writelines(rows)
            counts["sentences"] += len(lines)
            output.save(**counts)


def _is_interactive(args: argparse.Namespace) -> bool:
    """Returns whether the input comes from a terminal."""
    return args.input is None and sys.stdin.isatty()


def _progress(
    args: argparse.Namespace, done: int
) -> AbstractContextManager[Callable[[int], None] | None]:
    """Shows progress, unless the output itself appears on the terminal."""
    if _is_interactive(args) or (args.output is None and os.isatty(STDOUT)):
        return nullcontext()
    from t2t_keras.console import progress

    return progress("translate", "sentences", count_lines(args.input), done)


def _input_lines(args: argparse.Namespace) -> Iterator[str]:
    """Yields the lines of the input, with a prompt on a terminal."""
    if not _is_interactive(args):
        yield from read_lines(args.input)
        return
    print("One sentence per line; Ctrl-D ends.", file=sys.stderr)
    while True:
        print("> ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            print(file=sys.stderr)
            return
        yield line.removesuffix("\n")


def _show_translate(result: dict[str, Any]) -> str:
    if result.get("repaired"):
        share = f"{result['repaired']:.1%} of the outputs"
        print(f"{share} were malformed and were repaired", file=sys.stderr)
    return ""


def _score_flags(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    add_positional(
        parser,
        "SOURCE",
        "--input",
        "--source",
        dest="source",
        required=True,
        help="file of sources, one per line",
    )
    add_positional(
        parser,
        "TARGET",
        "--target",
        dest="target",
        required=True,
        help="file of targets, one per line",
    )
    add_ensemble(parser)
    parser.add_argument(
        "--output", metavar="FILE", help="write `log-probability TAB tokens` per line"
    )
    parser.add_argument(
        "--token_scores",
        action="store_true",
        help="with --output: write `TAB [[token, log-probability], ...]`, a list in "
        "JSON, at the end of each line",
    )
    parser.add_argument(
        "--alignments",
        metavar="FILE",
        help="write the word alignment of each pair, such as `0-0 1-2`: source word 0 "
        "and target word 0, source word 1 and target word 2",
    )
    parser.add_argument(
        "--gold_alignments",
        metavar="FILE",
        help="the correct alignments, for the alignment error rate; `0-0` is a sure "
        "link, `0p0` a possible one",
    )


def _check_score(args: argparse.Namespace) -> None:
    for run in (args.output_dir, *args.ensemble):
        require_run(run)
    for path in (args.source, args.target):
        require_readable(path, "write the texts into a file, one per line")
    require_readable(args.gold_alignments)
    written: dict[str, list[str | Path]] = {}
    for flag in ("output", "alignments"):
        path = getattr(args, flag)
        written[flag] = [path] if path else []
    require_outputs(args, written)
    if args.token_scores and not args.output:
        raise UserError("--token_scores needs --output FILE, where they are written")
    if args.ensemble and (args.alignments or args.gold_alignments):
        raise UserError("an ensemble has no alignments; leave out --ensemble")


def _score(args: argparse.Namespace) -> dict[str, Any]:
    from t2t_keras.decoding.translator import Translator

    sources = list(read_lines(args.source))
    texts = {args.target: list(read_lines(args.target))}
    if args.gold_alignments:
        texts[args.gold_alignments] = list(read_lines(args.gold_alignments))
    for path, lines in texts.items():
        if len(lines) != len(sources):
            raise UserError(
                f"{args.source} has {quantity(len(sources), 'lines')} and {path} "
                f"{len(lines):,}; they must be pairs"
            )
    if not sources:
        raise UserError(f"{args.source} is empty")
    targets = texts[args.target]
    gold = []
    for number, line in enumerate(texts.get(args.gold_alignments, ()), 1):
        gold.append(parse_reference(line, f"{args.gold_alignments}, line {number}"))
    translator = load(args.output_dir, args.checkpoint, args.ensemble)
    assert isinstance(translator, Translator)  # an export has no run directory
    alignments: list[Alignment] = []
    if args.alignments or gold:
        alignments = translator.align(sources, targets)
    scores = translator.score(sources, targets)
    if args.output:
        scored = translator if args.token_scores else None
        write_lines(args.output, [score_row(score, scored) for score in scores])
    if args.alignments:
        write_lines(args.alignments, map(format_alignment, alignments))
    log_prob = math.fsum(score.log_prob for score in scores)
    tokens = sum(score.tokens for score in scores)
    result: dict[str, Any] = {
        "log_prob": log_prob,
        "tokens": tokens,
        "perplexity": math.exp(min(-log_prob / tokens, 700.0)),
    }
    return result | (alignment_scores(alignments, gold) if gold else {})


COMMANDS = {
    "translate": Command(
        "translate text with a trained or an exported model",
        _translate_flags,
        _translate,
        _show_translate,
        uses_tensorflow=_needs_tensorflow,
        check=_check_translate,
        waiting="loading the model",
        next_command=_next_command,
        decodes_files=lambda args: not (args.export_dir or _is_interactive(args)),
        group="using a model",
        words_hint='to translate a text: echo "..." | t2t translate MODEL',
    ),
    "score": Command(
        "compute the log-probabilities of given translations",
        _score_flags,
        _score,
        table,
        uses_tensorflow=True,
        check=_check_score,
        waiting="loading the model",
        next_command=lambda args: f"t2t evaluate {quoted(args.output_dir)}",
        group="using a model",
    ),
}

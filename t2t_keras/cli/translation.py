"""The command that runs a trained model on text: `translate`."""

import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from t2t_keras import load
from t2t_keras.cli.command import (
    EXPORT_HINTS,
    FURTHER,
    MAX_SEED,
    REQUIRED,
    CheckpointFlags,
    Command,
    CommandResult,
    EngineName,
    check_decoding,
    check_export,
    decoding_flags,
    engine_flag,
    ensemble_flag,
    is_converted,
    quoted,
)
from t2t_keras.cli.lines import (
    STDOUT,
    OutputFile,
    count_lines,
    incomplete_files,
    is_same,
    open_output,
    read_lines,
    require_outputs,
    require_readable,
)
from t2t_keras.console import busy, say
from t2t_keras.display import end_spinner
from t2t_keras.errors import UserError
from t2t_keras.exporting.directory import SUMS, is_saved_model
from t2t_keras.exporting.formats import converted, find_loader
from t2t_keras.files.atomic import is_special, open_lines
from t2t_keras.files.json_files import sha256
from t2t_keras.options import OptionValues, option
from t2t_keras.run.config import require_run
from t2t_keras.text.alignment import format_alignment

if TYPE_CHECKING:
    from t2t_keras.decoding import engine
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


def numbered_rows(
    line_number: int,
    hypotheses: "Sequence[engine.Hypothesis]",
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


def token_scores(
    translator: "Translator", scored: "engine.Hypothesis | engine.Score"
) -> str:
    """Returns a list in JSON: the tokens, each with its log-probability."""
    pieces = translator.target_tokenizer.pieces
    pairs = zip(scored.ids, scored.token_log_probs, strict=True)
    rows = [(pieces[token], round(log_prob, 6)) for token, log_prob in pairs]
    return json.dumps(rows, ensure_ascii=False)


def model_id(
    model: str | Path, checkpoint: str | None, ensemble: Collection[str] = ()
) -> tuple[str | None, str]:
    """Returns the checkpoint of a model to load, and a checksum of its weights.

    Args:
        model: an export or a run.
        checkpoint: see `t2t_keras.load`.
        ensemble: the further runs of an ensemble. Each run has its own files, so that
            the checkpoint remains as it is given.
    """
    if find_loader(Path(model)):
        return checkpoint, export_id(model)
    path, checksum = checkpoint_id(model, checkpoint)
    return checkpoint if ensemble else path, checksum


def export_id(directory: str | Path) -> str:
    """Returns a checksum of an export."""
    names = ("saved_model.pb", "variables/variables.index", SUMS)
    paths = [Path(directory, name) for name in names]
    return "-".join(sha256(path)[:12] for path in paths if path.exists())


def checkpoint_id(
    output_dir: str | Path, checkpoint: str | None = None
) -> tuple[str, str]:
    """Returns the checkpoint of a run to load, and a checksum of its weights.

    Args:
        output_dir: the run.
        checkpoint: see `t2t_keras.load`.
    """
    from t2t_keras.run.directory import RunDirectory

    run = RunDirectory(output_dir)
    checkpoint = run.checkpoints.pinned(checkpoint)
    # The index has the checksums of all weights.
    checksum = sha256(Path(f"{run.checkpoint_path(checkpoint)}.index"))[:12]
    return checkpoint, f"ema-{checksum}" if checkpoint == "ema" else checksum


def ensemble_ids(ensemble: Collection[str], checkpoint: str | None) -> dict[str, str]:
    """Returns a checksum of the weights of each further run of an ensemble."""
    return {run: checkpoint_id(run, checkpoint)[1] for run in ensemble}


@dataclasses.dataclass(kw_only=True)
class Translate(CheckpointFlags, Command):
    """Translates text with a trained or an exported model."""

    summary = "translate text with a trained or an exported model"
    heading = "using a model"
    waiting = "loading the model"
    words_hint = 'to translate a text: echo "..." | t2t translate MODEL'
    flag_hints = EXPORT_HINTS

    model: str = option(
        REQUIRED,
        "a run directory, or a model that `t2t export` wrote",
        metavar="MODEL",
        positional=True,
        aliases=("--output_dir",),
    )
    engine: EngineName = engine_flag()
    input: str | None = option(
        None,
        "a text per line (default: standard input)",
        metavar="FILE",
        positional=True,
    )
    output: str | None = option(
        None, "one line per text (default: standard output)", metavar="FILE"
    )
    scores: bool = option(
        False,
        "write `line number TAB rank TAB score TAB text`, as with --n_best above 1",
    )
    decoding: OptionValues = decoding_flags(sampling=True)
    ensemble: tuple[str, ...] = ensemble_flag(FURTHER)
    token_scores: bool = option(
        False,
        "as --scores, with `TAB [[token, log-probability], ...]`, a list in JSON, at "
        "the end of each line",
        group=FURTHER,
    )
    alignments: str | None = option(
        None,
        "write the word alignment of each output, such as `0-0 1-2`: source word 0 "
        "and target word 0, source word 1 and target word 2",
        metavar="FILE",
        group=FURTHER,
    )
    resume: bool = option(
        False,
        "continue the FILE.incomplete of a killed process; start from the beginning "
        "if there is none",
        group=FURTHER,
    )

    @property
    def is_export(self) -> bool:
        """Whether the model is an export, not a run."""
        return find_loader(Path(self.model)) is not None

    @property
    def is_numbered(self) -> bool:
        """Whether the output has line numbers, ranks and scores."""
        has_several = self.decoding.get("n_best", 1) > 1
        return self.scores or self.token_scores or has_several

    def needs_tensorflow(self) -> bool:
        """Returns whether it is a SavedModel, or a run that is not yet converted."""
        if self.is_export:
            return is_saved_model(Path(self.model))
        return bool(self.ensemble) or not is_converted(
            self.model, self.checkpoint, self.decoding, self.engine
        )

    def decodes_files(self) -> bool:
        """Returns whether a run translates a file."""
        return not (self.is_export or self._is_interactive())

    def check(self) -> None:
        """Refuses an impossible model or options, and files that cannot be used."""
        if self.input is None and sys.stdin is None:
            raise UserError("standard input is closed; give --input FILE")
        if self.alignments and self.is_export and self.needs_tensorflow():
            raise UserError("--alignments needs a run; a SavedModel returns none")
        self.check_model()
        if self.resume and self.alignments:
            raise UserError(
                "--resume does not work with --alignments; leave out one of them"
            )
        model = quoted(self.model)
        if self.config and self.input is not None and Path(self.input).is_dir():
            raise UserError(
                f"{self.input} is a directory, but {self.config} already names the "
                f"model {model}; give another model by --model"
            )
        require_readable(
            self.input, f'to translate a text: echo "..." | t2t translate {model}'
        )
        self._check_outputs()

    def check_model(self) -> None:
        """Refuses flags with which no model can be loaded.

        Raises:
            UserError: there is no such model, or it does not take these options.
        """
        check_decoding(self.decoding)
        if self.is_export:
            if self.ensemble:
                raise UserError("--ensemble needs a run; export an ensemble instead")
            if self.checkpoint:
                raise UserError("--checkpoint needs a run; an export has it built in")
            engine = self.engine if "engine" in self.given_flags else "auto"
            check_export(self.decoding, self.model, engine)
            return
        for run in (self.model, *self.ensemble):
            require_run(run)
        if self.ensemble and self.engine == "ctranslate2":
            raise UserError("--ensemble needs TensorFlow; leave out --engine")

    def _check_outputs(self) -> None:
        """Refuses outputs that cannot be written or resumed, or are read."""
        written: dict[str, list[str | Path]] = {"output": [], "alignments": []}
        if self.output is not None:
            written["output"] = [self.output]
            if not is_special(self.output):
                written["output"] += incomplete_files(self.output)
        elif self.input is not None and is_same(Path(self.input), STDOUT):
            raise UserError(f"standard output is {self.input}, the input; name another")
        if self.alignments is not None:
            written["alignments"] = [self.alignments]
        require_outputs(self, written)
        if self.resume and (self.output is None or is_special(self.output)):
            raise UserError("--resume needs --output FILE; only a file can be resumed")

    def chosen_model(self) -> tuple[Path, str | None]:
        """Returns what `--engine` loads, and which checkpoint of it.

        It is the model itself, or the conversion of a run for another engine.
        """
        path = Path(self.model)
        if self.is_export or self.ensemble:
            return path, self.checkpoint
        return converted(path, self.checkpoint, self.decoding, self.engine)

    def output_settings(self, model_id: str) -> dict[str, object]:
        """Returns everything that the output depends on except the input."""
        settings = {"model": model_id, "scores": self.is_numbered, **self.decoding}
        if self.token_scores:
            settings["token_scores"] = True
        if self.ensemble:
            settings["ensemble"] = ensemble_ids(self.ensemble, self.checkpoint)
        settings.pop("batch_tokens", None)  # it only changes how results are rounded
        return settings

    def run(self) -> CommandResult:
        """Translates the input; returns counts."""
        path, checkpoint = self.chosen_model()
        checkpoint, identity = model_id(path, checkpoint, self.ensemble)
        translator: Any = load(path, checkpoint, self.ensemble)
        options = dict(self.decoding)
        settings = self.output_settings(identity)
        translator.choose(**options)  # raises before any text is read
        if self.token_scores:
            options["token_scores"] = True
        if self.alignments:
            options["alignment"] = translator.alignment_head()
        end_spinner()
        start = time.monotonic()
        with (
            open_lines(self.alignments)
            if self.alignments
            else nullcontext() as alignments,
            open_output(self.output, settings, self.resume) as output,
        ):
            self._translate_lines(translator, options, output, alignments)
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
        is_run = not find_loader(path)
        if sentences and is_run and translator.text_processor.repairs_outputs:
            result["repaired"] = counts.get("repaired", 0) / sentences
        return result

    def _translate_lines(
        self,
        translator: Any,
        options: OptionValues,
        output: OutputFile,
        alignments: TextIO | None,
    ) -> None:
        """Translates the lines of the input for which there is no output yet."""
        options = dict(options)
        start_seed = options.pop("seed", 0)
        counts = {"sentences": 0, "repaired": 0, "several": 0} | output.done
        with self._progress(counts["sentences"]) as advance:
            unread = output.unread(self._input_lines())
            for lines in chunks(unread, self._is_interactive()):
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
                    if self.is_numbered:
                        scored = translator if self.token_scores else None
                        rows = list(numbered_rows(line_number, hypotheses, scored))
                    output.file.writelines(rows)
                counts["sentences"] += len(lines)
                output.save(**counts)

    def _is_interactive(self) -> bool:
        """Returns whether the input comes from a terminal."""
        return self.input is None and sys.stdin.isatty()

    def _progress(
        self, done: int
    ) -> AbstractContextManager[Callable[[int], None] | None]:
        """Shows progress, unless the output itself appears on the terminal."""
        if self._is_interactive() or (self.output is None and os.isatty(STDOUT)):
            return nullcontext()
        from t2t_keras.console import progress

        return progress("translate", "sentences", count_lines(self.input), done)

    def _input_lines(self) -> Iterator[str]:
        """Yields the lines of the input, with a prompt on a terminal."""
        if not self._is_interactive():
            yield from read_lines(self.input)
            return
        say("One sentence per line; Ctrl-D ends.")
        while True:
            print("> ", end="", file=sys.stderr, flush=True)
            line = sys.stdin.readline()
            if not line:
                print(file=sys.stderr)
                return
            yield line.removesuffix("\n")

    def show(self, result: CommandResult) -> str:
        """Says on standard error how many outputs were repaired."""
        if result.get("repaired"):
            share = f"{result['repaired']:.1%} of the outputs"
            say(f"{share} were malformed and were repaired")
        return ""

    def next_command(self) -> str:
        """Returns the command that evaluates the run, or serves the export."""
        name = "serve" if self.is_export else "evaluate"
        return f"t2t {name} {quoted(self.model)}"


COMMANDS = {"translate": Translate}

"""The command that scores given translations with a trained model: `score`."""

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from t2t_keras import load
from t2t_keras.cli.command import (
    REQUIRED,
    CheckpointFlags,
    Command,
    CommandResult,
    RunFlags,
    ensemble_flag,
    quoted,
)
from t2t_keras.cli.lines import (
    read_lines,
    require_lines,
    require_outputs,
    require_readable,
)
from t2t_keras.cli.translation import token_scores
from t2t_keras.console import table
from t2t_keras.errors import UserError
from t2t_keras.files.atomic import write_lines
from t2t_keras.options import option
from t2t_keras.run.config import require_run
from t2t_keras.text.alignment import (
    Alignment,
    Reference,
    alignment_scores,
    format_alignment,
    parse_reference,
)

if TYPE_CHECKING:
    from t2t_keras.decoding import engine
    from t2t_keras.decoding.translator import Translator


def score_row(score: "engine.Score", translator: "Translator | None" = None) -> str:
    """Returns the line of a pair, `log-probability TAB tokens`.

    Args:
        score: the score of the target.
        translator: the translator, for token scores; None: they are not written.
    """
    row = f"{score.log_prob:.6f}\t{score.tokens}"
    return row if translator is None else f"{row}\t{token_scores(translator, score)}"


@dataclasses.dataclass(kw_only=True)
class Score(RunFlags, CheckpointFlags, Command):
    """Computes the log-probabilities of given translations."""

    summary = "compute the log-probabilities of given translations"
    heading = "using a model"
    waiting = "loading the model"

    source: str = option(
        REQUIRED,
        "file of sources, one per line",
        metavar="SOURCE",
        positional=True,
        aliases=("--input",),
    )
    target: str = option(
        REQUIRED, "file of targets, one per line", metavar="TARGET", positional=True
    )
    ensemble: tuple[str, ...] = ensemble_flag()
    output: str | None = option(
        None, "write `log-probability TAB tokens` per line", metavar="FILE"
    )
    token_scores: bool = option(
        False,
        "with --output: write `TAB [[token, log-probability], ...]`, a list in JSON, "
        "at the end of each line",
    )
    alignments: str | None = option(
        None,
        "write the word alignment of each pair, such as `0-0 1-2`: source word 0 and "
        "target word 0, source word 1 and target word 2",
        metavar="FILE",
    )
    gold_alignments: str | None = option(
        None,
        "the correct alignments, for the alignment error rate; `0-0` is a sure link, "
        "`0p0` a possible one",
        metavar="FILE",
    )

    def needs_tensorflow(self) -> bool:
        """Needs it to compute log-probabilities."""
        return True

    def check(self) -> None:
        """Refuses paths that are not runs, and files that cannot be used."""
        for run in (self.output_dir, *self.ensemble):
            require_run(run)
        for path in (self.source, self.target):
            require_readable(path, "write the texts into a file, one per line")
        require_readable(self.gold_alignments)
        written = {"output": self.output, "alignments": self.alignments}
        require_outputs(
            self, {flag: [path] if path else [] for flag, path in written.items()}
        )
        if self.token_scores and not self.output:
            raise UserError(
                "--token_scores needs --output FILE, where they are written"
            )
        if self.ensemble and (self.alignments or self.gold_alignments):
            raise UserError("an ensemble has no alignments; leave out --ensemble")

    def _read_pairs(self) -> tuple[list[str], list[str], list[Reference]]:
        """Returns the sources, the targets and the correct alignments."""
        sources = list(read_lines(self.source))
        targets = list(read_lines(self.target))
        require_lines({self.target: targets}, self.source, sources)
        if not sources:
            raise UserError(f"{self.source} is empty")
        gold = []
        if path := self.gold_alignments:
            lines = list(read_lines(path))
            require_lines({path: lines}, self.source, sources)
            for line_number, line in enumerate(lines, 1):
                gold.append(parse_reference(line, f"{path}, line {line_number}"))
        return sources, targets, gold

    def run(self) -> CommandResult:
        """Scores the pairs; returns their log-probability and perplexity."""
        from t2t_keras.decoding.translator import Translator

        sources, targets, gold = self._read_pairs()
        translator = load(self.output_dir, self.checkpoint, self.ensemble)
        assert isinstance(translator, Translator)  # an export has no run directory
        alignments: list[Alignment] = []
        if self.alignments or gold:
            alignments = translator.align(sources, targets)
        scores = translator.score(sources, targets)
        if self.output:
            scored = translator if self.token_scores else None
            write_lines(self.output, [score_row(score, scored) for score in scores])
        if self.alignments:
            write_lines(self.alignments, map(format_alignment, alignments))
        log_prob = math.fsum(score.log_prob for score in scores)
        tokens = sum(score.tokens for score in scores)
        result: dict[str, Any] = {
            "log_prob": log_prob,
            "tokens": tokens,
            "perplexity": math.exp(min(-log_prob / tokens, 700.0)),
        }
        return result | (alignment_scores(alignments, gold) if gold else {})

    def show(self, result: CommandResult) -> str:
        """Formats the numbers."""
        return table(result)

    def next_command(self) -> str:
        """Returns the command that evaluates the run."""
        return f"t2t evaluate {quoted(self.output_dir)}"


COMMANDS = {"score": Score}

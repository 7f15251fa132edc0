"""`t2t page`: the page of a run."""

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_keras.cli.command import Command, add_run, export_command
from t2t_keras.cli.lines import require_outputs
from t2t_keras.console import progress, say, say_page
from t2t_keras.errors import UserError
from t2t_keras.files.atomic import open_lines
from t2t_keras.run.config import require_run
from t2t_keras.run.history import DevSamples, samples_of
from t2t_keras.text.sentences import is_blank

from .run_facts import RunFacts, read_run

if TYPE_CHECKING:
    from t2t_keras.decoding.graph_engine import ModelTranslator
    from t2t_keras.run.directory import RunDirectory

    from .sentence_attention import SentenceAttention

PAGE_NAME = "page.html"

# How many sentences of dev are decoded if a run has recorded none.
_SENTENCES = 100
# The attention of a sentence of about so many characters can be read on a screen.
_CHARACTERS = 60


def _page_flags(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument(
        "--output", metavar="FILE", help="the page (default: page.html in the run)"
    )
    parser.add_argument(
        "--data_dir",
        metavar="DIR",
        help="the data (default: those of the training), for the sentences of a run "
        "that has recorded none",
    )


def _check_page(args: argparse.Namespace) -> None:
    require_run(args.output_dir)
    require_outputs(args, {"output": [args.output] if args.output else []})


def _page(args: argparse.Namespace) -> dict[str, Any]:
    from t2t_keras.run.checkpoint import Checkpoint
    from t2t_keras.run.directory import RunDirectory

    run = RunDirectory(args.output_dir)
    facts = read_run(run.path)
    translator = run.translator(args.checkpoint)
    if not facts.samples:
        step = Checkpoint(run.checkpoint_path(args.checkpoint)).step
        samples = _decode_samples(run, translator, args.data_dir, step)
        facts = dataclasses.replace(facts, samples=samples)
    path = Path(args.output or run.path / PAGE_NAME)
    attention = sample_attention(translator, facts.samples)
    write_page(path, facts, attention, is_live=False)
    say_page(path)
    return {"page": str(path), "bytes": path.stat().st_size}


def _decode_samples(
    run: "RunDirectory", translator: "ModelTranslator", data_dir: str | None, step: int
) -> list[DevSamples]:
    """Returns some sentences of dev; none if the data are no longer there."""
    from t2t_keras.run.evaluation import open_split

    try:
        evaluator = open_split(run, translator, "dev", data_dir)
    except UserError as error:
        if data_dir:
            raise
        say(f"the page has no sentences: {error}")
        return []
    decoded = evaluator.decode(_SENTENCES, progress)
    return [samples_of(step, evaluator.problem, decoded)]


def sample_attention(
    translator: "ModelTranslator", samples: Sequence[DevSamples]
) -> "SentenceAttention | None":
    """Returns the attention for a sentence of the newest evaluation, if there is one.

    The target is the model's output, or the reference if the output is blank.

    Args:
        translator: the model with its tokenizers.
        samples: the evaluations.
    """
    from .sentence_attention import sentence_attention

    sentences = samples[-1].samples if samples else []
    if not sentences:
        return None
    sample = min(sentences, key=lambda sample: abs(len(sample.source) - _CHARACTERS))
    # Early in a training, outputs may be empty.
    target = sample.reference if is_blank(sample.output) else sample.output
    try:
        return sentence_attention(translator, sample.source, target)
    except UserError:  # such as an output that is not a tree
        return None


def write_page(
    path: Path,
    facts: RunFacts,
    attention: "SentenceAttention | None",
    is_live: bool,
) -> None:
    """Writes the page of a run, atomically; see `run_page`."""
    from .run_page import run_page

    with open_lines(path) as file:
        file.write(run_page(facts, attention, is_live))


COMMAND = Command(
    "write a run's page: curves, sentences, attention, costs",
    _page_flags,
    _page,
    lambda result: "",  # `say_page` has named the page
    uses_tensorflow=True,
    check=_check_page,
    waiting="drawing the page",
    next_command=export_command,
    group="judging a model",
    words_hint="name the file that is written: --output FILE",
)

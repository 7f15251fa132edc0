"""The page of a run: curves, sentences, attention, costs and settings, in one file.

`t2t page` writes it, and `t2t train --page` keeps it up to date during the training.
"""

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from t2t_keras.cli.command import (
    CheckpointFlags,
    Command,
    CommandResult,
    RunFlags,
    export_command,
)
from t2t_keras.cli.lines import require_outputs
from t2t_keras.console import progress, say, say_page, short_number
from t2t_keras.errors import UserError, quantity
from t2t_keras.evaluation.bleu import metrics_of
from t2t_keras.files.atomic import open_lines
from t2t_keras.options import option
from t2t_keras.pages import templates
from t2t_keras.run.config import require_run
from t2t_keras.run.history import DevSamples, Sample, samples_of
from t2t_keras.text.sentences import is_blank
from t2t_keras.training.hooks import Hook, HookPlugin

from .attention import Picture, SentenceAttention, pictures, sentence_attention
from .charts import Curve, line_chart
from .run_facts import RunFacts, read_run, set_rows, values
from .text_differences import mark_differences

if TYPE_CHECKING:
    from t2t_keras.decoding.graph_engine import ModelTranslator
    from t2t_keras.evaluation.evaluator import Evaluator
    from t2t_keras.run.checkpoint import CheckpointDirectory
    from t2t_keras.run.directory import RunDirectory

PAGE_NAME = "page.html"

# How many sentences of dev are decoded if a run has recorded none.
_SENTENCES = 100
# The attention of a sentence of about so many characters can be read on a screen.
_CHARACTERS = 60
# A page stays below a megabyte: all texts together have about this many characters, a
# single one at most so many; and weights are a byte each.
_MAX_CHARACTERS = 120_000
_MAX_TEXT = 1_000
_MAX_EVALUATIONS = 40
_MAX_WEIGHTS = 300_000
# The page is written at most this often, because reading long records takes a while.
_SECONDS_BETWEEN_PAGES = 10.0


def run_page(
    facts: RunFacts, attention: SentenceAttention | None = None, is_live: bool = False
) -> str:
    """Returns the page of a run.

    Args:
        facts: the settings and the records of the run.
        attention: the attention weights for one sentence of dev; None: they are left
            out.
        is_live: whether the training still runs, so that the page reloads itself.
    """
    costs = facts.costs()
    shown = _pictures(attention) if attention else []
    page = templates(Path(__file__).parent).get_template("run_page.html")
    return page.render(
        title=facts.path.name,
        subtitle=_subtitle(facts, is_live),
        is_live=is_live,
        figures=_figures(facts, costs),
        charts=_charts(facts),
        samples=_samples(facts.samples),
        attention=attention,
        pictures=[picture.drawn() for picture in shown],
        costs=costs,
        settings=_settings(facts),
        hparams=dataclasses.asdict(facts.hparams),
        command=facts.training_command(),
    )


def _subtitle(facts: RunFacts, is_live: bool) -> str:
    parts = [facts.config.problem, facts.config.hparams_set]
    if facts.config.languages:
        parts.insert(1, " → ".join(facts.config.languages))
    if is_live:
        parts.append("in training")
    elif facts.sessions:
        record = facts.sessions[-1]
        parts.append(f"{record.get('date')}, ended by {record.get('stopped_by')}")
    return " · ".join(parts)


def _figures(facts: RunFacts, costs: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Returns the figures at the top: name, value, and a remark in small letters."""
    dev = facts.records["dev"]
    metrics = metrics_of(facts.problem)
    name = metrics.selection_metric
    figures = []
    if points := values(dev, name):
        sign = 1 if metrics.higher_is_better else -1
        best_step, best = max(points, key=lambda point: sign * point[1])
        figures.append(
            (
                f"best {_shown(name)} on dev",
                short_number(best),
                f"at step {best_step:,}",
            )
        )
    if losses := values(dev, "nll"):
        nll = min(value for _, value in losses)
        perplexity = short_number(math.exp(min(nll, 700.0)))
        figures.append(
            ("lowest nll on dev", short_number(nll), f"perplexity {perplexity}")
        )
    figures.append(("step", f"{facts.step:,}", f"of {facts.hparams.train_steps:,}"))
    if time := costs.get("time of the steps"):
        figures.append(("training time", time, "without evaluations"))
    if rate := costs.get("target tokens a second"):
        figures.append(("target tokens/s", rate, "mean of all steps"))
    if parameters := costs.get("parameters"):
        figures.append(("parameters", parameters, ""))
    return figures


def _shown(metric: str) -> str:
    return metric.upper() if len(metric) <= 4 else metric


def _charts(facts: RunFacts) -> list[str]:
    train = facts.records["train"]
    dev = facts.records["dev"]
    metric = metrics_of(facts.problem).selection_metric
    losses = [
        Curve("train", values(train, "nll")),
        Curve("dev", values(dev, "nll"), is_marked=True),
    ]
    scores = [Curve("dev", values(dev, metric), is_marked=True)]
    rates = [Curve("rate", values(train, "learning_rate"))]
    speeds = [Curve("target", values(train, "target_tokens_per_s"))]
    charts = [
        line_chart("nll (nats per token)", losses, facts.step),
        line_chart(f"{_shown(metric)} on dev", scores, facts.step, from_zero=True),
        line_chart("Learning rate", rates, facts.step, from_zero=True),
        line_chart("Target tokens/s", speeds, facts.step, from_zero=True),
    ]
    return [chart for chart in charts if chart]


def _pictures(attention: SentenceAttention) -> list[Picture]:
    """Returns all kinds of attention if they fit, or cross-attention."""
    shown = pictures(attention)
    if sum(picture.weights.size for picture in shown) > _MAX_WEIGHTS:
        shown = shown[:1]
    if shown and shown[0].weights.size > _MAX_WEIGHTS:
        shown = [shown[0]._replace(weights=shown[0].weights[-1:])]
    return [picture for picture in shown if picture.weights.size <= _MAX_WEIGHTS]


def _settings(facts: RunFacts) -> dict[str, object]:
    config = facts.config
    rows: dict[str, object] = {**set_rows(config, facts.hparams)}
    rows |= {"seed": config.seed, **facts.data_rows()}
    for name in ("init_from", "usr_dir"):
        if value := getattr(config, name):
            rows[name] = value
    return rows


class _ShownSample(NamedTuple):
    """A sentence of dev on the page.

    Attributes:
        heading: its line.
        score: the metric and its score; "": it has none.
        texts: texts by their names.
        outputs: the steps with the same output, and that output with its differences
            from the one before marked; the newest first.
    """

    heading: str
    score: str
    texts: list[tuple[str, str]]
    outputs: list[tuple[str, str]]

    @property
    def earlier(self) -> str:
        """How many outputs there were before the newest one."""
        return quantity(len(self.outputs) - 1, "earlier outputs")


def _samples(evaluations: Sequence[DevSamples]) -> dict[str, object]:
    """Returns what the page shows of the sentences of dev; {}: there are none."""
    if not evaluations:
        return {}
    newest = evaluations[-1]
    spread = _spread(evaluations)

    def shown(
        sample: Sample, output: str = "", outputs: Sequence[tuple[str, str]] = ()
    ) -> _ShownSample:
        score = ""
        if sample.score is not None:
            score = f"{_shown(newest.metric)} {short_number(sample.score)}"
        texts = [("source", _cut(sample.source)), ("reference", _cut(sample.reference))]
        if output:
            texts.append(("output", output))
        return _ShownSample(f"Line {sample.line:,}", score, texts, list(outputs))

    def against_reference(sample: Sample) -> _ShownSample:
        marked = mark_differences(_cut(sample.reference), _cut(sample.output))
        return shown(sample, marked or "(empty)")

    return {
        "step": newest.step,
        "every": [shown(x, outputs=_outputs(x, spread)) for x in newest.samples],
        "worst": list(map(against_reference, newest.worst)),
        "best": list(map(against_reference, newest.best)),
    }


def _spread(evaluations: Sequence[DevSamples]) -> list[DevSamples]:
    """Returns as many evaluations as fit on a page, at equal distances to the last."""
    newest = evaluations[-1].samples
    characters = sum(len(_cut(sample.output)) for sample in newest)
    count = min(_MAX_EVALUATIONS, max(2, _MAX_CHARACTERS // max(characters, 1)))
    size = -(-len(evaluations) // count)
    return list(evaluations[::-1][::size])[::-1]


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]} …"


def _outputs(
    sample: Sample, evaluations: Sequence[DevSamples]
) -> list[tuple[str, str]]:
    """Returns the outputs of a sentence, see `_ShownSample`."""
    spans: list[tuple[int, int, str]] = []
    for evaluation in evaluations:
        for same in evaluation.samples:
            if same.line != sample.line:
                continue
            text = _cut(same.output)
            first_step = evaluation.step
            if spans and spans[-1][2] == text:
                first_step, _, _ = spans.pop()
            spans.append((first_step, evaluation.step, text))
    rows = []
    previous_text = None
    for first_step, last_step, text in spans:
        steps = f"step {last_step:,}"
        if last_step != first_step:
            steps = f"{first_step:,} to {last_step:,}"
        marked = text
        if previous_text is not None:
            marked = mark_differences(previous_text, text)
        rows.append((steps, marked or "(empty)"))
        previous_text = text
    return rows[::-1]


def write_page(
    path: Path,
    facts: RunFacts,
    attention: SentenceAttention | None,
    is_live: bool,
) -> None:
    """Writes the page of a run, atomically; see `run_page`."""
    with open_lines(path) as file:
        file.write(run_page(facts, attention, is_live))


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
) -> SentenceAttention | None:
    """Returns the attention for a sentence of the newest evaluation, if there is one.

    The target is the model's output, or the reference if the output is blank.

    Args:
        translator: the model with its tokenizers.
        samples: the evaluations.
    """
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


@dataclasses.dataclass(kw_only=True)
class Page(CheckpointFlags, RunFlags, Command):
    """Writes the page of a run."""

    summary = "write a run's page: curves, sentences, attention, costs"
    heading = "judging a model"
    waiting = "drawing the page"
    words_hint = "name the file that is written: --output FILE"

    output: str | None = option(
        None, "the page (default: page.html in the run)", metavar="FILE"
    )
    data_dir: str | None = option(
        None,
        "the data (default: as in training), for the sentences of a run that "
        "has recorded none",
        metavar="DIR",
    )

    def needs_tensorflow(self) -> bool:
        """Needs it to read the checkpoint."""
        return True

    def check(self) -> None:
        """Refuses a path that is not a run, and a file that cannot be written."""
        require_run(self.output_dir)
        require_outputs(self, {"output": [self.output] if self.output else []})

    def run(self) -> CommandResult:
        """Returns the path of the page, which `say_page` names, and its size."""
        from t2t_keras.run.checkpoint import Checkpoint
        from t2t_keras.run.directory import RunDirectory

        run = RunDirectory(self.output_dir)
        facts = read_run(run.path)
        translator = run.translator(self.checkpoint)
        if not facts.samples:
            step = Checkpoint(run.checkpoint_path(self.checkpoint)).step
            samples = _decode_samples(run, translator, self.data_dir, step)
            facts = dataclasses.replace(facts, samples=samples)
        path = Path(self.output or run.path / PAGE_NAME)
        attention = sample_attention(translator, facts.samples)
        write_page(path, facts, attention, is_live=False)
        say_page(path)
        return {"page": str(path), "bytes": path.stat().st_size}

    def next_command(self) -> str:
        """Returns the command that exports the model."""
        return export_command(self.output_dir, self.checkpoint)


COMMAND = Page


class PageHook(Hook):
    """Writes `page.html`; it comes after the hooks that write what it reads.

    Args:
        checkpoints: the checkpoints in the run directory.
        evaluator: the evaluator of dev, whose model gives the attention weights; None:
            there is no dev split.
    """

    def __init__(
        self, checkpoints: "CheckpointDirectory", evaluator: "Evaluator | None"
    ) -> None:
        self._checkpoints = checkpoints
        self._run_dir = checkpoints.directory
        self._path = self._run_dir / PAGE_NAME
        self._evaluator = evaluator
        self._facts: RunFacts | None = None
        self._attention: SentenceAttention | None = None
        self._last_written = 0.0
        self._last_error = ""

    def on_train_begin(self) -> None:
        """Writes the first page, and says where it is."""
        self._write(is_live=True)
        say_page(self._path)

    def on_report(self, step: int, metrics: dict[str, float]) -> None:
        """Writes the page, unless it has just been written."""
        if time.monotonic() - self._last_written > _SECONDS_BETWEEN_PAGES:
            self._write(is_live=True)

    def on_eval(self, step: int, label: str, metrics: dict[str, float]) -> None:
        """Writes the page with the sentences and the attention of this step."""
        if label == "dev":
            self._write(is_live=True, draws_attention=True)

    def close(self) -> None:
        """Writes the page for the last time."""
        self._write(is_live=False)

    def _write(self, is_live: bool, draws_attention: bool = False) -> None:
        """Writes the page; a training of days must not end because that fails."""
        try:
            self._checkpoints.require_place()
            # Only the logs change while the training runs.
            if self._facts is None:
                self._facts = read_run(self._run_dir, warns=False)
            else:
                self._facts = self._facts.updated()
            if draws_attention:
                self._draw_attention(self._facts)
            write_page(self._path, self._facts, self._attention, is_live)
        except Exception as error:
            message = f"the page is not written: {type(error).__name__}: {error}"
            if message != self._last_error:
                say(message)
            self._last_error = message
        self._last_written = time.monotonic()

    def _draw_attention(self, facts: RunFacts) -> None:
        """Computes the attention; without it, the page has all its other sections."""
        if self._evaluator is None:
            return
        try:
            translator = self._evaluator.translator
            self._attention = sample_attention(translator, facts.samples)
        except Exception as error:
            say(f"the page has no attention: {type(error).__name__}: {error}")
            self._evaluator = None


LIVE_PAGE = HookPlugin(
    "write page.html in the run directory, with curves, sentences and attention, and "
    "keep it up to date; a browser shows it without a server",
    lambda run, evaluator: PageHook(run.checkpoints, evaluator),
)

"""The actor that translates or scores batches of lines."""

import dataclasses
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import ray

from t2t_keras import load
from t2t_keras.cli.command import MAX_SEED, quoted
from t2t_keras.cli.translation import numbered_rows, score_row
from t2t_keras.devices import PYTHON_CPU_COUNT
from t2t_keras.errors import UserError
from t2t_keras.options import OptionValues
from t2t_keras.usr_dir import load_usr_dir

from .model_files import Model
from .windows import Line

if TYPE_CHECKING:
    from t2t_keras.decoding.translator import Translator


@dataclasses.dataclass(frozen=True)
class Request:
    """The model, and what is asked of it.

    Attributes:
        model: the model.
        weights: the `weight_ids` of the model.
        options: the decoding options that are given.
        scores_pairs: whether pairs are scored, and texts are not translated.
        is_numbered: whether rows have line numbers, ranks and scores.
        token_scores: whether rows have the log-probabilities of tokens.
        cores: the number of cores that a worker may use.
    """

    model: Model
    weights: tuple[str, ...]
    options: OptionValues
    scores_pairs: bool = False
    is_numbered: bool = False
    token_scores: bool = False
    cores: int = 1


class Outcome(NamedTuple):
    """What a worker returns for a batch.

    Attributes:
        rows: what is written for each line, with line ends.
        counts: sums over the lines, by name.
    """

    rows: list[str]
    counts: dict[str, int]


class TextWorker:
    """A process with the model.

    Args:
        request: the model, and what is asked of it.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self._translator: Any = None

    def alive(self) -> bool:
        """Returns true: the process runs."""
        return True

    def start(self, good_line: Line | None = None) -> str:
        """Loads the model; returns the node that has this process.

        Args:
            good_line: a line that is computed, so that an error shows at once; None:
                none is.

        Raises:
            UserError: the model cannot be loaded, or is not that of the request.
        """
        self._load()
        if good_line is not None:
            self.compute([good_line])
        node: str = ray.get_runtime_context().get_node_id()
        return node

    def _load(self) -> None:
        """Loads the model, unless that is done."""
        if self._translator is not None:
            return
        request = self._request
        limit_cores(request.cores)
        model = request.model
        if model.usr_dir:
            load_usr_dir(model.usr_dir)
        translator = load(model.directory, model.checkpoint, model.ensemble)
        if model.weight_ids() != request.weights:
            raise _replaced_weights(model)
        translator.choose(**request.options)
        self._translator = translator

    def compute(self, lines: Sequence[Line], seed_offset: int = 0) -> Outcome:
        """Returns the rows of some lines.

        Args:
            lines: the lines, none of them faulty.
            seed_offset: what is added to the seed of samples.
        """
        self._load()
        if self._request.scores_pairs:
            return self._score(lines)
        return self._translate(lines, seed_offset)

    def _translate(self, lines: Sequence[Line], seed_offset: int) -> Outcome:
        request = self._request
        options = dict(request.options)
        if options.get("sampling"):
            options["seed"] = (options.get("seed", 0) + seed_offset) % MAX_SEED
        if request.token_scores:
            options["token_scores"] = True
        outputs = self._translator.n_best([line.texts[0] for line in lines], **options)
        counts = {"truncated": 0, "repaired": 0}
        rows = []
        for line, hypotheses in zip(lines, outputs, strict=True):
            counts["truncated"] += hypotheses[0].is_truncated
            counts["repaired"] += hypotheses[0].is_repaired
            row = f"{hypotheses[0].text}\n"
            if request.is_numbered:
                scored = self._translator if request.token_scores else None
                row = "".join(numbered_rows(line.number, hypotheses, scored))
            rows.append(row)
        return Outcome(rows, counts)

    def _score(self, lines: Sequence[Line]) -> Outcome:
        translator: Translator = self._translator
        sources, targets = zip(*(line.texts for line in lines), strict=True)
        counts = {"truncated": 0}
        rows = []
        for score in translator.score(sources, targets):
            counts["truncated"] += score.is_truncated
            scored = translator if self._request.token_scores else None
            rows.append(f"{score_row(score, scored)}\n")
        return Outcome(rows, counts)


def _replaced_weights(model: Model) -> UserError:
    """Returns the error of a model whose checkpoint is another one by now."""
    advice = "wait for the end of the training"
    if model.checkpoint != "ema":
        advice = f"name a step, or {advice}"
    elif not model.ensemble:
        # A checkpoint that is named by its step has no moving average.
        export = f"t2t export {quoted(model.directory)} DIR --checkpoint ema"
        advice = f"use an export of it (`{export}`), or {advice}"
    return UserError(
        f"{model.checkpoint or 'the newest checkpoint'} of "
        f"{', '.join((model.directory, *model.ensemble))} is no longer what it was "
        f"when the command began: a training writes there; {advice}"
    )


def limit_cores(cores: int) -> None:
    """Makes the libraries of this process use some cores; called before they load."""
    os.environ[PYTHON_CPU_COUNT] = str(cores)
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["TF_NUM_INTRAOP_THREADS"] = str(cores)
    os.environ["TF_NUM_INTEROP_THREADS"] = str(cores)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")

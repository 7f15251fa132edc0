"""Evaluation on a held-out split: loss with the labels given, and real decoding."""

import dataclasses
import math
from pathlib import Path
from typing import Any, NamedTuple, Self

import tensorflow as tf

from t2t_keras.data.manifest import Manifest
from t2t_keras.data.pipeline import elements, ordered_batches, read_pairs
from t2t_keras.data.progress import Meter, unwatched
from t2t_keras.data.records import RecordIndex
from t2t_keras.decoding.translator import Translator
from t2t_keras.errors import UserError
from t2t_keras.evaluation.metrics import score_outputs
from t2t_keras.model.transformer import Transformer
from t2t_keras.problem import Split
from t2t_keras.training.loss import (
    count_tokens,
    sum_over_tokens,
    summed_cross_entropies,
)
from t2t_keras.training.run_dir import RunDirectory


@dataclasses.dataclass(frozen=True)
class HeldOutLoss:
    """Means over all target tokens, EOS included."""

    loss: float  # negative log-likelihood in nats, without label smoothing
    accuracy: float  # share of tokens that have the highest logit

    @property
    def perplexity(self) -> float:
        """Perplexity per piece: exp(loss)."""
        return math.exp(min(self.loss, 700.0))

    def to_dict(self) -> dict[str, float]:
        """Returns all three by name."""
        return {
            "loss": self.loss,
            "perplexity": self.perplexity,
            "accuracy": self.accuracy,
        }


class Decoded(NamedTuple):
    """Sentences of a split and their outputs, line by line.

    Attributes:
        sources: the texts.
        references: what the data have for them.
        outputs: what the model has.
        repaired: the share of the outputs that were no trees over the words and were
            repaired; 0 for a problem of text.
    """

    sources: list[str]
    references: list[str]
    outputs: list[str]
    repaired: float


class HeldOut:
    """A split of the data, prepared for evaluating a model again and again."""

    def __init__(
        self,
        index: RecordIndex,
        model: Transformer,
        reverse: bool = False,
        name: str = "held-out",
    ) -> None:
        if not len(index):
            raise UserError("the split has not a single example; generate it anew")
        self._index = index
        self._reverse = reverse
        self._name = name
        longest = max(index.source_length.max(), index.target_length.max())
        self._batch_tokens = max(4096, int(longest))

        @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2)
        def sums(source: tf.Tensor, target: tf.Tensor) -> tuple[tf.Tensor, ...]:
            logits = model(source, target)
            is_best = tf.equal(tf.argmax(logits, -1, tf.int32), target)
            return (
                summed_cross_entropies(logits, target, smoothing=0.0)[1],
                sum_over_tokens(tf.cast(is_best, tf.float32), target),
                count_tokens(target),
            )

        self._sums = sums

    @classmethod
    def of_run(
        cls,
        run: RunDirectory,
        model: Transformer,
        split: Split,
        data_dir: str | Path | None = None,
    ) -> Self:
        """Opens a split for the model of a run.

        Args:
            run: whose problem it is.
            model: the run's, with whatever weights.
            split: of the problem's data.
            data_dir: where the data are; None: where they were for training.

        Raises:
            UserError: there are no such data, or they were made with another
                vocabulary.
        """
        data_dir = Path(data_dir or run.config.data_dir)
        problem = run.problem
        hashes = Manifest.open(data_dir, problem.data_name).vocab_sha256
        if hashes != run.config.vocab_sha256:
            raise UserError(
                f"--data_dir: {data_dir} was made with another vocabulary than "
                f"{run.path}"
            )
        index = RecordIndex.open(data_dir, problem.data_name, split)
        return cls(index, model, problem.reverse, split)

    def loss(self, meter: Meter = unwatched) -> HeldOutLoss:
        """Returns loss and accuracy over the whole split.

        Args:
            meter: shows how far it is.
        """
        batches = ordered_batches(self._index, self._batch_tokens, self._reverse)
        totals = [0.0, 0.0, 0.0]
        count = len(self._index)
        with meter(f"loss on {self._name}", "sentences", count) as advance:
            for source, target in elements(batches, self._index):
                for i, value in enumerate(self._sums(source, target)):
                    totals[i] += float(value)
                advance(len(source))
        loss, correct, tokens = totals
        return HeldOutLoss(loss / tokens, correct / tokens)

    def metrics(
        self,
        translator: Translator,
        sentences: int | None = None,
        meter: Meter = unwatched,
        **options: Any,
    ) -> dict[str, float]:
        """Decodes the first (or all) sentences and scores them.

        Args:
            translator: around the model.
            sentences: how many, at least 1.
            meter: shows how far it is.
            **options: of the decoding; the problem's are the defaults.

        Returns:
            As `evaluation.metrics.score_outputs`: BLEU or F1, in percent; of trees also
            "repaired", the share of the outputs that were.
        """
        problem = translator.problem
        decoded = self.decode(translator, sentences, meter, **options)
        scores = score_outputs(problem, decoded.outputs, decoded.references)
        if problem.output == "trees":
            scores["repaired"] = decoded.repaired
        return scores

    def decode(
        self,
        translator: Translator,
        sentences: int | None = None,
        meter: Meter = unwatched,
        **options: Any,
    ) -> Decoded:
        """Decodes the first (or all) sentences; arguments as in `metrics`."""
        sources, references = self.texts(translator, sentences)
        with meter(f"decoding {self._name}", "sentences", len(sources)) as advance:
            found = translator.n_best(sources, advance=advance, **options)
        best = [outputs[0] for outputs in found]
        repaired = sum(output.is_repaired for output in best) / len(best)
        return Decoded(sources, references, [output.text for output in best], repaired)

    def texts(
        self, translator: Translator, sentences: int | None = None
    ) -> tuple[list[str], list[str]]:
        """Returns the source texts and references of the first (or all) records."""
        count = len(self._index.source_length)
        pairs = read_pairs(self._index, range(min(sentences or count, count)))
        sources, references = [], []
        for source, target in pairs:
            if self._reverse:
                source, target = target, source
            sources.append(translator.source_tokenizer.decode(source))
            reference = translator.target_tokenizer.decode(target)
            references.append(translator.problem.postprocess(sources[-1], reference))
        return sources, references

"""The evaluator: loss by teacher forcing, and metrics of decoded outputs."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import tensorflow as tf

from t2t_keras.data.files import write_lines
from t2t_keras.data.manifest import Manifest
from t2t_keras.data.pipeline import elements, ordered_batches, read_pairs
from t2t_keras.data.progress import Meter, progress, unwatched
from t2t_keras.data.records import RecordIndex, read_texts
from t2t_keras.decoding.translator import Translator
from t2t_keras.errors import UserError
from t2t_keras.model.loss import count_tokens, sum_over_tokens, summed_cross_entropies
from t2t_keras.problem import Problem, Split
from t2t_keras.runs.checkpoint import Checkpoint
from t2t_keras.runs.run_dir import RunDirectory
from t2t_keras.runs.run_records import record


class Decoded(NamedTuple):
    """Sentences of a split and the model's outputs, line by line.

    Attributes:
        sources: the source texts.
        references: their targets in the data.
        outputs: the model's outputs.
        repaired: {"repaired": the share of the outputs that the problem's text form had
            to repair}; {} if it repairs no outputs.
    """

    sources: list[str]
    references: list[str]
    outputs: list[str]
    repaired: dict[str, float]


class Evaluator:
    """Evaluates a model on one split, with the weights that it has at each call.

    Args:
        translator: the translator with the model.
        index: the records of the split.
        texts: the raw sources and targets of the records, see `read_texts`; None: they
            are decoded from the records.
        name: name of the split, for messages.
    """

    def __init__(
        self,
        translator: Translator,
        index: RecordIndex,
        texts: tuple[list[str], list[str]] | None = None,
        name: str = "held-out",
    ) -> None:
        if not len(index):
            raise UserError("the split has no examples; generate it anew")
        self.translator = translator
        self.problem = translator.problem
        self._index = index
        self._texts = texts
        self._name = name
        longest = max(index.source_length.max(), index.target_length.max())
        self._batch_tokens = max(4096, int(longest))
        model = translator.model

        ids = tf.TensorSpec([None, None], tf.int32)

        @tf.function(input_signature=[ids, ids], autograph=False)
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
    def open(
        cls,
        run: RunDirectory,
        translator: Translator,
        split: Split,
        data_dir: str | Path | None = None,
    ) -> Self:
        """Opens a split for the model of a run.

        Args:
            run: the run directory.
            translator: a translator with the run's model, with any weights.
            split: the split of the problem's data.
            data_dir: the data directory; None: the one used in training.

        Raises:
            UserError: there are no such data, or they were made with another
                vocabulary.
        """
        data_dir = Path(data_dir or run.config.data_dir)
        problem = translator.problem
        hashes = Manifest.open(data_dir, problem.data_name).vocab_sha256
        if hashes != run.config.vocab_sha256:
            raise UserError(
                f"--data_dir: {data_dir} was made with another vocabulary than "
                f"{run.path}"
            )
        name = problem.data_name
        index = RecordIndex.open(data_dir, name, split, problem.reverse)
        texts = read_texts(data_dir, name, split, index)
        return cls(translator, index, texts, split)

    def loss(self, meter: Meter = unwatched) -> dict[str, float]:
        """Returns the loss on the whole split, a mean over all tokens, EOS included.

        Args:
            meter: shows progress.

        Returns:
            "loss", the negative log-likelihood in nats, without label smoothing;
            "perplexity"; and "accuracy", the share of tokens with the highest logit.
        """
        batches = ordered_batches(self._index, self._batch_tokens)
        totals = [0.0, 0.0, 0.0]
        count = len(self._index)
        with meter(f"loss on {self._name}", "sentences", count) as advance:
            for source, target in elements(batches, self._index):
                for i, value in enumerate(self._sums(source, target)):
                    totals[i] += float(value)
                advance(len(source))
        loss, correct, tokens = totals
        return {
            "loss": loss / tokens,
            "perplexity": math.exp(min(loss / tokens, 700.0)),
            "accuracy": correct / tokens,
        }

    def decode(self, sentences: int | None, meter: Meter, **options: Any) -> Decoded:
        """Decodes the first sentences of the split, or all.

        Args:
            sentences: number of sentences, at least 1; None: all.
            meter: shows progress.
            **options: decoding options; the defaults are the problem's.
        """
        translator, text_form = self.translator, self.problem.text_form
        count = min(sentences or len(self._index), len(self._index))
        pairs = list(read_pairs(self._index, range(count)))
        ids = [source for source, _ in pairs]
        texts = self._texts
        if texts is None:
            texts = (
                list(map(translator.source_tokenizer.decode, ids)),
                [translator.target_tokenizer.decode(target) for _, target in pairs],
            )
        sources, targets = (side[:count] for side in texts)
        references = [
            text_form.output_text(*pair)[0]
            for pair in zip(sources, targets, strict=True)
        ]
        with meter(f"decoding {self._name}", "sentences", count) as advance:
            found = translator.decode(ids, sources, advance=advance, **options)
        best = [outputs[0] for outputs in found]
        repaired = {}
        if text_form.repairs_outputs:
            repaired["repaired"] = sum(output.is_repaired for output in best) / count
        return Decoded(sources, references, [output.text for output in best], repaired)

    def metrics(
        self, sentences: int | None, meter: Meter, **options: Any
    ) -> dict[str, float]:
        """Returns the loss, and the scores of decoded sentences.

        Args:
            sentences: see `decode`; 0: only the loss.
            meter: shows progress.
            **options: decoding options; the defaults are the problem's.

        Returns:
            What `loss` returns; the problem's metrics; and "repaired" if the text form
            repairs outputs.
        """
        metrics = self.loss(meter)
        if sentences != 0:
            decoded = self.decode(sentences, meter, **options)
            sources, references, outputs, repaired = decoded
            scores = self.problem.metrics.score(sources, outputs, references)
            metrics |= scores | repaired
        return metrics


def evaluate(
    run: RunDirectory,
    split: Split,
    problem: Problem | None = None,
    *,
    checkpoint: str | int | Path | None = None,
    data_dir: str | Path | None = None,
    sentences: int | None = None,
    write: str | Path | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Evaluates one checkpoint on a split: all metrics, and the loss.

    Args:
        run: the run directory.
        split: the split of its data.
        problem: the run's problem, which may have other metrics; None: the run's.
        checkpoint: see `RunDirectory.restore`.
        data_dir: see `Evaluator.open`.
        sentences: number of sentences to decode; None: all; 0: only the loss.
        write: prefix of the files to which the decoded sentences are written:
            `{write}.source`, `.reference` and `.hypothesis`.
        **options: decoding options; the defaults are the problem's.

    Returns:
        "sentences", the number of decoded ones; what `Metrics.report` returns for them;
        "repaired" if the text form repairs outputs; and "loss", "perplexity" and
        "accuracy" on the whole split. The history of the run keeps them.

    Raises:
        UserError: there is no such checkpoint, or there are no such data.
    """
    problem = problem or run.problem
    # Now, because a training may write others and delete this one meanwhile.
    path = run.checkpoints.find("latest" if checkpoint == "ema" else checkpoint)
    step = Checkpoint(path).step
    translator = run.translator("ema" if checkpoint == "ema" else path)
    evaluator = Evaluator.open(run, translator, split, data_dir)
    result: dict[str, Any] = {"sentences": 0}
    if sentences != 0:
        decoded = evaluator.decode(sentences, progress, **options)
        sources, references, outputs, repaired = decoded
        if write:
            write_lines(f"{write}.source", sources)
            write_lines(f"{write}.reference", references)
            write_lines(f"{write}.hypothesis", outputs)
        result["sentences"] = len(outputs)
        result |= problem.metrics.report(sources, outputs, references)
        result |= repaired
    result |= evaluator.loss(progress)
    name = path.name if path.parent.resolve() == run.path.resolve() else str(path)
    if checkpoint == "ema":
        name = "ema"
    manifest = Manifest.open(Path(data_dir or run.config.data_dir), problem.data_name)
    chosen = translator.choose(**options)
    record(
        run,
        "evaluation",
        checkpoint=name,
        step=step,
        split=split,
        data=manifest.fingerprints(split)[0],
        sentences=result["sentences"],
        decoding={
            name: getattr(chosen, name) for name in chosen.names("changes_metrics")
        },
        settings=problem.metrics.settings(),
        metrics=_numbers({k: v for k, v in result.items() if k != "sentences"}),
    )
    return result


def _numbers(report: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a report without lists, such as those of sentences."""
    return {
        name: _numbers(value) if isinstance(value, Mapping) else value
        for name, value in report.items()
        if not isinstance(value, list)
    }

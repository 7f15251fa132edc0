"""The evaluator: loss by teacher forcing, and metrics of decoded outputs."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import tensorflow as tf

from t2t_keras.console import Meter, busy, unwatched
from t2t_keras.data.manifest import Manifest
from t2t_keras.data.pipeline import damage_named, ordered_batches, read_pairs
from t2t_keras.data.raw_texts import read_texts
from t2t_keras.data.record_index import RecordIndex
from t2t_keras.decoding.engine import Hypothesis
from t2t_keras.decoding.ensemble import DecodingModel
from t2t_keras.decoding.graph_engine import ModelTranslator
from t2t_keras.errors import UserError
from t2t_keras.evaluation.bleu import metrics_of
from t2t_keras.model.loss import count_tokens, sum_over_tokens, summed_cross_entropies
from t2t_keras.problem import Problem, Split
from t2t_keras.text.tokenizer import Tokenizer


class Decoded(NamedTuple):
    """Sentences of a split, their references and the model's outputs.

    `repaired` has the share of outputs that the text processor has repaired under that
    name; it is empty if outputs are never repaired.
    """

    sources: list[str]
    references: list[str]
    outputs: list[str]
    repaired: dict[str, float]


class SplitData(NamedTuple):
    """The examples of a split.

    Attributes:
        records: the records.
        texts: their raw sources and targets, see `read_texts`; None: they are decoded
            from the records.
        fingerprint: see `Manifest.fingerprint`.
    """

    records: RecordIndex
    texts: tuple[list[str], list[str]] | None
    fingerprint: str

    @classmethod
    def open(
        cls,
        problem: Problem,
        split: Split,
        data_dir: str | Path,
        vocab_sha256: Mapping[str, str],
    ) -> Self:
        """Opens a split of a data directory; see `Evaluator`."""
        data_dir = Path(data_dir)
        manifest = Manifest.open(data_dir, problem.data_name)
        if manifest.vocab_sha256 != vocab_sha256:
            raise UserError(
                f"--data_dir: {data_dir} was made with another vocabulary than the "
                "model's; give the data directory of its training"
            )
        index = manifest.open_index(data_dir, split, problem.reverse)
        checksums = manifest.text_sha256.get(split)
        texts = read_texts(data_dir, problem.data_name, split, index, checksums)
        return cls(index, texts, manifest.fingerprint(split))

    def sentences(
        self,
        problem: Problem,
        tokenizers: tuple[Tokenizer, Tokenizer],
        sentences: int | None = None,
    ) -> tuple[list[list[int]], list[str], list[str]]:
        """Returns source ids, sources and references of the first sentences.

        Args:
            problem: the problem.
            tokenizers: the vocabularies of sources and targets.
            sentences: number of sentences; None: all.
        """
        count = min(sentences or len(self.records), len(self.records))
        source_ids = []
        target_ids = []
        for source, target in read_pairs(self.records, range(count)):
            source_ids.append(source)
            target_ids.append(target)
        if self.texts is None:
            sources = list(map(tokenizers[0].decode, source_ids))
            targets = list(map(tokenizers[1].decode, target_ids))
        else:
            sources = self.texts[0][:count]
            targets = self.texts[1][:count]
        postprocess = problem.text_processor.postprocess
        references = []
        for source_text, target_text in zip(sources, targets, strict=True):
            references.append(postprocess(source_text, target_text)[0])
        return source_ids, sources, references


class LoadedExport(Protocol):
    """An export of the model, as `t2t_keras.load` returns it."""

    @property
    def engine_name(self) -> str:
        """The name of the library that computes the model."""

    def n_best(
        self,
        texts: Sequence[str],
        n: int,
        *,
        advance: Callable[[int], None],
        **options: Any,
    ) -> list[list[Hypothesis]]:
        """Returns the n best outputs for each text, best first."""


def loss_sums(model: DecodingModel) -> tf.types.experimental.PolymorphicFunction:
    """Returns a function of ids [B, S] and [B, T] that sums over the target tokens.

    It returns float64 [3]: the negative log-likelihood, the number of tokens with the
    highest logit, and the number of all tokens.
    """
    ids = tf.TensorSpec([None, None], tf.int32)

    @tf.function(input_signature=[ids, ids], autograph=False)
    def sums(source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        # TensorFlow's kernels compare int32 arrays of a GPU on the host.
        source = tf.cast(source, tf.int64)  # [B, S]
        target = tf.cast(target, tf.int64)  # [B, T]
        logits = model(source, target)  # [B, T, V]
        is_best = tf.equal(tf.argmax(logits, -1), target)  # [B, T]
        nll = summed_cross_entropies(logits, target, smoothing=0.0)[1]
        correct = sum_over_tokens(tf.cast(is_best, tf.float32), target)
        return tf.cast([nll, correct, count_tokens(target)], tf.float64)

    return sums


class Evaluator:
    """Evaluates a model on one split, with the weights that it has at each call.

    Args:
        translator: the translator with the model, with any weights.
        split: the split of the problem's data.
        data_dir: the data directory.
        vocab_sha256: hashes of the model's vocabularies, as in the manifest.

    Attributes:
        data: the examples of the split.
        decoded: the sentences that the last call of `metrics` has decoded; None: none.

    Raises:
        UserError: there are no such data, or their vocabulary is another one.
    """

    def __init__(
        self,
        translator: ModelTranslator,
        split: Split,
        data_dir: str | Path,
        vocab_sha256: Mapping[str, str],
    ) -> None:
        self.translator = translator
        self.problem = translator.problem
        self.data = SplitData.open(self.problem, split, data_dir, vocab_sha256)
        self._index = index = self.data.records
        if not len(index):
            raise UserError("the split has no examples; generate it again")
        self._split = split
        self.decoded: Decoded | None = None
        longest = max(index.source_length.max(), index.target_length.max())
        self._batch_tokens = max(4096, int(longest))
        self._sums = loss_sums(translator.model)

    def __len__(self) -> int:
        """The number of sentences of the split."""
        return len(self._index)

    def loss(self, meter: Meter = unwatched) -> dict[str, float]:
        """Returns the loss on the whole split, a mean over all tokens, EOS included.

        Returns:
            "nll", the negative log-likelihood in nats, without label smoothing;
            "perplexity"; and "accuracy", the share of tokens with the highest logit.
        """
        batches = ordered_batches(self._index, self._batch_tokens)
        # The device adds them up: a host that read those of each batch would wait.
        totals = tf.zeros([3], tf.float64)
        count = len(self._index)
        with (
            damage_named(self._index),
            meter(f"loss on {self._split}", "sentences", count) as advance,
        ):
            with busy("building the graph"):
                self._sums.get_concrete_function()
            for batch in batches:
                totals += self._sums(batch["source"], batch["target"])
                advance(len(batch["source"]))
        nll, correct, tokens = totals.numpy().tolist()
        return {
            "nll": nll / tokens,
            "perplexity": math.exp(min(nll / tokens, 700.0)),
            "accuracy": correct / tokens,
        }

    def references(self, sentences: int | None = None) -> list[str]:
        """Returns the correct outputs of the first sentences of the split, or all."""
        return self._sentences(sentences)[2]

    def _sentences(
        self, sentences: int | None
    ) -> tuple[list[list[int]], list[str], list[str]]:
        """Returns source ids, sources and references of the first sentences, or all."""
        tokenizers = (
            self.translator.source_tokenizer,
            self.translator.target_tokenizer,
        )
        return self.data.sentences(self.problem, tokenizers, sentences)

    def decode(
        self,
        sentences: int | None,
        meter: Meter,
        export: LoadedExport | None = None,
        **options: Any,
    ) -> Decoded:
        """Decodes the first sentences of the split, or all.

        Args:
            sentences: number of sentences, at least 1; None: all.
            meter: shows progress.
            export: an export of the model, as `t2t_keras.load` returns it, to decode
                with instead of the model.
            **options: decoding options; the defaults are the problem's, or the
                export's.
        """
        ids, sources, references = self._sentences(sentences)
        count = len(ids)
        with meter(f"decoding {self._split}", "sentences", count) as advance:
            if export:
                n_best = export.n_best(sources, 1, advance=advance, **options)
            else:
                n_best = self.translator.n_best_of_ids(
                    ids, sources, advance=advance, **options
                )
        best = [hypotheses[0] for hypotheses in n_best]
        repaired = {}
        if self.problem.text_processor.repairs_outputs:
            is_repaired = [hypothesis.is_repaired for hypothesis in best]
            repaired["repaired"] = sum(is_repaired) / count
        outputs = [hypothesis.text for hypothesis in best]
        return Decoded(sources, references, outputs, repaired)

    def metrics(
        self, sentences: int | None, meter: Meter, **options: Any
    ) -> dict[str, float]:
        """Returns the loss, and the scores of decoded sentences.

        Args:
            sentences: number of sentences; None: all; 0: only the loss.
            meter: shows progress.
            **options: decoding options.

        Returns:
            What `loss` returns; the problem's metrics; and "repaired" if the text
            processor repairs outputs.
        """
        metrics = self.loss(meter)
        self.decoded = None
        if sentences != 0:
            self.decoded = self.decode(sentences, meter, **options)
            sources, references, outputs, repaired = self.decoded
            metric = metrics_of(self.problem)
            scores = metric.score(sources, outputs, references)
            metrics |= metric.numbers(scores) | repaired
        return metrics

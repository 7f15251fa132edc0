"""Problem: the definition of a sequence-to-sequence task, and of its metrics."""

import abc
import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from t2t_keras.arguments import check_fields
from t2t_keras.errors import UserError, short_repr
from t2t_keras.type_hints import NonNegative, Positive

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    import numpy as np
    import tensorflow as tf

Split = Literal["train", "dev", "test"]
Pair = tuple[str, str]  # (source text, target text)
Source = Callable[[], Iterable[Pair]]  # called once for every pass over the pairs
# Pairs (i, j) of source word i and target word j, from 0, in increasing order.
Alignment = tuple[tuple[int, int], ...]

# Characters of classes in regular expressions: those that `str.strip` removes.
WHITE_SPACE = "\t-\r\x1c- \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
# What `str.strip` removes from a text, for `tf.strings.regex_replace`.
WHITE_ENDS = rf"\A[{WHITE_SPACE}]+|[{WHITE_SPACE}]+\z"

# Characters of classes in regular expressions that show nothing: control characters,
# those that Unicode calls default ignorable (zero-width spaces and joiners, marks of
# direction, variation selectors, fillers of Hangul, tags), the frame of interlinear
# annotations, and the blank pattern of Braille. Both Python and RE2 read the escapes.
INVISIBLE = (
    r"\x00-\x08\x0e-\x1b\x7f-\x9f"
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
# What a blank text consists of, see `is_blank`.
BLANK = f"[{WHITE_SPACE}{INVISIBLE}]*"
_VISIBLE = re.compile(f"[^{WHITE_SPACE}{INVISIBLE}]")


def is_blank(text: str) -> bool:
    """Returns whether a text has nothing but white space and invisible characters.

    They are invisible characters only in such a text: in others they stay, since a
    zero-width joiner, for example, belongs to the spelling of a word.
    """
    return _VISIBLE.search(text) is None


_MOST_TOKENS = 1_000_000  # the largest vocab_size


class AlignedPair(tuple[str, str]):
    """A pair with the links between its words, for guided alignment.

    Attributes:
        links: the links; words are what white space separates.
    """

    links: Alignment

    def __new__(cls, source: str, target: str, links: Alignment) -> Self:
        """Returns the pair."""
        pair = super().__new__(cls, (source, target))
        pair.links = links
        return pair

    def __getnewargs__(self) -> tuple[Any, ...]:
        return *self, self.links  # for pickle

    def __repr__(self) -> str:
        return f"AlignedPair{(*self, self.links)}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cleaning:
    """The rules by which training pairs are dropped as noise; by default none.

    The rules do not depend on the language. `data.cleaning` applies them.

    Attributes:
        identical: whether to drop pairs whose sides differ only in spaces and case.
        control: whether to drop pairs with a control character, which is mostly a sign
            of a wrong encoding.
        entities: whether to drop pairs with an HTML entity, such as `&amp;`, or an
            escape of Moses' tokenizer, such as `&#91;` or `@-@`.
        letters: the least share of letters among each side's characters other than
            spaces; 0: no limit.
        word: the most characters in a word; 0: no limit.
        ratio: the largest ratio of the longer side to the shorter, in tokens; 0: no
            limit.
        duplicates: whether to drop pairs that occurred before.
    """

    identical: bool = False
    control: bool = False
    entities: bool = False
    letters: float = 0.0
    word: int = 0
    ratio: float = 0.0
    duplicates: bool = False

    def __post_init__(self) -> None:
        check_fields(self, "cleaning: ")
        if not 0 <= self.letters <= 1:
            raise UserError(f"cleaning: letters is a share, not {self.letters}")
        if self.word < 0:
            raise UserError(f"cleaning: word must not be negative, but is {self.word}")
        if self.ratio and not 1 <= self.ratio < math.inf:
            raise UserError(f"cleaning: ratio must be at least 1, not {self.ratio}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextProcessor:
    """The conversion between users' texts and tokenizers' texts.

    Here it only removes white space at both ends, as tensor2tensor does in training
    data and in inputs: its tokenizer would make tokens of it. A task whose model reads
    or writes another form than its users derives a class from this one.
    `preprocess_graph` and `postprocess_graph` do on string tensors what `preprocess`
    and `postprocess` do in Python; an exported model runs them.

    Attributes:
        symbols: texts that are always one token in the target's vocabulary.
        tags: words that may precede a source, such as `<2de>`, and are one token in
            its vocabulary. If a source is split, all of its parts get its tag. The tags
            of a `data.sources.Mixture` need not be given here.
        splits_raw_text: whether `preprocess` splits raw text into words.
        splits_long_sources: whether a source that is too long for the model may be
            split, and the targets for its parts be joined; otherwise it is truncated.
        repairs_outputs: whether `postprocess` repairs outputs that violate the
            problem's constraint. Of what `postprocess_graph` gets, which the constraint
            allows, it has to repair only an empty first output for a source with words.
        aligns_outputs: whether the words of an output can be aligned with those of its
            source.
        source_flags: the flags of `t2t datagen` that name the source of a split.
    """

    symbols: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    splits_raw_text = False
    splits_long_sources = True
    repairs_outputs = False
    aligns_outputs = True
    source_flags = "--{split}_source and --{split}_target"

    def __post_init__(self) -> None:
        check_fields(self, f"{type(self).__name__}: ")

    def preprocess(self, text: str, raw: bool = False) -> str:
        """Converts a user's input to the text that the source tokenizer encodes.

        Args:
            text: one line of input.
            raw: whether the line is raw text; otherwise it looks as the training data.
        """
        return text.strip()

    def preprocess_target(self, source: str, output: str) -> str:
        """Converts an output to a target, the inverse of `postprocess`.

        Args:
            source: the result of `preprocess`.
            output: one line in the users' form.

        Raises:
            UserError: there is no such target.
        """
        return output.strip()

    def postprocess(self, source: str, target: str) -> tuple[str, bool]:
        """Converts a decoded target to an output; an empty one to an empty output.

        Args:
            source: the result of `preprocess`.
            target: one line, from the model or the training data.

        Returns:
            The output in one line, and whether the target had to be repaired.
        """
        return target, False

    def preprocess_graph(self, texts: "tf.Tensor", raw: bool) -> "tf.Tensor":
        """Does what `preprocess` does for texts [B], in the graph."""
        import tensorflow as tf

        return tf.strings.regex_replace(texts, WHITE_ENDS, "")

    def postprocess_graph(
        self, sources: "tf.Tensor", targets: "tf.Tensor"
    ) -> "tf.Tensor":
        """Does what `postprocess` does, for targets [B, n], in the graph."""
        return targets


class CorpusMetric(abc.ABC):
    """A metric that is computed from statistics of sentences, summed over a corpus.

    So it can be computed for any sample of the sentences, which the tests of
    `t2t compare` do thousands of times.

    Attributes:
        name: the name in tables and for `--metric`.
        higher_is_better: whether a better model has a higher score.
        uses_sources: whether the statistics depend on the sources.
    """

    name: str
    higher_is_better: bool = True
    uses_sources: bool = False

    @abc.abstractmethod
    def statistics(
        self, sources: Sequence[str], outputs: Sequence[str], references: Sequence[str]
    ) -> "np.ndarray":
        """Returns the statistics of N sentences, numbers of any type [N, n]."""

    @abc.abstractmethod
    def score(self, statistics: "np.ndarray") -> float:
        """Returns the score of a corpus.

        Args:
            statistics: the sums [n] of the statistics of its sentences.
        """

    def sentence_score(self, statistics: "np.ndarray") -> float:
        """Returns the score of one sentence, whose statistics are given."""
        return self.score(statistics)

    def settings(self) -> dict[str, str]:
        """Returns the settings on which the score depends, for its signature."""
        return {}


class Metrics(abc.ABC):
    """The metrics of a problem, computed from sources, outputs and references.

    Training calls `score` on dev; `t2t evaluate` prints `report`.

    Attributes:
        selection_metric: the metric from `score` by which checkpoints are compared.
        higher_is_better: whether a better model has a higher selection metric.
    """

    selection_metric: str
    higher_is_better: bool = True

    @abc.abstractmethod
    def score(
        self, sources: Sequence[str], outputs: Sequence[str], references: Sequence[str]
    ) -> dict[str, float]:
        """Scores outputs; the three lists have equal length.

        Args:
            sources: the source texts.
            outputs: the model's outputs, one line each.
            references: the correct outputs.

        Returns:
            Metrics by name, `selection_metric` among them.
        """

    def report(
        self, sources: Sequence[str], outputs: Sequence[str], references: Sequence[str]
    ) -> Mapping[str, Any]:
        """Scores outputs by all available metrics; by default, by those of `score`."""
        return self.score(sources, outputs, references)

    def corpus_metrics(self) -> Sequence[CorpusMetric]:
        """Returns the metrics by which `t2t compare` tests differences; maybe none."""
        return ()

    def settings(self) -> dict[str, Any]:
        """Returns the settings on which `score` depends."""
        return {}

    def reversed(self) -> "Metrics | None":
        """Returns the metrics of the reversed problem; None: its default, BLEU."""
        return None

    def selection_score(self, values: Mapping[str, float]) -> float:
        """Returns the selection score, which is higher for a better model.

        Args:
            values: the metrics from `score`, if sentences were decoded, and "loss",
                which is used otherwise.
        """
        if self.selection_metric not in values:
            return -values["loss"]
        value = values[self.selection_metric]
        return value if self.higher_is_better else -value


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem:
    """A sequence-to-sequence task: its data, texts, decoding and metrics.

    A problem is a dataclass of settings. What is specific to a task is in three objects
    (`text_processor`, `constraint`, `metrics`) with fixed interfaces.

    Attributes:
        name: the registered name, which the registry sets.
        summary: one line for `t2t list`.
        license: the licence of the data, as its publisher gives it, such as
            "cc-by-4.0"; "": none is given. Manifests and model cards repeat it.
        sources: for each split, a callable that yields (source, target) texts, such
            as `data.sources.ParallelFiles`. Splits that are missing here can be given
            as files on the command line.
        tokenizer: "sentencepiece", or the name of a plugin's tokenizer, such as
            "t2t_subword".
        vocab_size: number of tokens in each vocabulary; None: it is chosen from the
            number of training pairs, see `data.manifest.proposed_size`.
        shared_vocab: whether both sides share one vocabulary.
        max_length: training pairs with more tokens on a side, EOS included, are
            dropped.
        cleaning: the rules by which other training pairs are dropped.
        beam_size: number of hypotheses that beam search keeps.
        alpha: exponent of the length penalty ((5 + length) / 6) ** alpha.
        extra_length: how many more tokens than its input an output may have.
        split_sentences: whether an input of several sentences is translated sentence by
            sentence; None: where nearly all training sources are single sentences.
        text_processor: the conversion between users' texts and tokenizers' texts.
        constraint: restricts the outputs of the search; None: no restriction. It is a
            function of the problem and the target tokenizer that returns a
            `decoding.constraint.BatchConstraint`; its `__name__` is its name for
            `--decode_hparams constraint=NAME`.
        languages: the language codes of source and target, such as ("en", "de"); None:
            those of the metrics, or unknown. `t2t datagen` records them.
        metrics: how outputs are scored; None: by BLEU, see `evaluation.bleu.Bleu`.
        reverse: whether source and target are swapped, as in the problem `x_rev`.
    """

    name: str = ""
    summary: str
    license: str = ""
    sources: Mapping[Split, Source] = dataclasses.field(default_factory=dict)

    tokenizer: str = "sentencepiece"
    vocab_size: int | None = 32_000
    shared_vocab: bool = True
    max_length: Positive = 256
    cleaning: Cleaning = dataclasses.field(default_factory=Cleaning)

    beam_size: Positive = 4
    alpha: float = 0.6
    extra_length: NonNegative = 50
    split_sentences: bool | None = None

    text_processor: TextProcessor = TextProcessor()
    # Its types, `Tokenizer` and `BatchConstraint`, are defined above this module.
    constraint: "Callable[[Problem, Any], Callable[..., Any]] | None" = None
    languages: tuple[str, str] | None = None
    metrics: Metrics | None = None
    reverse: bool = False

    def __post_init__(self) -> None:
        check_fields(self, f"problem {short_repr(self.name)}: ")
        splits, size, wrong = get_args(Split), self.vocab_size, ""
        if size is not None and not 1 <= size <= _MOST_TOKENS:
            wrong = f"vocab_size must be from 1 to {_MOST_TOKENS:,}, not {size}"
        elif unknown := [split for split in self.sources if split not in splits]:
            wrong = f"'{unknown[0]}' is not a split; the splits are {', '.join(splits)}"
        if wrong:
            raise UserError(f"problem '{self.name}': {wrong}")
        if self.languages is None and (of := getattr(self.metrics, "languages", None)):
            object.__setattr__(self, "languages", of)

    def add_flags(self, parser: "argparse._ActionsContainer") -> None:
        """Adds the flags of `t2t datagen` that only this problem has."""

    def with_flags(self, args: "argparse.Namespace") -> Self:
        """Returns the problem with the sources that the flags of `add_flags` name.

        Raises:
            UserError: the flags do not go together.
        """
        return self

    def in_data_dir(self, data_dir: "Path") -> Self:
        """Returns the problem with what depends on the directory of its data.

        `data.datagen.generate` calls it before anything else. By default nothing
        depends on it.

        Args:
            data_dir: the data directory, which may not exist yet.

        Raises:
            UserError: the directory lacks what the problem reads there.
        """
        return self

    @property
    def symbols(self) -> tuple[str, ...]:
        """The texts that are always one token in the target's vocabulary."""
        return self.text_processor.symbols

    @property
    def tags(self) -> tuple[str, ...]:
        """The words before sources that are one token in the source's vocabulary."""
        tags = getattr(self.sources.get("train"), "tags", ())
        return tuple(dict.fromkeys((*self.text_processor.tags, *tags)))

    @property
    def data_name(self) -> str:
        """The name in the names of the data files: `x_rev` reads the files of `x`."""
        return self.name.removesuffix("_rev") if self.reverse else self.name

    def replace(self, **changes: Any) -> Self:
        """Returns a copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def with_symbols(self, symbols: Iterable[str]) -> Self:
        """Returns a copy whose text form has these symbols."""
        text_processor = dataclasses.replace(
            self.text_processor, symbols=tuple(symbols)
        )
        return self.replace(text_processor=text_processor)

    def with_tags(self, tags: Iterable[str]) -> Self:
        """Returns a copy whose text form has these tags."""
        processor = dataclasses.replace(self.text_processor, tags=tuple(tags))
        return self.replace(text_processor=processor)

    def reversed(self) -> Self:
        """Returns the problem with source and target swapped, on the same data files.

        Text form and constraint are for the outputs of this direction, so the reversed
        problem has the default ones.
        """
        return self.replace(
            name=f"{self.name}_rev",
            summary=f"{self.summary} (reversed)",
            text_processor=TextProcessor(symbols=self.symbols),
            constraint=None,
            languages=self.languages and self.languages[::-1],
            metrics=self.metrics and self.metrics.reversed(),
            reverse=True,
        )

    def source(self, split: Split) -> Source:
        """Returns the source of a split's examples.

        Raises:
            UserError: the problem has no source for the split.
        """
        if split not in self.sources:
            flags = self.text_processor.source_flags.format(split=split)
            raise UserError(
                f"problem '{self.name}' has no {split} examples; give {flags}"
            )
        return self.sources[split]

    def pairs(self, split: Split) -> Iterator[Pair]:
        """Yields the pairs of a split's source, without white space at their ends.

        Raises:
            UserError: the problem has no source for the split.
        """
        for pair in self.source(split)():
            source, target = (text.strip() for text in pair)
            if isinstance(pair, AlignedPair):
                yield AlignedPair(source, target, pair.links)
            else:
                yield source, target

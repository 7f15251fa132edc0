"""Problem: the definition of a sequence-to-sequence task.

Its `TextProcessor` converts between users' texts and those that a tokenizer encodes.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from annotated_types import Interval

from t2t_keras.checking import NonNegative, Positive, check_fields
from t2t_keras.errors import UserError, short_repr
from t2t_keras.metrics import Metrics
from t2t_keras.text.alignment import AlignedPair
from t2t_keras.text.sentences import WHITE_ENDS

if TYPE_CHECKING:
    from pathlib import Path

    import tensorflow as tf


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextProcessor:
    """The conversion between users' texts and tokenizers' texts.

    This one only removes white space at both ends, of which a tokenizer would make
    tokens. A task whose model reads or writes other texts than its users derives a
    class. `preprocess_graph` and `postprocess_graph` do on string tensors what
    `preprocess` and `postprocess` do in Python; an exported model runs them.

    Attributes:
        symbols: texts that are always one token in the target's vocabulary.
        tags: words that may precede a source, such as `<2de>`, and are one token in
            its vocabulary. If a source is split, all of its parts get its tag. The tags
            of a mixture of corpora need not be given here.
        splits_raw_text: whether `preprocess` splits raw text into words.
        splits_long_sources: whether a source that is too long for the model may be
            split, and the targets of its parts joined; otherwise it is truncated.
        repairs_outputs: whether `postprocess` repairs outputs that violate the
            problem's constraint. `postprocess_graph` gets only what the constraint
            allows, and must repair only an empty first output for a source with words.
        aligns_outputs: whether the words of an output can be aligned with the words of
            its source.
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
            raw: whether the line is raw text; otherwise it looks like the training
                data.
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
        """Converts a decoded target to an output. An empty target has an empty output.

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


Split = Literal["train", "dev", "test"]


# The formulas of `decoding.engine.length_penalty`.
LengthPenalty = Literal["gnmt", "power", "average", "none"]


Pair = tuple[str, str]  # (source text, target text)
Source = Callable[[], Iterable[Pair]]  # called once for every pass over the pairs


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
        letters: minimum share of letters among each side's characters other than
            spaces; 0: no limit.
        word: maximum number of characters in a word; 0: no limit.
        ratio: maximum ratio of the longer side to the shorter, in tokens; 0: no limit.
        duplicates: whether to drop repeated pairs.
    """

    identical: bool = False
    control: bool = False
    entities: bool = False
    letters: Annotated[float, Interval(ge=0, le=1)] = 0.0
    word: NonNegative = 0
    ratio: float = 0.0
    duplicates: bool = False

    def __post_init__(self) -> None:
        check_fields(self, "cleaning: ")
        if self.ratio and self.ratio < 1:
            raise UserError(f"cleaning: ratio must be at least 1, not {self.ratio}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem:
    """A sequence-to-sequence task: its data, texts, decoding and metrics.

    A problem is a dataclass of settings. Three of them are objects with what only this
    task needs: `text_processor`, `constraint` and `metrics`.

    Attributes:
        name: the registered name; the registry sets it.
        summary: one line for `t2t list`.
        license: the licence of the data, as its publisher gives it, such as
            "cc-by-4.0"; "": none is given. Manifests and model cards repeat it.
        sources: for each split, a callable that yields (source, target) texts, such
            as `data.sources.ParallelFiles`. Splits that are missing here can be given
            as files on the command line.
        tokenizer: "sentencepiece", or the name of a plugin's tokenizer, such as
            "t2t_subword".
        vocab_size: number of tokens in each vocabulary; None: it depends on the number
            of training pairs, see `data.vocabulary.proposed_size`.
        shared_vocab: whether both sides share one vocabulary.
        max_length: training pairs with more tokens on a side, EOS included, are
            dropped.
        cleaning: the rules by which other training pairs are dropped.
        beam_size: number of hypotheses that beam search keeps.
        alpha: exponent of the length penalty.
        length_penalty: the formula of the length penalty, see `DecodingOptions`.
        extra_length: how many more tokens than its input an output may have.
        split_sentences: whether an input of several sentences is translated sentence by
            sentence; None: where nearly all training sources are single sentences.
        text_processor: the conversion between users' texts and tokenizers' texts.
        constraint: restricts the outputs of the search; None: no restriction. It is a
            function of the problem and the target tokenizer that returns a
            `decoding.constraint.BatchConstraint`; its `__name__` is its name for
            `--decode_hparams constraint=NAME`.
        languages: the language codes of source and target, such as ("en", "de"); None:
            the languages of the metrics, or unknown. `t2t datagen` records them.
        metrics: how outputs are scored; None: by BLEU, see `evaluation.bleu.Bleu`.
        reverse: whether source and target are swapped, as in the problem `x_rev`.
        hparams_set: the set that `t2t datagen` suggests for training; "": for
            translation one that suits the number of training pairs.
        flags: a dataclass of `options.option` fields, the flags of `t2t datagen` that
            only this problem has; None: there are none. `with_flags` gets an instance.
    """

    flags: ClassVar[type | None] = None

    name: str = ""
    summary: str
    license: str = ""
    sources: Mapping[Split, Source] = dataclasses.field(default_factory=dict)

    tokenizer: str = "sentencepiece"
    vocab_size: Annotated[int, Interval(ge=1, le=1_000_000)] | None = 32_000
    shared_vocab: bool = True
    max_length: Positive = 256
    cleaning: Cleaning = dataclasses.field(default_factory=Cleaning)

    beam_size: Positive = 4
    alpha: float = 0.6
    length_penalty: LengthPenalty = "gnmt"
    extra_length: NonNegative = 50
    split_sentences: bool | None = None

    text_processor: TextProcessor = TextProcessor()
    # `Tokenizer` and `BatchConstraint` are defined in packages that import this one.
    constraint: "Callable[[Problem, Any], Callable[..., Any]] | None" = None
    languages: tuple[str, str] | None = None
    metrics: Metrics | None = None
    reverse: bool = False
    hparams_set: str = ""

    def __post_init__(self) -> None:
        check_fields(self, f"problem {short_repr(self.name)}: ")
        languages = getattr(self.metrics, "languages", None)
        if self.languages is None and languages:
            object.__setattr__(self, "languages", languages)

    def with_flags(self, flags: Any) -> Self:
        """Returns the problem with the sources that its flags name.

        Args:
            flags: the instance of the class `flags`.

        Raises:
            UserError: the flags do not go together.
        """
        return self

    def in_data_dir(self, data_dir: "Path") -> Self:
        """Returns the problem with fields that depend on the directory of its data.

        `data.datagen.generate` calls it first. By default no field depends on it.

        Args:
            data_dir: the data directory, which may not exist yet.

        Raises:
            UserError: the directory lacks a file that the problem reads there.
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

    @property
    def data_languages(self) -> tuple[str, str] | None:
        """The languages in the direction of the data: `x_rev` has the data of `x`."""
        if self.languages is None or not self.reverse:
            return self.languages
        return self.languages[::-1]

    def replace(self, **changes: Any) -> Self:
        """Returns a copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def with_symbols(self, symbols: Iterable[str]) -> Self:
        """Returns a copy whose text processor has these symbols."""
        processor = dataclasses.replace(self.text_processor, symbols=tuple(symbols))
        return self.replace(text_processor=processor)

    def with_tags(self, tags: Iterable[str]) -> Self:
        """Returns a copy whose text processor has these tags."""
        processor = dataclasses.replace(self.text_processor, tags=tuple(tags))
        return self.replace(text_processor=processor)

    def reversed(self) -> Self:
        """Returns the problem with source and target swapped, on the same data files.

        Text processor and constraint are for the outputs of this direction, so the
        reversed problem has the default ones.
        """
        return self.replace(
            name=f"{self.name}_rev",
            summary=f"{self.summary} (reversed)",
            text_processor=TextProcessor(symbols=self.symbols),
            constraint=None,
            languages=self.languages and self.languages[::-1],
            metrics=self.metrics and self.metrics.reversed(),
            hparams_set="",
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

    def pairs(
        self, split: Split, start: int = 0, stop: int | None = None
    ) -> Iterator[Pair]:
        """Yields the pairs of a split's source, without white space at their ends.

        Args:
            split: the split.
            start: the index of the first pair. A source with `read_pairs` begins there,
                others are read from their beginning.
            stop: the index after the last pair; None: the end.

        Raises:
            UserError: the problem has no source for the split.
        """
        source = self.source(split)
        if hasattr(source, "read_pairs"):
            pairs = source.read_pairs(start, stop)
        else:
            pairs = itertools.islice(source(), start, stop)
        for pair in pairs:
            texts = (pair[0].strip(), pair[1].strip())
            if isinstance(pair, AlignedPair):
                yield AlignedPair(*texts, pair.links)
            else:
                yield texts


SPLITS: tuple[Split, ...] = ("train", "dev", "test")
Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")

"""Problem: what a task is, as data."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from t2t_keras.errors import UserError
from t2t_keras.metrics import Metrics
from t2t_keras.metrics.bleu import Bleu

if TYPE_CHECKING:
    import tensorflow as tf

    from t2t_keras.decoding.constraint import BatchConstraint
    from t2t_keras.text.tokenizer import Tokenizer

Split = Literal["train", "dev", "test"]
TokenizerKind = Literal["sentencepiece", "t2t_subword"]
Pair = tuple[str, str]  # (source text, target text)
Source = Callable[[], Iterable[Pair]]  # called anew for every pass over the examples

_MOST_TOKENS = 1_000_000  # in a vocabulary


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cleaning:
    """Which training pairs are dropped as noise; by default none.

    No rule knows a language. `data.cleaning` applies them.

    Attributes:
        identical: drop pairs whose sides are the same but for spaces and case.
        control: drop pairs with a control character (encoding gone wrong, mostly).
        letters: the least share of letters among a side's characters other than
            spaces; 0: any.
        word: characters of the longest word; 0: any length.
        ratio: tokens of the longer side over tokens of the shorter; 0: any.
        duplicates: drop pairs that were there before.
    """

    identical: bool = False
    control: bool = False
    letters: float = 0.0
    word: int = 0
    ratio: float = 0.0
    duplicates: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.letters <= 1:
            raise UserError(f"cleaning: letters is a share, not {self.letters}")
        if self.word < 0:
            raise UserError(f"cleaning: word must not be negative, but is {self.word}")
        if self.ratio and not 1 <= self.ratio < math.inf:
            raise UserError(f"cleaning: ratio must be at least 1, not {self.ratio}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextForm:
    """How the texts of users become those of the tokenizers and back: as they are.

    A task whose model does not read or write what users do derives from this class. The
    last two methods are the first and the third in the TensorFlow graph, where an
    exported model runs them on string tensors.

    Attributes:
        symbols: texts that are always one token of the target's vocabulary.
        splits_raw_text: whether `source_text` does more to a text that is raw.
        repairs_outputs: whether `output_text` repairs what a model may write without
            the problem's constraint. In the graph nothing is repaired.
        source_flags: the flags of `t2t datagen` that name examples of a split.
    """

    symbols: tuple[str, ...] = ()

    splits_raw_text = False
    repairs_outputs = False
    source_flags = "--{split}_source and --{split}_target"

    def source_text(self, text: str, raw: bool = False) -> str:
        """Returns an input as the source's tokenizer knows it.

        Args:
            text: one line of a user.
            raw: whether it is raw, or prepared as the training data are.
        """
        return text

    def target_text(self, source: str, output: str) -> str:
        """Returns the target whose `output_text` is this one.

        Args:
            source: what `source_text` returned.
            output: one line of a user.

        Raises:
            UserError: there is no such target.
        """
        return output

    def output_text(self, source: str, target: str) -> tuple[str, bool]:
        """Returns the output that a decoded target stands for; of an empty one, empty.

        Args:
            source: what `source_text` returned.
            target: one line, of the model or of the training data.

        Returns:
            One line, and whether the target had to be repaired.
        """
        return target, False

    def source_texts(self, texts: "tf.Tensor", raw: bool) -> "tf.Tensor":
        """Returns `source_text` of texts [B], in the graph."""
        return texts

    def output_texts(self, sources: "tf.Tensor", targets: "tf.Tensor") -> "tf.Tensor":
        """Returns `output_text` of targets [B, n] of sources [B], in the graph."""
        return targets


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem:
    """A sequence-to-sequence task: its examples, its text, its decoding, its metrics.

    A problem is a record and not a class to derive from: values, and three objects
    (`text_form`, `constraint`, `metrics`) which the rest of the program calls without
    knowing what task it runs.

    Attributes:
        name: the registered name; filled in by the registry.
        summary: one line for `t2t list`.
        sources: for each split, a callable that yields (source, target) texts, such
            as `data.sources.ParallelFiles`. A problem may lack any split here and
            get it from files named on the command line.
        tokenizer: "sentencepiece", or "t2t_subword" for tensor2tensor's.
        vocab_size: number of tokens in each vocabulary; None: chosen from the number
            of training pairs, see `data.vocabulary.proposed_size`.
        shared_vocab: one vocabulary for both sides.
        max_length: training pairs with a side of more tokens, EOS included, are
            dropped.
        cleaning: which other training pairs are dropped.
        bpe_dropout: the probability with which a merge of SentencePiece is left out,
            anew for each copy of a training pair (Provilkov et al., ACL 2020); 0: none.
        copies: how often each training pair is among the examples.
        beam_size: of the beam search.
        alpha: exponent of the length penalty ((5 + length) / 6) ** alpha.
        extra_length: an output has at most so many tokens more than its input.
        text_form: how the texts of users become those of the tokenizers and back.
        constraint: what outputs the search may find; None: any. A function of the
            problem and the target's tokenizer, whose `__name__` is what `--constraint`
            calls it.
        metrics: how outputs are scored.
        reverse: the two sides are swapped: the registry's `_rev`.
    """

    name: str = ""
    summary: str
    sources: Mapping[Split, Source] = dataclasses.field(default_factory=dict)

    tokenizer: TokenizerKind = "sentencepiece"
    vocab_size: int | None = 32_000
    shared_vocab: bool = True
    max_length: int = 256
    cleaning: Cleaning = dataclasses.field(default_factory=Cleaning)
    bpe_dropout: float = 0.0
    copies: int = 1

    beam_size: int = 4
    alpha: float = 0.6
    extra_length: int = 50

    text_form: TextForm = TextForm()
    constraint: "Callable[[Problem, Tokenizer], BatchConstraint] | None" = None
    metrics: Metrics = dataclasses.field(default_factory=Bleu)
    reverse: bool = False

    def __post_init__(self) -> None:
        kinds = get_args(TokenizerKind)
        if self.tokenizer not in kinds:
            raise UserError(
                f"problem '{self.name}': tokenizer must be one of {', '.join(kinds)}, "
                f"not '{self.tokenizer}'"
            )
        if self.vocab_size is not None and not 1 <= self.vocab_size <= _MOST_TOKENS:
            raise UserError(
                f"problem '{self.name}': vocab_size must be from 1 to "
                f"{_MOST_TOKENS:,}, not {self.vocab_size}"
            )
        if not 0 <= self.bpe_dropout < 1:
            raise UserError(
                f"problem '{self.name}': bpe_dropout must be at least 0 and below 1, "
                f"not {self.bpe_dropout}"
            )
        if self.bpe_dropout and self.tokenizer != "sentencepiece":
            raise UserError(
                f"problem '{self.name}': bpe_dropout needs the tokenizer "
                f"'sentencepiece', not '{self.tokenizer}'"
            )
        if self.copies < 1:
            raise UserError(
                f"problem '{self.name}': copies must be at least 1, not {self.copies}"
            )
        for split in self.sources:
            if split not in get_args(Split):
                raise UserError(
                    f"problem '{self.name}': '{split}' is not a split; the splits are "
                    f"{', '.join(get_args(Split))}"
                )

    @property
    def symbols(self) -> tuple[str, ...]:
        """The texts that are always one token of the target's vocabulary."""
        return self.text_form.symbols

    @property
    def data_name(self) -> str:
        """The name that its files bear: `x_rev` reads the files of `x`."""
        return self.name.removesuffix("_rev") if self.reverse else self.name

    def replace(self, **changes: Any) -> Self:
        """Returns a copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def with_symbols(self, symbols: Iterable[str]) -> Self:
        """Returns a copy whose text form has these symbols."""
        text_form = dataclasses.replace(self.text_form, symbols=tuple(symbols))
        return self.replace(text_form=text_form)

    def reversed(self) -> Self:
        """Returns the problem in the other direction, over the same data files.

        What was made for the outputs of this direction is not for the other's: they are
        shown as decoded, and are text.
        """
        metrics = Bleu()
        if isinstance(self.metrics, Bleu):
            languages = self.metrics.languages[::-1]
            metrics = dataclasses.replace(self.metrics, languages=languages)
        return self.replace(
            name=f"{self.name}_rev",
            summary=f"{self.summary} (reversed)",
            text_form=TextForm(symbols=self.symbols),
            constraint=None,
            metrics=metrics,
            reverse=True,
        )

    def source(self, split: Split) -> Source:
        """Returns where the examples of a split come from.

        Raises:
            UserError: the problem has no such split.
        """
        if split not in self.sources:
            flags = self.text_form.source_flags.format(split=split)
            raise UserError(
                f"problem '{self.name}' has no {split} examples; give {flags}"
            )
        return self.sources[split]

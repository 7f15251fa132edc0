"""Problem: what a task is, as data."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Self, get_args, get_origin

from t2t_keras.errors import UserError

Split = Literal["train", "dev", "test"]
BleuTokens = Literal["13a", "intl", "zh", "char", "none"]  # sacreBLEU's names
Constraint = Literal["none", "brackets"]
Pair = tuple[str, str]  # (source text, target text)
Source = Callable[[], Iterable[Pair]]  # called anew for every pass over the examples

_MOST_TOKENS = 1_000_000  # in a vocabulary


def _unchanged(source: str, output: str) -> str:
    """The default `Problem.postprocess`: the decoded text as it is."""
    del source
    return output


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
        ratio: pieces of the longer side over pieces of the shorter; 0: any.
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
class Problem:
    """A sequence-to-sequence task: its examples, its text, its decoding, its score.

    A problem is a record and not a class to derive from: what differs between tasks
    are values, and the few functions among the fields are values, too.

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
        symbols: texts that are always one piece of the target, brackets for example.
        max_length: training pairs with a side of more pieces, EOS included, are
            dropped.
        cleaning: which other training pairs are dropped.
        bpe_dropout: the probability with which a merge of pieces is left out, anew for
            each copy of a training pair (Provilkov et al., ACL 2020); 0: none.
        copies: how often each training pair is among the examples.
        beam_size: of the beam search.
        alpha: exponent of the length penalty ((5 + length) / 6) ** alpha.
        extra_length: an output is at most so many pieces longer than its input.
        constraint: what an output must be: "brackets" for `symbols` that are a tree
            over the words of the source, X closed by /X (`decoding.brackets`).
        postprocess: (source text, decoded text) -> the text to show and to score.
        output: what comes out, after `postprocess`: "text", scored by BLEU, or "trees"
            (bracketed, one a line), scored by F1.
        pos_tags: of trees: whether the targets have the words' tags, or one symbol in
            place of all of them.
        silver_per_gold: of trees: so many that a parser made (`--silver_trees`) are
            mixed with each of the treebank's; 0: none.
        bleu_tokens: how sacreBLEU splits the text into words for the BLEU that is
            reported during training; "none" where it is tokenised already.
        languages: codes of the source's and the target's, for the tokeniser of the
            paper's BLEU.
        reverse: the two sides are swapped: the registry's `_rev`.
    """

    name: str = ""
    summary: str
    sources: Mapping[Split, Source] = dataclasses.field(default_factory=dict)

    tokenizer: Literal["sentencepiece", "t2t_subword"] = "sentencepiece"
    vocab_size: int | None = 32_000
    shared_vocab: bool = True
    symbols: tuple[str, ...] = ()
    max_length: int = 256
    cleaning: Cleaning = dataclasses.field(default_factory=Cleaning)
    bpe_dropout: float = 0.0
    copies: int = 1

    beam_size: int = 4
    alpha: float = 0.6
    extra_length: int = 50
    constraint: Constraint = "none"
    postprocess: Callable[[str, str], str] = _unchanged
    output: Literal["text", "trees"] = "text"
    pos_tags: bool = True
    silver_per_gold: int = 0
    bleu_tokens: BleuTokens = "13a"
    languages: tuple[str, str] = ("en", "de")
    reverse: bool = False

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            choices, value = get_args(field.type), getattr(self, field.name)
            if get_origin(field.type) is Literal and value not in choices:
                raise UserError(
                    f"problem '{self.name}': {field.name} must be one of "
                    f"{', '.join(choices)}, not '{value}'"
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
    def data_name(self) -> str:
        """The name that its files bear: `x_rev` reads the files of `x`."""
        return self.name.removesuffix("_rev") if self.reverse else self.name

    def replace(self, **changes: Any) -> Self:
        """Returns a copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def reversed(self) -> Self:
        """Returns the problem in the other direction, over the same data files.

        What was made for the outputs of this direction is not for the other's: they are
        shown as decoded, and are text.
        """
        return self.replace(
            name=f"{self.name}_rev",
            summary=f"{self.summary} (reversed)",
            constraint="none",
            postprocess=_unchanged,
            output="text",
            languages=self.languages[::-1],
            reverse=True,
        )

    def source(self, split: Split) -> Source:
        """Returns where the examples of a split come from.

        Raises:
            UserError: the problem has no such split.
        """
        if split not in self.sources:
            flags = f"--{split}_source and --{split}_target"
            if self.output == "trees":
                flags = f"--treebank or --{split}_trees"
            raise UserError(
                f"problem '{self.name}' has no {split} examples; give {flags}"
            )
        return self.sources[split]

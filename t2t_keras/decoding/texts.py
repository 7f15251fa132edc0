"""Handling of texts in decoding: checks, batches, repeats, scores, alignments.

It imports no TensorFlow, so that other engines can use it.
"""

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from t2t_keras.decoding.options import LARGEST_BEAM
from t2t_keras.errors import UserError, require_unicode
from t2t_keras.problem import Alignment
from t2t_keras.text.tokenizer import EOS, PAD, Tokenizer

_log = logging.getLogger(__name__)

# On a CPU, with a thread for each: the operations of one step are too small to keep
# all cores busy.
MOST_BATCHES_AT_ONCE = 4

_MOST_DOUBLINGS = 2  # of a beam, to replace repeated texts


class Hypothesis(NamedTuple):
    """One output.

    Attributes:
        text: the output as the problem's text form writes it, in one line.
        score: the log-probability over the length penalty, plus the coverage penalty
            if there is one.
        log_prob: the log-probability; a SavedModel returns neither this nor any of the
            fields from `ids` to `alignment`.
        ids: the token ids; the last is EOS unless the output reached its limit. The
            output for an input that was split has those of its parts, one after
            another.
        is_repaired: whether the text form had to repair the model's output.
        token_log_probs: the log-probability of each token, if asked for; in float32
            their sum is `log_prob`, except for rounding.
        alignment: the word alignment, if asked for; see `Translator.n_best`.
        is_truncated: whether the input was truncated.
        sentences: into how many sentences the input was split, by `split_sentences`.
    """

    text: str
    score: float
    log_prob: float = math.nan
    ids: tuple[int, ...] = ()
    is_repaired: bool = False
    token_log_probs: tuple[float, ...] = ()
    alignment: Alignment = ()
    is_truncated: bool = False
    sentences: int = 1

    @property
    def tokens(self) -> int:
        """Number of tokens, EOS included."""
        return len(self.ids)


class Score(NamedTuple):
    """The log-probability of one target.

    Attributes:
        log_prob: the log-probability of the whole target, EOS included.
        tokens: the number of tokens, EOS included.
        ids: the token ids.
        token_log_probs: the log-probability of each token, given the earlier ones.
        is_truncated: whether the source or the target was truncated.
    """

    log_prob: float
    tokens: int
    ids: tuple[int, ...] = ()
    token_log_probs: tuple[float, ...] = ()
    is_truncated: bool = False


class ScoredText(Protocol):
    """A text with its score."""

    @property
    def text(self) -> str:
        """The text."""

    @property
    def score(self) -> float:
        """The score."""


AnyText = TypeVar("AnyText", bound=ScoredText)


def checked_texts(texts: Iterable[str], name: str = "texts") -> list[str]:
    """Checks texts and returns them as a list.

    Args:
        texts: the argument to check.
        name: the argument's name, for error messages.

    Raises:
        UserError: `texts` is one string or not iterable, or an element is not a string
            or has a lone surrogate.
    """
    if isinstance(texts, str | bytes):
        raise UserError(
            f"{name} must be a list of strings, not one string; pass [text]"
        )
    try:
        texts = list(texts)
    except TypeError:
        kind = type(texts).__name__
        raise UserError(f"{name} must be a list of strings, not {kind}") from None
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise UserError(
                f"{name}[{i}] must be a string (str), not {type(text).__name__}"
            )
        if not text.isascii():
            require_unicode(f"{name}[{i}]", text)
    return texts


def checked_pairs(
    sources: Iterable[str], targets: Iterable[str]
) -> tuple[list[str], list[str]]:
    """Checks the two sides of pairs of texts and returns them as lists.

    Raises:
        UserError: see `checked_texts`; or they are not of equal length.
    """
    sources = checked_texts(sources, "sources")
    targets = checked_texts(targets, "targets")
    if len(sources) != len(targets):
        raise UserError(
            f"{len(sources)} sources but {len(targets)} targets: "
            "line by line they must be pairs"
        )
    return sources, targets


def prefix_ids(
    prefixes: Iterable[str], count: int, tokenizer: Tokenizer
) -> list[list[int]]:
    """Returns the ids with which the outputs for `count` texts have to begin.

    Raises:
        UserError: see `checked_texts`; or there are more or fewer than `count`.
    """
    prefixes = checked_texts(prefixes, "prefixes")
    if len(prefixes) != count:
        raise UserError(f"{count} texts but {len(prefixes)} prefixes")
    # The next word's token brings its own space.
    encoded = tokenizer.encode_batch([prefix.rstrip() for prefix in prefixes])
    return [ids[:-1] for ids in encoded]  # without EOS


def truncated(
    rows: Sequence[Sequence[int]], most: int, before: int = 0, kind: str = "input"
) -> list[Sequence[int]]:
    """Truncates the ids of each text to `most` tokens, EOS included, with a warning.

    Args:
        rows: the ids of each text, EOS last.
        most: the option `max_source_length`.
        before: number of earlier texts, added to the numbers in warnings.
        kind: what the texts are, for warnings.
    """
    for number, ids in enumerate(rows, before + 1):
        if len(ids) > most:
            _log.warning(
                "%s %d has %d tokens; all after the first %d are left out "
                "(max_source_length)",
                *(kind, number, len(ids), most - 1),
            )
    return [ids if len(ids) <= most else [*ids[: most - 1], EOS] for ids in rows]


def splitting_note(several: int, inputs: int) -> str:
    """Returns the sentence that says that inputs were split into sentences.

    Args:
        several: number of inputs with several sentences.
        inputs: number of all inputs.
    """
    command = "has" if several == 1 else "have"
    return (
        f"{several:,} of {inputs:,} inputs {command} several sentences, which are "
        "translated one by one; split_sentences=false turns this off"
    )


def batches(
    lengths: Sequence[int], batch_tokens: int, at_least: int = 1
) -> list[list[int]]:
    """Groups sequences of similar length; the longest come first.

    So a batch that does not fit into memory fails at once, and estimates of the time
    left are too high rather than too low. A sequence longer than `batch_tokens` gets a
    batch by itself.

    Args:
        lengths: the lengths of the sequences.
        batch_tokens: the largest number of positions in a batch, padding included.
        at_least: number of batches that are decoded at once; batches are made smaller
            where there would be fewer.

    Returns:
        The indices of the sequences in each batch.
    """
    widths = [-(-length // 8) * 8 for length in lengths]  # see `padded`
    if at_least > 1:
        positions = sum(widths)
        batch_tokens = min(batch_tokens, -(-positions // at_least))
    groups: list[list[int]] = []
    width = 0
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if not groups or (len(groups[-1]) + 1) * width > batch_tokens:
            groups.append([])
            width = widths[i]
        groups[-1].append(i)
    return groups


def padded(rows: Sequence[Sequence[int]]) -> np.ndarray:
    """Returns the rows as one int32 array, padded with PAD to a multiple of 8.

    With few distinct widths, the device's libraries can reuse what they have prepared.
    """
    width = -(-max(map(len, rows)) // 8) * 8
    array = np.full((len(rows), width), PAD, np.int32)
    for row, ids in zip(array, rows, strict=True):
        row[: len(ids)] = ids
    return array


def replace_repeated(
    found: list[list[AnyText]],
    beam_size: int,
    search: Callable[[list[int], int], list[list[AnyText]]],
) -> None:
    """Replaces outputs whose text a better one has by the next ones of a wider search.

    The best output stays the best: those of the wider search that have a higher score
    are left out.

    Args:
        found: the outputs for each input, best first; changed in place.
        beam_size: the beam size with which they were found.
        search: maps the numbers of inputs, and the factor by which beam size and number
            of outputs grow, to their outputs.
    """
    wanted = [len(outputs) for outputs in found]
    found[:] = map(_distinct, found)
    for doubled in range(1, _MOST_DOUBLINGS + 1):
        rows = [i for i, n in enumerate(wanted) if len(found[i]) < n]
        if not rows or beam_size * 2**doubled > LARGEST_BEAM:
            return
        for i, others in zip(rows, search(rows, 2**doubled), strict=True):
            best = found[i][0]
            others = [output for output in others if output.score <= best.score]
            wider = _distinct([best, *others])[: wanted[i]]
            found[i] = max(found[i], wider, key=len)


def _distinct(outputs: Sequence[AnyText]) -> list[AnyText]:
    """Returns the first of the outputs that have the same text."""
    kept: dict[str, AnyText] = {}
    for output in outputs:
        kept.setdefault(output.text, output)
    return list(kept.values())


def word_alignment(
    weights: np.ndarray,
    source_words: Sequence[int | None],
    target_words: Sequence[int | None],
) -> Alignment:
    """Aligns each target token with the source token of the largest weight.

    Two words are aligned if any of their tokens are. Tokens without a word, such as
    EOS, are left out on both sides.

    Args:
        weights: [T, S], from target to source tokens; both may be padded.
        source_words: the result of `words_of_tokens` for the source.
        target_words: the same for the target.
    """
    known = [(s, word) for s, word in enumerate(source_words) if word is not None]
    if not known:
        return ()
    places, words = zip(*known, strict=True)
    links = {
        (words[np.argmax(row[list(places)])], word)
        for row, word in zip(weights, target_words, strict=False)
        if word is not None
    }
    return tuple(sorted(links))


def word_starts(text: str, parts: Sequence[str]) -> list[int]:
    """Returns the number of the word with which each part of a text begins, from 0.

    Args:
        text: the text.
        parts: its parts in order, with nothing but white space between them.
    """
    starts, place = [], 0
    for part in parts:
        rest = text[place:]
        place += len(rest) - len(rest.lstrip())
        starts.append(len(f"{text[:place]}.".split()) - 1)
        place += len(part.strip())
    return starts


def joined_alignment(
    alignments: Sequence[Alignment],
    source: str,
    source_parts: Sequence[str],
    target: str,
    target_parts: Sequence[str],
    tags: Sequence[str] = (),
) -> Alignment:
    """Joins the alignments of the parts of a pair.

    Args:
        alignments: the alignment of each part.
        source: the source.
        source_parts: its parts in order, with nothing but white space between them.
        target: the target.
        target_parts: its parts.
        tags: see `TextProcessor`. If the source begins with a tag, all its parts do.
    """
    tag = next((word for word in source.split()[:1] if word in tags), "")
    own = [part.removeprefix(tag) for part in source_parts[1:]]
    starts = word_starts(source, [*source_parts[:1], *own])
    # Word 0 of every part is the tag, which is word 0 of the source.
    starts[1:] = [start - bool(tag) for start in starts[1:]]
    links = {
        (0 if tag and i == 0 else i + first, j + second)
        for part, first, second in zip(
            alignments, starts, word_starts(target, target_parts), strict=True
        )
        for i, j in part
    }
    return tuple(sorted(links))

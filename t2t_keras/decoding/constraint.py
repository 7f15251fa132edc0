"""Constraints: which tokens beam search and sampling may generate.

Beam search also takes phrases that each output must contain (`RequiredPhrases`).
"""

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, Self, TypeAlias

import numpy as np
import tensorflow as tf

from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.model.backend import Nest
from t2t_keras.text.graph_ids import CPU
from t2t_keras.text.protected import find_protected, protected_pattern
from t2t_keras.text.tokenizer import EOS, PAD, Tokenizer

# The first bytes, in UTF-8, of characters that belong to no word: those of the blocks
# Latin-1 Supplement (its first half), General Punctuation, and CJK Symbols.
_PUNCTUATION = (b"\xc2", b"\xe2\x80", b"\xe2\x81", b"\xe3\x80")


class Constraint(Protocol):
    """Rules out continuations during beam search or sampling.

    A constraint has a state, any nest of tensors whose first axis is the batch: when
    sentences leave the batch, the search selects the rows of the others. So all that
    differs between sentences belongs to the state. The constraint makes the state from
    the source, tells at every step which tokens each beam may take, and updates the
    state when the beams are reordered and extended. Excluding tokens does
    not change the log-probabilities of the others: a constraint restricts the search
    and not the model, so scores are still those of teacher forcing.
    """

    def init(self, source: tf.Tensor, num_beams: tf.Tensor) -> Nest:
        """Returns the state before the first step, for source ids [B, S]."""

    def mask(self, state: Nest, position: tf.Tensor) -> tf.Tensor:
        """Returns which tokens are allowed at this position (from 0).

        The result is boolean and broadcasts to [B, K, V].
        """

    def advance(self, state: Nest, parents: tf.Tensor, tokens: tf.Tensor) -> Nest:
        """Returns the state after a step.

        Args:
            state: the state before the step.
            parents: [B, K]; beam k continues what was beam `parents[b, k]`.
            tokens: [B, K], the token that beam k takes.
        """


# What `Problem.constraint` returns: a function that maps, in the graph, the source
# texts [B] and the maximum output lengths [B] to the constraint of the batch and the
# maximum lengths, which it raises where no allowed output would be short enough.
BatchConstraint: TypeAlias = Callable[
    [tf.Tensor, tf.Tensor], tuple[Constraint, tf.Tensor]
]


def only(token: int, vocab_size: int) -> np.ndarray:
    """Returns the mask [V] that allows a single token.

    Masks are constants or come from tables: a GPU compares integers in the host's
    memory, and a mask [B, K, V] would cross the bus.
    """
    return np.arange(vocab_size) == token


class AllOf:
    """Allows what all of several constraints allow; without any, everything."""

    def __init__(self, constraints: Iterable[Constraint] = ()) -> None:
        self._constraints = tuple(constraints)

    def init(self, source: tf.Tensor, num_beams: tf.Tensor) -> Nest:
        """Returns the states of all constraints."""
        return tuple(part.init(source, num_beams) for part in self._constraints)

    def mask(self, state: Nest, position: tf.Tensor) -> tf.Tensor:
        """Returns the conjunction of their masks."""
        allowed = tf.constant(True)
        for part, its_state in zip(self._constraints, state, strict=True):
            allowed = tf.logical_and(allowed, part.mask(its_state, position))
        return allowed

    def advance(self, state: Nest, parents: tf.Tensor, tokens: tf.Tensor) -> Nest:
        """Advances all states."""
        return tuple(
            part.advance(its_state, parents, tokens)
            for part, its_state in zip(self._constraints, state, strict=True)
        )


class _Fixed:
    """Base class of constraints that do not depend on the tokens so far."""

    def init(self, source: tf.Tensor, num_beams: tf.Tensor) -> Nest:
        """Returns the empty state."""
        del source, num_beams
        return ()

    def advance(self, state: Nest, parents: tf.Tensor, tokens: tf.Tensor) -> Nest:
        """Returns the same state."""
        del parents, tokens
        return state


class BannedTokens(_Fixed):
    """Excludes certain tokens."""

    def __init__(self, tokens: Iterable[int], vocab_size: int) -> None:
        self._allowed = np.isin(np.arange(vocab_size), list(tokens), invert=True)

    def mask(self, state: Nest, position: tf.Tensor) -> tf.Tensor:
        """Returns the mask [V] that excludes the banned tokens."""
        del state, position
        return tf.constant(self._allowed)


class MinimumLength(_Fixed):
    """Excludes EOS until an output has `length` tokens."""

    def __init__(self, length: int | tf.Tensor, vocab_size: int) -> None:
        self._length = length
        self._vocab_size = vocab_size

    def mask(self, state: Nest, position: tf.Tensor) -> tf.Tensor:
        """Returns the mask [V] that excludes EOS, or nothing."""
        del state
        return tf.logical_or(~only(EOS, self._vocab_size), position >= self._length)


class ForcedPrefix(_Fixed):
    """Forces each output to begin with a prefix, which may differ between sentences."""

    def __init__(
        self, prefixes: tf.Tensor | Sequence[Sequence[int]], vocab_size: int
    ) -> None:
        """Takes the prefixes as ids [B, P] without EOS, padded with PAD."""
        self._prefixes = tf.convert_to_tensor(prefixes, tf.int32)
        self._vocab_size = vocab_size

    def init(self, source: tf.Tensor, num_beams: tf.Tensor) -> Nest:
        """Returns the prefixes with one more column of PAD, for all later positions."""
        del source, num_beams
        return tf.pad(self._prefixes, [[0, 0], [0, 1]], constant_values=PAD)

    def mask(self, state: Nest, position: tf.Tensor) -> tf.Tensor:
        """Returns the mask [B, 1, V] that allows the prefix's token, or all."""
        last = tf.shape(state)[1] - 1
        forced = tf.gather(state, tf.minimum(position, last), axis=1)[:, None, None]
        tokens = np.arange(self._vocab_size, dtype=np.float32)  # see `only`
        return tf.logical_or(forced == PAD, tf.cast(forced, tf.float32) == tokens)


class NoRepeatedNgrams:
    """Excludes tokens that would repeat an n-gram too often.

    An n-gram (n tokens in a row, EOS not counted) may occur in an output once, or as
    often as the most frequent n-gram of the source does: so that "no, no, no!" can be
    translated, but a loop ends. An output that is forced to begin with a prefix may
    also repeat as often as the prefix does. EOS is never excluded.
    """

    def __init__(
        self,
        n: int,
        vocab_size: int,
        prefixes: tf.Tensor | Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Takes n, at least 1, and prefixes as ids [B, P] padded with PAD, or None."""
        self._n = n
        self._vocab_size = vocab_size
        self._prefixes = prefixes

    def init(self, source: tf.Tensor, num_beams: tf.Tensor) -> Nest:
        """Returns the tokens so far [B, K, t + n - 1], and the largest counts [B].

        The first n - 1 tokens stand before the output; no others are equal to them.
        """
        most = _most_frequent(source, self._n)
        if self._prefixes is not None:
            prefixes = tf.convert_to_tensor(self._prefixes, tf.int32)
            most = tf.maximum(most, _most_frequent(prefixes, self._n))
        shape = tf.stack([tf.shape(source)[0], num_beams, self._n - 1])
        return {"tokens": tf.fill(shape, -1), "most": most}

    def mask(self, state: Nest, position: tf.Tensor) -> tf.Tensor:
        """Returns the mask [B, K, V] that excludes what would be once too often."""
        del position
        tokens, most = state["tokens"], state["most"]
        shape, before = tf.shape(tokens), self._n - 1
        count = shape[2] - before  # of the n-grams so far
        # Which of them begin with the n - 1 last tokens: only their own ends count.
        is_same = tf.ones_like(tokens[:, :, before:], tf.bool)
        for i in range(before):
            last = tokens[:, :, count + i, None]
            is_same &= tokens[:, :, i : count + i] == last
        rows = tf.where(is_same)[:, :2]
        ends = tf.boolean_mask(tokens[:, :, before:], is_same)
        indices = tf.concat([rows, tf.cast(ends, tf.int64)[:, None]], axis=1)
        counts = tf.scatter_nd(
            indices,
            tf.ones_like(ends, tf.float32),
            tf.cast(tf.stack([shape[0], shape[1], self._vocab_size]), tf.int64),
        )
        return counts < most[:, None, None]

    def advance(self, state: Nest, parents: tf.Tensor, tokens: tf.Tensor) -> Nest:
        """Returns the state with one more token."""
        before = tf.gather(state["tokens"], parents, batch_dims=1)
        return state | {"tokens": tf.concat([before, tokens[:, :, None]], axis=2)}


def _most_frequent(ids: tf.Tensor, n: int) -> tf.Tensor:
    """Returns how often the most frequent n-gram of ids [B, S] occurs, at least 1.

    EOS and PAD are in no n-gram. The result is float32 [B] (see `only`).
    """
    count = tf.maximum(tf.shape(ids)[1] - n + 1, 0)
    is_same, is_ngram = tf.constant(True), tf.constant(True)
    for i in range(n):
        tokens = ids[:, i : count + i]
        is_same &= tokens[:, :, None] == tokens[:, None, :]
        is_ngram &= (tokens != EOS) & (tokens != PAD)
    is_same &= is_ngram[:, :, None] & is_ngram[:, None, :]
    counts = tf.reduce_sum(tf.cast(is_same, tf.float32), axis=2)
    return tf.maximum(tf.reduce_max(counts, axis=1), 1.0)


class PhraseState(NamedTuple):
    """How far hypotheses have come with M required phrases.

    Attributes:
        phrases: [B, M, L + 1] int32, the phrases' tokens, padded with PAD.
        lengths: [B, M] float32, their lengths; 0 where a sentence has fewer.
        done: [B, K, M] float32, the number of tokens at the end of a hypothesis with
            which each phrase begins; the phrase's length once it was complete.
    """

    phrases: tf.Tensor
    lengths: tf.Tensor
    done: tf.Tensor


class RequiredPhrases:
    """Makes each output contain the target terms for the source terms of its input.

    Beam search uses it (after Post and Vilar, 2018, "Fast lexically constrained
    decoding with dynamic beam allocation"): besides the most likely candidates, each
    hypothesis is extended by the next tokens of its phrases, and the beam is shared
    among hypotheses that have come equally far (`number_of_tokens`). EOS is excluded
    until all phrases are complete. A token is excluded if too few tokens would be left
    for the phrases, so that every output has them.
    """

    def __init__(
        self,
        phrases: tf.Tensor,
        max_length: tf.Tensor,
        prefix_length: int | tf.Tensor,
        vocab_size: int,
    ) -> None:
        """Takes the phrases of a batch.

        Args:
            phrases: [B, M, L] int32, the ids of the phrases of each output without EOS,
                padded with PAD.
            max_length: [B] int32, the largest numbers of tokens in the outputs.
            prefix_length: [B] int32, how many tokens the outputs are forced to begin
                with, or 0.
            vocab_size: V.
        """
        # At least one phrase, which may be empty; behind each a column of PAD.
        self._phrases = tf.pad(phrases, [[0, 0], [0, 1], [0, 1]])
        is_token = self._phrases != PAD
        self._lengths = tf.reduce_sum(tf.cast(is_token, tf.float32), axis=2)
        needed = tf.cast(tf.reduce_sum(self._lengths, axis=1), tf.int32)
        self._vocab_size = vocab_size
        # There is always an output with the prefix, all phrases and EOS.
        self.max_length = tf.where(
            max_length > 0,
            tf.maximum(max_length, prefix_length + needed + 1),
            max_length,
        )

    def are_wanted(self) -> tf.Tensor:
        """Returns whether any sentence has a phrase, a scalar."""
        return tf.reduce_any(self._lengths > 0)

    def init(self, num_beams: tf.Tensor) -> PhraseState:
        """Returns the state before the first step."""
        shape = tf.stack([tf.shape(self._lengths)[0], num_beams, 1])
        done = tf.zeros(shape) * self._lengths[:, None]
        return PhraseState(self._phrases, self._lengths, done)

    def mask(self, state: PhraseState, left: tf.Tensor) -> tf.Tensor:
        """Returns which tokens are allowed, [B, K, V].

        Args:
            state: the state.
            left: [B] int32, how many tokens the outputs may still have.
        """
        left = tf.cast(left, tf.float32)[:, None]
        is_open = state.done < state.lengths[:, None]
        # What the phrases need if all of them begin again.
        whole = tf.reduce_sum(tf.where(is_open, state.lengths[:, None], 0.0), axis=2)
        may_go_on = whole[:, :, None] - state.done + 1 <= left[:, :, None]
        may_begin = is_open & (whole + 1 <= left)[:, :, None]
        firsts = tf.where(may_begin, state.phrases[:, None, :, 0], PAD)
        going_on = tf.where(may_go_on, self._next(state), PAD)
        is_progress = self._any_of(tf.concat([going_on, firsts], axis=2))
        is_end = np.arange(self._vocab_size) == EOS
        may_leave = (whole + 2 <= left)[:, :, None] & ~is_end
        return is_progress | may_leave | (whole <= 0)[:, :, None]

    def is_next(self, state: PhraseState) -> tf.Tensor:
        """Returns which tokens are the next ones of some phrase, [B, K, V]."""
        return self._any_of(self._next(state))

    def number_of_tokens(
        self, state: PhraseState, parents: tf.Tensor, tokens: tf.Tensor
    ) -> tf.Tensor:
        """Returns how many of the phrases' tokens candidates have, [B, N] float32.

        Args:
            state: the state before the step.
            parents: [B, N], the beam that each candidate continues.
            tokens: [B, N], the token that it takes.
        """
        after = self.advance(state, parents, tokens)
        return tf.reduce_sum(after.lengths, axis=1)[:, None] - self._missing(after)

    def advance(
        self, state: PhraseState, parents: tf.Tensor, tokens: tf.Tensor
    ) -> PhraseState:
        """Returns the state after a step; the arguments are those of a constraint."""
        before = state._replace(done=tf.gather(state.done, parents, batch_dims=1))
        tokens = tokens[:, :, None]
        again = tf.cast(state.phrases[:, None, :, 0] == tokens, tf.float32)
        done = tf.where(self._next(before) == tokens, before.done + 1, again)
        is_complete = before.done >= state.lengths[:, None]
        return before._replace(done=tf.where(is_complete, before.done, done))

    def _any_of(self, tokens: tf.Tensor) -> tf.Tensor:
        """Returns the mask [B, K, V] of tokens [B, K, any]."""
        return tf.reduce_any(tf.one_hot(tokens, self._vocab_size, True, False), axis=2)

    def _next(self, state: PhraseState) -> tf.Tensor:
        """Returns the next token of each phrase, [B, K, M]; PAD if it is complete."""
        index = tf.transpose(tf.cast(state.done, tf.int32), [0, 2, 1])
        tokens = tf.gather(state.phrases, index, axis=2, batch_dims=2)
        return tf.transpose(tokens, [0, 2, 1])

    def _missing(self, state: PhraseState) -> tf.Tensor:
        """Returns how many tokens the phrases still need, [B, K] float32.

        Only one of the phrases that have begun can continue; the others begin again.
        """
        is_open = tf.cast(state.done < state.lengths[:, None], tf.float32)
        whole = tf.reduce_sum(is_open * state.lengths[:, None], axis=2)
        longest = tf.reduce_max(is_open * state.done, axis=2)
        return whole - tf.maximum(longest, 0.0)


class ForbiddenPhrases:
    """Excludes phrases, however they are split into tokens; see `ForbiddenTables`."""

    def __init__(self, allowed: tf.Tensor, after: tf.Tensor) -> None:
        self._allowed = allowed
        self._after = after

    def init(self, source: tf.Tensor, num_beams: tf.Tensor) -> Nest:
        """Returns the automaton's first state for all hypotheses, [B, K]."""
        return tf.zeros(tf.stack([tf.shape(source)[0], num_beams]), tf.int32)

    def mask(self, state: Nest, position: tf.Tensor) -> tf.Tensor:
        """Returns which tokens are allowed, [B, K, V]."""
        del position
        is_trivial = tf.shape(self._allowed)[0] == 1  # nothing is forbidden
        return tf.cond(
            is_trivial,
            lambda: self._allowed[None],
            lambda: tf.gather(self._allowed, state),
        )

    def advance(self, state: Nest, parents: tf.Tensor, tokens: tf.Tensor) -> Nest:
        """Returns the states after a step."""
        state = tf.gather(state, parents, batch_dims=1)
        return tf.gather_nd(self._after, tf.stack([state, tokens], 2))


class Phrases(NamedTuple):
    """The glossary and the forbidden phrases of a request.

    They are inputs of the decoding graph: other phrases need no new trace.

    Attributes:
        glossary: regular expressions of the source terms, [N] strings, and the ids of
            the target terms without EOS, [N, L] int32, padded with PAD; or nothing.
        forbidden: the tables of `ForbiddenTables`, or nothing.
    """

    glossary: tuple[tf.Tensor, ...]
    forbidden: tuple[tf.Tensor, ...]

    @classmethod
    def of(cls, options: DecodingOptions, tokenizer: Tokenizer) -> Self:
        """Returns the phrases of options, for a target tokenizer."""
        glossary: tuple[tf.Tensor, ...] = ()
        if options.glossary:
            sources, targets = zip(*options.glossary, strict=True)
            ids = [row[:-1] for row in tokenizer.encode_batch(targets)]
            terms = tf.ragged.constant(ids, tf.int32, ragged_rank=1, inner_shape=())
            glossary = whole_words(tf.constant(sources)), terms.to_tensor(PAD)
        forbidden: tuple[tf.Tensor, ...] = ()
        if options.forbidden:
            tables = forbidden_tables(tuple(tokenizer.token_bytes()))
            forbidden = tables(tf.constant(options.forbidden))
        return cls(glossary, forbidden)

    def required(self, texts: tf.Tensor, copied: tf.Tensor | None) -> tf.Tensor:
        """Returns the phrases that the outputs must contain, [B, M, L] int32.

        There is at least one term in the glossary.

        Args:
            texts: [B] strings, the sources, B > 0.
            copied: [B, any, any] int32, the ids of further phrases, padded with PAD.
        """
        patterns, terms = self.glossary
        occurs = tf.map_fn(
            lambda pattern: tf.strings.regex_full_match(texts, pattern),
            patterns,
            fn_output_signature=tf.TensorSpec([None], tf.bool),
        )  # [N, B]
        occurs = tf.cast(tf.transpose(occurs), tf.int32)
        most = tf.reduce_max(tf.reduce_sum(occurs, axis=1))
        found = tf.math.top_k(occurs, most)  # the first of equals come first
        phrases = tf.gather(terms, found.indices) * found.values[:, :, None]
        if copied is None:
            return phrases
        widths = tf.shape(phrases)[2], tf.shape(copied)[2]
        width = tf.maximum(*widths)
        both = [
            tf.pad(group, [[0, 0], [0, 0], [0, width - own]])
            for group, own in zip((phrases, copied), widths, strict=True)
        ]
        return tf.concat(both, axis=1)


def protected_parts(
    texts: tf.Tensor, kinds: Sequence[str], pieces: Sequence[str]
) -> tf.RaggedTensor:
    """Returns what the option `protect` protects in texts [B]: strings [B, (M)].

    Args:
        texts: the sources.
        kinds: the option.
        pieces: the tokens of the source's vocabulary.
    """
    return find_protected(texts, protected_pattern(kinds, pieces))


def whole_words(terms: tf.Tensor) -> tf.Tensor:
    """Returns regular expressions (RE2) of texts that have the terms as whole words.

    An empty term is in every text.

    Args:
        terms: [N] strings.
    """
    with tf.device(CPU):
        escaped = tf.strings.regex_replace(terms, r"[!-/:-@\[-^`{-~]", r"\\\0")
        first, last = tf.unstack(_ends_in_words(terms))
        before = tf.where(first, r"(?:^|[^\p{L}\p{N}])", "")
        after = tf.where(last, r"(?:$|[^\p{L}\p{N}])", "")
        return tf.strings.join(["(?s).*", before, escaped, after, ".*"])


def _ends_in_words(terms: tf.Tensor) -> tf.Tensor:
    """Returns whether terms [N] begin and end with a letter or digit, [2, N]."""
    patterns = r"(?s)[\p{L}\p{N}].*", r"(?s).*[\p{L}\p{N}]"
    return tf.stack([tf.strings.regex_full_match(terms, it) for it in patterns])


class ForbiddenTables:
    """Makes, in the graph, the tables of an automaton that excludes phrases.

    A phrase is excluded as a sequence of whole words: where no letter or digit precedes
    it and none follows. All characters beyond ASCII count as letters, except those of
    the blocks of punctuation. The automaton reads the bytes of the output.

    Args:
        token_bytes: for each id, what the token adds to the output's text.
    """

    def __init__(self, token_bytes: Sequence[bytes]) -> None:
        # The tokens as paths in a trie: for each beginning of so many bytes, the place
        # of the one without the last byte in the level above, and that byte.
        self._levels: list[tuple[np.ndarray, np.ndarray]] = []
        beginnings = {text[:i] for text in token_bytes for i in range(len(text) + 1)}
        ordered = sorted(beginnings, key=len)
        places, first = {text: i for i, text in enumerate(ordered)}, 0
        for _, level in itertools.groupby(ordered[1:], len):
            texts = list(level)
            parents = [places[text[:-1]] - first for text in texts]
            pairs = np.array([parents, [text[-1] for text in texts]], np.int32)
            self._levels.append((pairs[0], pairs[1]))
            first = places[texts[0]]
        self._places = np.array([places[text] for text in token_bytes], np.int32)

    def __call__(self, phrases: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the tables for phrases [N] strings; empty ones are never found.

        Returns:
            Which tokens are allowed in each of the states, [states, V], and the state
            after each token, [states, V] int32. The first state is 0.
        """
        size = len(self._places)

        def nothing() -> tuple[tf.Tensor, tf.Tensor]:
            return tf.ones([1, size], tf.bool), tf.zeros([1, size], tf.int32)

        def tables() -> tuple[tf.Tensor, tf.Tensor]:
            by_byte, may_end = _automaton(tf.boolean_mask(phrases, phrases != ""))
            rows = tf.shape(by_byte)[0]
            level = tf.range(rows)[:, None]
            after = [level]
            for parents, ends in self._levels:
                before = tf.gather(level, parents, axis=1)
                level = tf.gather(tf.reshape(by_byte, [-1]), before * 256 + ends)
                after.append(level)
            all_after = tf.gather(tf.concat(after, 1), self._places, axis=1)
            is_end = tf.range(size) == EOS
            allowed = tf.where(is_end, may_end[:, None], all_after != _FOUND)
            return allowed, tf.where(allowed, all_after, 0)

        with tf.device(CPU):
            return tf.cond(tf.reduce_any(phrases != ""), tables, nothing)


# To make one for a large vocabulary takes a while.
forbidden_tables = functools.lru_cache(maxsize=4)(ForbiddenTables)

_FOUND = 1  # the state after a phrase


def _automaton(phrases: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the automaton that finds phrases [F] in text; none is empty.

    A state has whether the last character belongs to a word, and for each of N texts,
    which numbers of its bytes the output ends with. The texts are the phrases and, as
    `marks`, the first bytes of punctuation.

    Returns:
        Where each byte leads from each state, [states, 256] int32: to `_FOUND` if a
        phrase was found; and whether the text may end in a state, [states].
    """
    texts = tf.concat([_PUNCTUATION, phrases], 0)
    is_mark = tf.range(tf.size(texts)) < len(_PUNCTUATION)
    marks, others = is_mark[:, None], ~is_mark[:, None]
    lengths = tf.strings.length(texts)
    positions = tf.range(tf.reduce_max(lengths) + 1)
    is_end = lengths[:, None] == positions  # [N, L + 1]
    content = tf.io.decode_raw(texts, tf.uint8, fixed_length=tf.reduce_max(lengths))
    content = tf.cast(content, tf.int32)
    begins_word, ends_word = tf.unstack(_ends_in_words(texts))
    goes_on = others & ~ends_word[:, None]  # needs no end of a word

    # Bytes that no text has are read as one of each kind: letters and other characters
    # of ASCII, and all beyond.
    used = tf.unique(tf.reshape(content, [-1])).y
    read = tf.concat([[ord("a"), ord(" "), 0xFF], used], 0)  # [C]
    matched = tf.concat([[-1, -1, -1], used], 0)
    is_ascii_word = np.array([x < 0x80 and chr(x).isalnum() for x in range(256)])
    kinds = np.where(np.arange(256) < 0x80, 1 - is_ascii_word, 2).astype(np.int32)
    column_of = tf.tensor_scatter_nd_update(
        kinds, used[:, None], 3 + tf.range(tf.size(used))
    )

    def here(states: tf.Tensor) -> tf.Tensor:
        return tf.reshape(states[:, 1:] == 1, [-1, *tf.unstack(tf.shape(is_end))])

    def after(states: tf.Tensor) -> tf.Tensor:
        """Returns the states [M * C, any] after the bytes, in states [M, any]."""
        before, in_word = here(states), states[:, 0, None] == 1
        whole = before & is_end
        in_mark = tf.reduce_any(before & marks, [1, 2])[:, None]
        begins = tf.where(is_mark, ~in_mark, ~(in_word & begins_word))
        begun = before & ~is_end | begins[:, :, None] & (positions == 0)
        now = begun[:, None, :, :-1] & (content == matched[:, None, None])
        now = tf.pad(now, [[0, 0], [0, 0], [0, 0], [1, 0]])  # [M, C, N, L + 1]
        is_open = tf.reduce_any(now & marks, [2, 3])  # it may be punctuation
        is_mark_whole = tf.reduce_any(whole & marks, [1, 2])[:, None]
        is_letter = tf.gather(is_ascii_word, read) | (read >= 0x80) & ~is_mark_whole
        found = tf.reduce_any(whole & others, [1, 2])[:, None] & ~is_letter & ~is_open
        found |= tf.reduce_any(now & is_end & goes_on, [2, 3])
        found |= states[:, 0, None] < 0
        now |= (whole & others)[:, None] & is_open[:, :, None, None]
        word = tf.where(is_open, in_word, is_letter)[:, :, None]
        rows = tf.reshape(now, [*tf.unstack(tf.shape(found)), tf.size(is_end)])
        rows = tf.cast(tf.concat([word, rows], axis=2), tf.int8)
        rows = tf.where(found[:, :, None], tf.constant(-1, tf.int8), rows)
        return tf.reshape(rows, [-1, tf.shape(states)[1]])

    def follow(states: tf.Tensor, table: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Adds the rows of the states that the table lacks, and their states."""
        every = tf.concat([states, after(states[tf.shape(table)[0] :])], 0)
        count = tf.shape(states)[0]
        states, numbers = tf.raw_ops.UniqueV2(x=every, axis=[0])
        rows = tf.reshape(numbers[count:], [-1, tf.size(read)])
        return states, tf.concat([table, rows], 0)

    first = tf.zeros([1 + tf.size(is_end)], tf.int8)
    anything = tf.TensorShape([None, None])
    states, table = tf.while_loop(
        lambda states, table: tf.shape(table)[0] < tf.shape(states)[0],
        follow,
        (tf.stack([first, first - 1]), tf.zeros([0, tf.size(read)], tf.int32)),
        shape_invariants=(anything, anything),
    )
    may_end = ~tf.reduce_any(here(states) & is_end & others, [1, 2])
    return tf.gather(table, column_of, axis=1), may_end

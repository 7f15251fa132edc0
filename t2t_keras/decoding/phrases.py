"""Phrases that outputs must contain, or must not contain."""

import re
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

from t2t_keras.model.backend import Nest
from t2t_keras.text.tokenizer import EOS, PAD

# The first bytes, in UTF-8, of characters that belong to no word: those of the blocks
# Latin-1 Supplement (its first half), General Punctuation, and CJK Symbols.
_PUNCTUATION = (b"\xc2", b"\xe2\x80", b"\xe2\x81", b"\xe3\x80")

# A state of the automaton, see `_automaton`.
_TextState: TypeAlias = tuple[bytes, bool, frozenset[tuple[int, int]]]


class Progress(NamedTuple):
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
        terms: Sequence[tuple[str, Sequence[int]]],
        texts: tf.Tensor,
        copied: tf.Tensor | None,
        max_length: tf.Tensor,
        prefix_length: int | tf.Tensor,
        vocab_size: int,
    ) -> None:
        """Finds the terms in the sources.

        Args:
            terms: source terms, and the ids of their target terms without EOS. A
                source term matches whole words, with the same capital letters.
            texts: [B] strings, the sources.
            copied: [B, M, L] int32, the ids without EOS of further phrases of each
                output, padded with PAD; None: there are none.
            max_length: [B] int32, the largest numbers of tokens in the outputs.
            prefix_length: [B] int32, how many tokens the outputs are forced to begin
                with, or 0.
            vocab_size: V.
        """
        groups = [_of_terms(terms, texts)] if terms else []
        if copied is not None:
            # At least one phrase, which may be empty; behind each a column of PAD.
            groups.append(tf.pad(copied, [[0, 0], [0, 1], [0, 1]]))
        width = tf.reduce_max([tf.shape(group)[2] for group in groups])
        self._phrases = tf.concat(
            [tf.pad(g, [[0, 0], [0, 0], [0, width - tf.shape(g)[2]]]) for g in groups],
            axis=1,
        )
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

    def init(self, num_beams: tf.Tensor) -> Progress:
        """Returns the state before the first step."""
        shape = tf.stack([tf.shape(self._lengths)[0], num_beams, 1])
        done = tf.zeros(shape) * self._lengths[:, None]
        return Progress(self._phrases, self._lengths, done)

    def mask(self, state: Progress, left: tf.Tensor) -> tf.Tensor:
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

    def is_next(self, state: Progress) -> tf.Tensor:
        """Returns which tokens are the next ones of some phrase, [B, K, V]."""
        return self._any_of(self._next(state))

    def number_of_tokens(
        self, state: Progress, parents: tf.Tensor, tokens: tf.Tensor
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
        self, state: Progress, parents: tf.Tensor, tokens: tf.Tensor
    ) -> Progress:
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

    def _next(self, state: Progress) -> tf.Tensor:
        """Returns the next token of each phrase, [B, K, M]; PAD if it is complete."""
        index = tf.transpose(tf.cast(state.done, tf.int32), [0, 2, 1])
        tokens = tf.gather(state.phrases, index, axis=2, batch_dims=2)
        return tf.transpose(tokens, [0, 2, 1])

    def _missing(self, state: Progress) -> tf.Tensor:
        """Returns how many tokens the phrases still need, [B, K] float32.

        Only one of the phrases that have begun can go on; the others begin again.
        """
        is_open = tf.cast(state.done < state.lengths[:, None], tf.float32)
        whole = tf.reduce_sum(is_open * state.lengths[:, None], axis=2)
        longest = tf.reduce_max(is_open * state.done, axis=2)
        return whole - tf.maximum(longest, 0.0)


class ForbiddenPhrases:
    """A constraint that excludes phrases, however they are split into tokens.

    A phrase is excluded as a sequence of whole words: where no letter or digit precedes
    it and none follows. All characters beyond ASCII count as letters, except those of
    the blocks of punctuation. An automaton reads the bytes of the output, and a table
    says where each token leads from each of its states, and which tokens are allowed.
    """

    def __init__(self, phrases: Sequence[str], token_bytes: Sequence[bytes]) -> None:
        """Makes the tables.

        Args:
            phrases: the phrases; none is empty.
            token_bytes: for each id, what the token adds to the output's text.
        """
        by_byte, may_end = _automaton(phrases)
        states, width = len(may_end), max(map(len, token_bytes))
        none = by_byte.shape[1] - 1  # in place of a byte: the state stays
        tokens = np.full((len(token_bytes), width), none)
        for row, token in zip(tokens, token_bytes, strict=True):
            row[: len(token)] = list(token)
        after = np.arange(states + 1)[:, None].repeat(len(tokens), axis=1)
        for column in tokens.T:
            after = by_byte[after, column]
        self._allowed = after[:states] != states
        self._allowed[:, EOS] = may_end
        self._after = np.where(self._allowed, after[:states], 0).astype(np.int32)

    def init(self, source: tf.Tensor, num_beams: tf.Tensor) -> Nest:
        """Returns the automaton's first state for all hypotheses, [B, K]."""
        return tf.zeros(tf.stack([tf.shape(source)[0], num_beams]), tf.int32)

    def mask(self, state: Nest, position: tf.Tensor) -> tf.Tensor:
        """Returns which tokens are allowed, [B, K, V]."""
        del position
        return tf.gather(tf.constant(self._allowed), state)

    def advance(self, state: Nest, parents: tf.Tensor, tokens: tf.Tensor) -> Nest:
        """Returns the states after a step."""
        state = tf.gather(state, parents, batch_dims=1)
        return tf.gather_nd(tf.constant(self._after), tf.stack([state, tokens], 2))


def _of_terms(
    terms: Sequence[tuple[str, Sequence[int]]], texts: tf.Tensor
) -> tf.Tensor:
    """Returns the target terms for the source terms in texts [B], [B, M, L + 1]."""
    longest = max(len(ids) for _, ids in terms)
    table = np.zeros((len(terms), longest + 1), np.int32)
    for row, (_, ids) in zip(table, terms, strict=True):
        row[: len(ids)] = ids
    patterns = [f"(?s).*{_whole(term)}.*" for term, _ in terms]
    occurs = tf.map_fn(
        lambda pattern: tf.strings.regex_full_match(texts, pattern),
        tf.constant(patterns),
        fn_output_signature=tf.bool,
    )  # [terms, B]
    occurs = tf.cast(tf.transpose(occurs), tf.int32)
    most = tf.maximum(tf.reduce_max(tf.reduce_sum(occurs, axis=1)), 1)
    found = tf.math.top_k(occurs, most)  # the first of equals come first
    return tf.gather(table, found.indices) * found.values[:, :, None]


def _whole(term: str) -> str:
    """Returns the regular expression (RE2) of a term as whole words."""
    before = r"(?:^|[^\p{L}\p{N}])" if term[0].isalnum() else ""
    after = r"(?:$|[^\p{L}\p{N}])" if term[-1].isalnum() else ""
    return f"{before}{re.escape(term)}{after}"


def _automaton(phrases: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the automaton that finds phrases in text.

    A state has the first bytes of a character that may be punctuation, whether the
    last character belongs to a word, and which phrases have begun, with the number of
    their bytes so far.

    Returns:
        Where each byte leads from each of N states, [N + 1, 257]: state N means that a
        phrase was found, and "byte" 256 leads nowhere else; and whether the text may
        end in a state, [N].
    """
    content = [phrase.encode() for phrase in phrases]
    start: _TextState = (b"", False, frozenset())
    numbers = {start: 0}
    states = [start]
    rows: list[list[int]] = []
    found = -1  # until the number of states is known

    def is_whole(phrase: int, count: int) -> bool:
        return count == len(content[phrase])

    def after(state: _TextState, byte: int) -> int:
        lead, in_word, begun = state
        lead += bytes([byte])
        is_open = any(known.startswith(lead) for known in _PUNCTUATION)
        is_word = byte >= 0x80 and lead[:-1] not in _PUNCTUATION
        is_word |= byte < 0x80 and chr(byte).isalnum()
        whole = {it for it in begun if is_whole(*it)}
        if whole and not is_word and not is_open:
            return found
        matches = set(begun - whole)
        for p, phrase in enumerate(phrases):
            if not (in_word and phrase[0].isalnum()):
                matches.add((p, 0))
        matches = {(p, n + 1) for p, n in matches if content[p][n] == byte}
        if any(is_whole(p, n) and not phrases[p][-1].isalnum() for p, n in matches):
            return found
        if is_open:
            state = (lead, in_word, frozenset(matches | whole))
        else:
            state = (b"", is_word, frozenset(matches))
        if state not in numbers:
            numbers[state] = len(states)
            states.append(state)
        return numbers[state]

    for state in states:  # grows meanwhile
        rows.append([after(state, byte) for byte in range(256)])
    table = np.full((len(states) + 1, 257), len(states))
    table[:, 256] = np.arange(len(states) + 1)
    table[:-1, :256] = np.where(np.array(rows) == found, len(states), rows)
    may_end = [not any(is_whole(*it) for it in begun) for _, _, begun in states]
    return table, np.array(may_end)

"""Phrases that outputs must or must not have, as inputs of the graph.

A glossary gives the translations of terms, forbidden phrases occur in no output as
whole words, and protected parts (addresses, markup, numbers) are kept as they are. The
patterns are regular expressions of RE2, so that Python and an exported model run the
same code.
"""

import functools
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
import tensorflow as tf

from t2t_keras.decoding.options import KINDS, UNKNOWN, DecodingOptions
from t2t_keras.model.backend import Nest
from t2t_keras.text.sentences import WHITE_SPACE
from t2t_keras.text.sentences_graph import CPU
from t2t_keras.text.tokenizer import EOS, PAD, Tokenizer

if TYPE_CHECKING:
    import tensorflow as tf


def whole_word_patterns(terms: tf.Tensor) -> tf.Tensor:
    """Returns regular expressions (RE2) of texts that have the terms as whole words.

    An empty term is in every text, and one that is not UTF-8 in none.

    Args:
        terms: [N] strings.
    """
    with tf.device(CPU):
        # Bytes that are not UTF-8 would make an expression that RE2 refuses.
        terms = tf.strings.unicode_transcode(terms, "UTF-8", "UTF-8")
        escaped = tf.strings.regex_replace(terms, r"[!-/:-@\[-^`{-~]", r"\\\0")
        starts_word, ends_word = tf.unstack(starts_and_ends_in_words(terms))
        left_boundary = tf.where(starts_word, r"(?:^|[^\p{L}\p{N}])", "")
        right_boundary = tf.where(ends_word, r"(?:$|[^\p{L}\p{N}])", "")
        return tf.strings.join(["(?s).*", left_boundary, escaped, right_boundary, ".*"])


def starts_and_ends_in_words(terms: tf.Tensor) -> tf.Tensor:
    """Returns whether terms [N] start and end with a letter or digit, [2, N]."""
    starts = tf.strings.regex_full_match(terms, r"(?s)[\p{L}\p{N}].*")
    stops = tf.strings.regex_full_match(terms, r"(?s).*[\p{L}\p{N}]")
    return tf.stack([starts, stops])


MATCHED = 1  # the state after a phrase


# The first bytes, in UTF-8, of characters that belong to no word: the blocks Latin-1
# Supplement (its first half), General Punctuation, and CJK Symbols.
_PUNCTUATION = (b"\xc2", b"\xe2\x80", b"\xe2\x81", b"\xe3\x80")


_IS_ASCII_WORD = np.array([x < 0x80 and chr(x).isalnum() for x in range(256)])


class PhraseAutomaton:
    """Finds phrases [F], none of them empty, as whole words.

    The automaton matches N texts: the marks, which are the first bytes of punctuation,
    and the phrases. A state is a row of 1 + N (L + 1) numbers, L the longest text: 1 if
    the last character belongs to a word; then, for each text and each number of its
    bytes, 1 if the output ends with them. All are -1 after a phrase was found.
    """

    def __init__(self, phrases: tf.Tensor) -> None:
        texts = tf.concat([_PUNCTUATION, phrases], 0)  # [N]
        lengths = tf.strings.length(texts)
        max_length = tf.reduce_max(lengths)
        self._is_mark = tf.range(tf.size(texts)) < len(_PUNCTUATION)  # [N]
        self._of_marks = self._is_mark[:, None]  # [N, 1]
        self._of_phrases = ~self._is_mark[:, None]  # [N, 1]
        self._offsets = tf.range(max_length + 1)  # [L + 1]
        self._is_end = lengths[:, None] == self._offsets  # [N, L + 1]
        content = tf.io.decode_raw(texts, tf.uint8, fixed_length=max_length)
        self._content = tf.cast(content, tf.int32)  # [N, L]
        self._starts_word, ends_word = tf.unstack(starts_and_ends_in_words(texts))
        # Phrases that match whatever follows, because they end in punctuation.
        self._needs_no_boundary = self._of_phrases & ~ends_word[:, None]  # [N, 1]

        # Bytes that are in no text are equivalent if they are of the same class: ASCII
        # letters and digits, other ASCII, and all beyond ASCII. Each of the C symbols
        # is one such class, or one byte that is in a text.
        used = tf.unique(tf.reshape(self._content, [-1])).y
        self._symbols = tf.concat([[ord("a"), ord(" "), 0xFF], used], 0)  # [C]
        self._matched_bytes = tf.concat([[-1, -1, -1], used], 0)  # [C]
        is_ascii = np.arange(256) < 0x80
        classes = np.where(is_ascii, 1 - _IS_ASCII_WORD, 2).astype(np.int32)
        self._symbol_of_byte = tf.tensor_scatter_nd_update(
            classes, used[:, None], 3 + tf.range(tf.size(used))
        )  # [256]

    def tables(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the transitions, and in which states the text may end.

        Returns:
            The state to which each byte leads from each state, [states, 256] int32, or
            `MATCHED` if a phrase was found; and whether the text may end in a state,
            [states].
        """
        start = tf.zeros([1 + tf.size(self._is_end)], tf.int8)
        any_shape = tf.TensorShape([None, None])
        states, transitions = tf.while_loop(
            lambda states, transitions: tf.shape(transitions)[0] < tf.shape(states)[0],
            self._explore,
            (
                tf.stack([start, start - 1]),
                tf.zeros([0, tf.size(self._symbols)], tf.int32),
            ),
            shape_invariants=(any_shape, any_shape),
        )
        is_whole_phrase = (
            self._partial_matches(states) & self._is_end & self._of_phrases
        )
        may_end = ~tf.reduce_any(is_whole_phrase, [1, 2])
        return tf.gather(transitions, self._symbol_of_byte, axis=1), may_end

    def _explore(
        self, states: tf.Tensor, transitions: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Adds the missing rows of transitions, and the states to which they lead."""
        num_states = tf.shape(states)[0]
        successors = self._successors(states[tf.shape(transitions)[0] :])
        states, indices = tf.raw_ops.UniqueV2(
            x=tf.concat([states, successors], 0), axis=[0]
        )
        rows = tf.reshape(indices[num_states:], [-1, tf.size(self._symbols)])
        return states, tf.concat([transitions, rows], 0)

    def _partial_matches(self, states: tf.Tensor) -> tf.Tensor:
        """Returns which bytes of the texts states end with, [M, N, L + 1]."""
        return tf.reshape(states[:, 1:] == 1, [-1, *tf.unstack(tf.shape(self._is_end))])

    def _successors(self, states: tf.Tensor) -> tf.Tensor:
        """Returns the states [M * C, ...] after each symbol, for states [M, ...]."""
        in_word = states[:, 0, None] == 1  # [M, 1]
        matches = self._partial_matches(states)  # [M, N, L + 1]
        is_whole = matches & self._is_end
        is_whole_phrase = is_whole & self._of_phrases
        after_mark = tf.reduce_any(is_whole & self._of_marks, [1, 2])[:, None]  # [M, 1]
        after_phrase = tf.reduce_any(is_whole_phrase, [1, 2])[:, None]  # [M, 1]

        extended = self._extend_matches(matches, in_word)  # [M, C, N, L + 1]
        may_be_mark = tf.reduce_any(extended & self._of_marks, [2, 3])  # [M, C]
        is_letter = tf.gather(_IS_ASCII_WORD, self._symbols) | (
            (self._symbols >= 0x80) & ~after_mark
        )  # [M, C]

        is_found = after_phrase & ~is_letter & ~may_be_mark  # [M, C]
        ends_phrase = extended & self._is_end & self._needs_no_boundary
        is_found |= tf.reduce_any(ends_phrase, [2, 3])
        is_found |= states[:, 0, None] < 0
        # A whole phrase waits until it is known whether punctuation follows.
        extended |= is_whole_phrase[:, None] & may_be_mark[:, :, None, None]
        next_in_word = tf.where(may_be_mark, in_word, is_letter)  # [M, C]

        shape = [*tf.unstack(tf.shape(is_found)), tf.size(self._is_end)]
        rows = tf.concat([next_in_word[:, :, None], tf.reshape(extended, shape)], 2)
        rows = tf.cast(rows, tf.int8)  # [M, C, 1 + N (L + 1)]
        rows = tf.where(is_found[:, :, None], tf.constant(-1, tf.int8), rows)
        return tf.reshape(rows, [-1, tf.shape(states)[1]])

    def _extend_matches(self, matches: tf.Tensor, in_word: tf.Tensor) -> tf.Tensor:
        """Returns the partial matches after each symbol, [M, C, N, L + 1]."""
        in_mark = tf.reduce_any(matches & self._of_marks, [1, 2])[:, None]  # [M, 1]
        may_start = tf.where(
            self._is_mark, ~in_mark, ~(in_word & self._starts_word)
        )  # [M, N]
        starts = may_start[:, :, None] & (self._offsets == 0)  # [M, N, L + 1]
        prefixes = matches & ~self._is_end | starts
        is_next_byte = self._content == self._matched_bytes[:, None, None]  # [C, N, L]
        extended = prefixes[:, None, :, :-1] & is_next_byte  # [M, C, N, L]
        return tf.pad(extended, [[0, 0], [0, 0], [0, 0], [1, 0]])


class ForbiddenPhrases:
    """Excludes phrases, however they are split into tokens; see `ForbiddenTables`."""

    def __init__(self, allowed: tf.Tensor, transitions: tf.Tensor) -> None:
        self._allowed = allowed
        self._transitions = transitions

    def init(self, source: tf.Tensor, num_beams: tf.Tensor) -> Nest:
        """Returns the automaton's first state for all hypotheses, [B, K]."""
        return tf.zeros(tf.stack([tf.shape(source)[0], num_beams]), tf.int32)

    def mask(self, state: Nest, position: tf.Tensor) -> tf.Tensor:
        """Returns which tokens are allowed, [B, K, V]."""
        del position
        nothing_forbidden = tf.shape(self._allowed)[0] == 1
        return tf.cond(
            nothing_forbidden,
            lambda: self._allowed[None],
            lambda: tf.gather(self._allowed, state),
        )

    def advance(self, state: Nest, parents: tf.Tensor, tokens: tf.Tensor) -> Nest:
        """Returns the states after a step."""
        state = tf.gather(state, parents, batch_dims=1)
        return tf.gather_nd(self._transitions, tf.stack([state, tokens], 2))


class ForbiddenTables:
    """Makes, in the graph, the tables of an automaton that excludes phrases.

    A phrase is excluded as a sequence of whole words: where no letter or digit precedes
    it and none follows. All characters beyond ASCII count as letters, except those of
    the blocks of punctuation. The automaton reads the bytes of the output.

    Args:
        token_bytes: for each id, what the token adds to the output's text.
    """

    def __init__(self, token_bytes: Sequence[bytes]) -> None:
        # The prefixes of all tokens form a trie. Each of its levels, one for each
        # length, has the index of each prefix's parent in the level above, and the
        # byte that follows the parent.
        self._levels: list[tuple[np.ndarray, np.ndarray]] = []
        prefixes = {text[:i] for text in token_bytes for i in range(len(text) + 1)}
        ordered = sorted(prefixes, key=len)
        indices = {prefix: i for i, prefix in enumerate(ordered)}
        level_start = 0
        for _, group in itertools.groupby(ordered[1:], len):
            level = list(group)
            parents = [indices[prefix[:-1]] - level_start for prefix in level]
            following = [prefix[-1] for prefix in level]
            self._levels.append(
                (np.array(parents, np.int32), np.array(following, np.int32))
            )
            level_start = indices[level[0]]
        self._indices = np.array([indices[text] for text in token_bytes], np.int32)

    def __call__(self, phrases: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the tables for phrases [N] strings; empty ones are ignored.

        Returns:
            Which tokens are allowed in each of the states, [states, V], and the state
            after each token, [states, V] int32. The first state is 0.
        """
        vocab_size = len(self._indices)
        with tf.device(CPU):
            return tf.cond(
                tf.reduce_any(phrases != ""),
                lambda: self._tables(tf.boolean_mask(phrases, phrases != "")),
                lambda: (
                    tf.ones([1, vocab_size], tf.bool),
                    tf.zeros([1, vocab_size], tf.int32),
                ),
            )

    def _tables(self, phrases: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the tables for phrases [F], none of them empty."""
        transitions, may_end = PhraseAutomaton(phrases).tables()
        transitions_size = tf.shape(transitions)[0]
        flat_transitions = tf.reshape(transitions, [-1])
        states = tf.range(transitions_size)[:, None]  # after the empty prefix
        after_prefixes = [states]
        for parents, following in self._levels:
            parent_states = tf.gather(states, parents, axis=1)  # [states, prefixes]
            states = tf.gather(flat_transitions, parent_states * 256 + following)
            after_prefixes.append(states)
        after_tokens = tf.gather(tf.concat(after_prefixes, 1), self._indices, axis=1)
        is_eos = tf.range(len(self._indices)) == EOS  # [V]
        allowed = tf.where(is_eos, may_end[:, None], after_tokens != MATCHED)
        return allowed, tf.where(allowed, after_tokens, 0)


# Cached, because the trie of a large vocabulary takes seconds.
forbidden_tables = functools.lru_cache(maxsize=4)(ForbiddenTables)


def protected_pattern(kinds: Sequence[str], pieces: Sequence[str]) -> str:
    """Returns the regular expression of the protected parts.

    Where two kinds begin at the same place, the one that `KINDS` has first wins.

    Args:
        kinds: names in `KINDS`, or `UNKNOWN`.
        pieces: the tokens of the source's vocabulary.
    """
    patterns = [KINDS[name] for name in KINDS if name in kinds]
    if UNKNOWN in kinds:
        codes = sorted({ord(character) for character in "".join(pieces)})
        characters = "".join(rf"\x{{{code:X}}}" for code in codes)
        patterns.append(f"[^{characters}{WHITE_SPACE}]+")
    return "|".join(patterns)


def find_protected(texts: "tf.Tensor", pattern: str) -> "tf.RaggedTensor":
    """Returns the parts [B, (M)] of texts [B] that match a pattern, in their order."""
    import tensorflow as tf

    from t2t_keras.text.sentences_graph import CPU

    with tf.device(CPU):
        texts = tf.strings.regex_replace(texts, "[\x00\x01]", " ")
        marked = tf.strings.regex_replace(texts, f"({pattern})", "\x00\\1\x01")
        # Each part but the first begins with something that was found.
        parts = tf.strings.split(marked, "\x00")[:, 1:]
        protected = tf.strings.regex_replace(parts.values, "(?s)\x01.*", "")
        return parts.with_values(protected)


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
    def from_options(cls, options: DecodingOptions, tokenizer: Tokenizer) -> Self:
        """Returns the phrases of options, for a target tokenizer."""
        glossary: tuple[tf.Tensor, ...] = ()
        if options.glossary:
            sources, targets = zip(*options.glossary, strict=True)
            ids = [row[:-1] for row in tokenizer.encode_batch(targets)]
            terms = tf.ragged.constant(ids, tf.int32, ragged_rank=1, inner_shape=())
            patterns = whole_word_patterns(tf.constant(sources))
            glossary = patterns, terms.to_tensor(PAD)
        forbidden: tuple[tf.Tensor, ...] = ()
        if options.forbidden:
            tables = forbidden_tables(tuple(tokenizer.token_bytes()))
            forbidden = tables(tf.constant(options.forbidden))
        return cls(glossary, forbidden)

    def required(self, texts: tf.Tensor, copied: tf.Tensor | None) -> tf.Tensor:
        """Returns the phrases that the outputs must contain, [B, M, L] int32.

        The glossary must have at least one term.

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
        occurs = tf.cast(tf.transpose(occurs), tf.int32)  # [B, N]
        max_terms = tf.reduce_max(tf.reduce_sum(occurs, axis=1))
        matches = tf.math.top_k(occurs, max_terms)  # equals keep their order
        phrases = tf.gather(terms, matches.indices) * matches.values[:, :, None]
        if copied is None:
            return phrases
        width = tf.maximum(tf.shape(phrases)[2], tf.shape(copied)[2])
        padded = [_pad_phrases(phrases, width), _pad_phrases(copied, width)]
        return tf.concat(padded, axis=1)


def _pad_phrases(phrases: tf.Tensor, width: tf.Tensor) -> tf.Tensor:
    """Returns phrases [B, M, L], padded to L = width."""
    return tf.pad(phrases, [[0, 0], [0, 0], [0, width - tf.shape(phrases)[2]]])


def protected_parts(
    texts: tf.Tensor, names: Sequence[str], pieces: Sequence[str]
) -> tf.RaggedTensor:
    """Returns what the option `protect` protects in texts [B]: strings [B, (M)].

    Args:
        texts: the sources.
        names: the option's value.
        pieces: the tokens of the source's vocabulary.
    """
    return find_protected(texts, protected_pattern(names, pieces))

"""Forbidden phrases: no output has them as whole words, however they are tokenized."""

import functools
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from t2t_keras.model.backend import Nest
from t2t_keras.text.sentences_graph import CPU
from t2t_keras.text.vocabulary import EOS


def starts_and_ends_in_words(terms: tf.Tensor) -> tf.Tensor:
    """Returns whether terms [N] start and end with a letter or digit, [2, N]."""
    starts = tf.strings.regex_full_match(terms, r"(?s)[\p{L}\p{N}].*")
    stops = tf.strings.regex_full_match(terms, r"(?s).*[\p{L}\p{N}]")
    return tf.stack([starts, stops])


# Nodes that stand for no beginning of a phrase: after a character of no word, after one
# of a word, and after a whole phrase if the word may go on; and that of all texts in
# which a phrase was found. The others are numbered from 4.
_OUTSIDE, _INSIDE, _AFTER_PHRASE, _MATCHED = range(4)

# The symbols after the bytes: the last character belongs to no word (or there is
# none), and the next one belongs to no word (or there is none).
_BEGIN = 256
_END = 257
_NUM_SYMBOLS = 258

# The first byte of these characters does not tell whether they belong to a word. It
# waits for the second; a state is a node and which of them is waiting, if any.
_WAITING = (0x00, 0xE2, 0xE3)
_WAITING_INDEX = np.zeros(256, np.int32)
_WAITING_INDEX[list(_WAITING)] = range(len(_WAITING))

NUM_CONTEXTS = _MATCHED * len(_WAITING)  # states of the first three nodes
MATCHED = NUM_CONTEXTS  # the state after a phrase
FIRST_IN_PHRASE = MATCHED + len(_WAITING)  # the first state with a phrase's beginning

_BYTES = np.arange(256)
_CONTINUES = (_BYTES >= 0x80) & (_BYTES < 0xC0)  # not the first of its character

# All characters beyond ASCII belong to words, except those of these blocks: Latin-1
# Supplement (its first half, C2), General Punctuation (E2 80, E2 81), CJK Symbols
# (E3 80).
_IS_WORD = np.array([x >= 0x80 or chr(x).isalnum() for x in _BYTES])
_IS_WORD[0xC2] = False
_IS_WORD_AFTER = np.ones([len(_WAITING), 256], bool)  # of a waiting byte, by the second
_IS_WORD_AFTER[1, [0x80, 0x81]] = False
_IS_WORD_AFTER[2, 0x80] = False


class PhraseAutomaton:
    """Finds phrases [F], none of them empty, as whole words.

    It is the automaton of Aho and Corasick (1975), for texts with symbols between
    their characters: `_BEGIN` after each character of no word, and `_END` before each.
    A phrase that starts with a letter or digit starts with `_BEGIN`, and one that ends
    with a letter or digit ends with `_END`. A node stands for the longest end of the
    text that is the beginning of a phrase.

    Attributes:
        num_states: the number of states; the first is 0.
    """

    def __init__(self, phrases: tf.Tensor) -> None:
        symbols, is_word = _symbols(tf.unique(phrases).y)
        # The node after each node and symbol [nodes, 258], and whether the last
        # character of each node belongs to a word.
        with tf.device(CPU):
            self._successors, self._is_word = _build(symbols, is_word)
        self.num_states = tf.shape(self._is_word)[0] * len(_WAITING)
        nodes = tf.range(tf.shape(self._is_word)[0])
        # Whether a phrase ends where no letter or digit comes next.
        after_end = self._successor(self._after_begin(nodes), _END)
        self._ends_phrase = after_end == _MATCHED

    def contexts(self) -> tf.Tensor:
        """Returns the state like each one that has no beginning of a phrase."""
        ends_word = tf.where(self._ends_phrase, _AFTER_PHRASE, _INSIDE)
        nodes = tf.where(self._is_word, ends_word, _OUTSIDE)
        waiting = tf.range(len(_WAITING))
        return tf.reshape(nodes[:, None] * len(_WAITING) + waiting, [-1])

    def is_in_character(self) -> tf.Tensor:
        """Returns in which states the first byte of a character is waiting."""
        return tf.range(self.num_states) % len(_WAITING) > 0

    def may_end(self) -> tf.Tensor:
        """Returns whether the text may end in each of the states."""
        return tf.repeat(~self._ends_phrase, len(_WAITING))

    def advance(self, states: tf.Tensor, following: tf.Tensor) -> tf.Tensor:
        """Returns the states after one more byte.

        Args:
            states: any shape, int32.
            following: the bytes, int32, of a shape that fits.
        """
        nodes = states // len(_WAITING)
        waiting = states % len(_WAITING)
        is_waiting = waiting > 0
        continues = tf.gather(_CONTINUES, following)
        is_word = tf.gather(_IS_WORD_AFTER.ravel(), waiting * 256 + following)
        lead_byte = tf.gather(_WAITING, waiting)
        nodes = tf.where(is_waiting, self._after(nodes, lead_byte, is_word), nodes)
        of_same = tf.where(is_waiting, is_word, tf.gather(self._is_word, nodes))
        next_nodes = tf.where(
            continues,
            self._after_byte(nodes, following, of_same),
            self._after(nodes, following, tf.gather(_IS_WORD, following)),
        )
        next_waiting = tf.gather(_WAITING_INDEX, following)
        nodes = tf.where(next_waiting > 0, nodes, next_nodes)
        return tf.where(
            nodes == _MATCHED, MATCHED, nodes * len(_WAITING) + next_waiting
        )

    def _after(
        self, nodes: tf.Tensor, lead_byte: tf.Tensor, is_word: tf.Tensor
    ) -> tf.Tensor:
        """Returns the nodes after the first byte of a character."""
        nodes = self._after_begin(nodes)
        nodes = tf.where(is_word, nodes, self._successor(nodes, _END))
        return self._after_byte(nodes, lead_byte, is_word)

    def _after_byte(
        self, nodes: tf.Tensor, byte: tf.Tensor, is_word: tf.Tensor
    ) -> tf.Tensor:
        """Returns the nodes after a byte of a character."""
        nodes = self._successor(nodes, byte)
        is_outside = nodes == _OUTSIDE
        return tf.where(is_outside & is_word, _INSIDE, nodes)

    def _after_begin(self, nodes: tf.Tensor) -> tf.Tensor:
        """Returns the nodes after `_BEGIN`, where it is in the text."""
        is_word = tf.gather(self._is_word, nodes)
        return tf.where(is_word, nodes, self._successor(nodes, _BEGIN))

    def _successor(self, nodes: tf.Tensor, symbols: tf.Tensor | int) -> tf.Tensor:
        flat = tf.reshape(self._successors, [-1])
        return tf.gather(flat, nodes * _NUM_SYMBOLS + symbols)


def _symbols(phrases: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the symbols of phrases, and whether each belongs to a word, [F, L].

    The symbols are padded with -1.
    """
    lengths = tf.strings.length(phrases)[:, None]  # [F, 1]
    # At least one column more, for the symbols after a phrase.
    size = tf.reduce_max(tf.concat([[0], lengths[:, 0]], 0)) + 1
    content = tf.io.decode_raw(phrases, tf.uint8, fixed_length=size)
    content = tf.cast(content, tf.int32)  # [F, L]
    following = tf.pad(content[:, 1:], [[0, 0], [0, 1]])
    waiting = tf.gather(_WAITING_INDEX, content)
    is_word = tf.gather(_IS_WORD, content)
    is_word &= tf.gather(_IS_WORD_AFTER.ravel(), waiting * 256 + following)
    continues = tf.gather(_CONTINUES, content)
    for _ in range(3):  # a character has at most three more bytes
        is_word = tf.where(continues, _shifted(is_word), is_word)

    starts_word, ends_word = tf.unstack(starts_and_ends_in_words(phrases))
    position = tf.range(size)
    is_last = position == lengths  # the column after the phrase
    # Whether the symbols stand before the byte of each column.
    may_stand = tf.where(
        position == 0, starts_word[:, None], ~continues & (position < lengths)
    )
    may_stand |= is_last & ends_word[:, None]
    has_begin = may_stand & ((position == 0) | ~_shifted(is_word))
    has_end = may_stand & (is_last | ~is_word)
    columns = [
        tf.where(has_begin, _BEGIN, -1),
        tf.where(has_end, _END, -1),
        tf.where(position < lengths, content, -1),
    ]
    symbols = tf.stack(columns, 2)  # [F, L, 3]
    is_word = tf.repeat(is_word[:, :, None], 3, axis=2)
    shape = tf.stack([tf.shape(phrases)[0], size * 3])
    symbols = tf.reshape(symbols, shape)
    is_word = tf.reshape(is_word, shape)
    stands = symbols >= 0
    return (
        tf.ragged.boolean_mask(symbols, stands).to_tensor(-1),
        tf.ragged.boolean_mask(is_word, stands).to_tensor(False),
    )


def _shifted(values: tf.Tensor) -> tf.Tensor:
    """Returns booleans [F, L], each in the place of the next one."""
    return tf.pad(values[:, :-1], [[0, 0], [1, 0]])


# A graph, because a long phrase has many steps.
@tf.function(
    input_signature=[
        tf.TensorSpec([None, None], tf.int32),
        tf.TensorSpec([None, None], tf.bool),
    ],
    autograph=False,
)
def _build(symbols: tf.Tensor, is_word: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the successors of all nodes, and which of them are in a word.

    Nodes are made by their depth.

    Args:
        symbols: [F, L], see `_symbols`.
        is_word: [F, L].
    """
    num_columns = tf.shape(symbols)[1]
    padded = tf.pad(symbols, [[0, 0], [0, 1]], constant_values=-1)

    def add_depth(
        depth: tf.Tensor, nodes: tf.Tensor, successors: tf.Tensor, words: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        """Adds the nodes of a depth; `nodes` [F] are those of the depth before."""
        rows = tf.where(padded[:, depth] >= 0)[:, 0]
        edges = tf.gather(nodes, rows) * _NUM_SYMBOLS
        edges, indices = tf.unique(edges + tf.gather(padded[:, depth], rows))

        def in_any_row(values: tf.Tensor) -> tf.Tensor:
            """Returns for each edge whether one of its phrases has the value [F]."""
            of_rows = tf.cast(tf.gather(values, rows), tf.int32)
            size = tf.size(edges)
            return tf.math.unsorted_segment_max(of_rows, indices, size) > 0

        is_end = in_any_row(padded[:, depth + 1] < 0)
        new_nodes, successors = _add_nodes(successors, edges, is_end)
        nodes = tf.tensor_scatter_nd_update(
            nodes, rows[:, None], tf.gather(new_nodes, indices)
        )
        words = tf.concat([words, in_any_row(is_word[:, depth])], 0)
        return depth + 1, nodes, successors, words

    first_rows = np.full([_MATCHED + 1, _NUM_SYMBOLS], _OUTSIDE, np.int32)
    first_rows[_MATCHED] = _MATCHED
    _, _, successors, words = tf.while_loop(
        lambda depth, *_: depth < num_columns,
        add_depth,
        (
            0,
            tf.fill(tf.shape(symbols)[:1], _OUTSIDE),
            tf.constant(first_rows),
            tf.constant([False, True, True, False]),
        ),
        shape_invariants=(
            tf.TensorShape([]),
            tf.TensorShape([None]),
            tf.TensorShape([None, _NUM_SYMBOLS]),
            tf.TensorShape([None]),
        ),
    )
    return _with_contexts(successors), words


def _add_nodes(
    successors: tf.Tensor, edges: tf.Tensor, is_end: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the nodes at the ends of new edges, and all successors with theirs.

    The row of a node is that of the longest shorter end of its text that is a node,
    until a phrase continues it.

    Args:
        successors: [nodes, 258].
        edges: [E], node * 258 + symbol.
        is_end: [E], whether a phrase ends there.
    """
    flat = tf.reshape(successors, [-1])
    shorter = tf.gather(flat, edges)
    new_nodes = tf.shape(successors)[0] + tf.range(tf.size(edges))
    is_match = is_end | (shorter == _MATCHED)
    targets = tf.where(is_match, _MATCHED, new_nodes)
    flat = tf.tensor_scatter_nd_update(flat, edges[:, None], targets)
    successors = tf.reshape(flat, [-1, _NUM_SYMBOLS])
    new_rows = tf.gather(successors, shorter)
    return new_nodes, tf.concat([successors, new_rows], 0)


def _with_contexts(successors: tf.Tensor) -> tf.Tensor:
    """Returns the successors in which the other contexts have those of `_OUTSIDE`."""
    root = successors[_OUTSIDE]
    after_phrase = tf.tensor_scatter_nd_update(root, [[_END]], [_MATCHED])
    contexts = tf.stack([root, root, after_phrase])
    return tf.concat([contexts, successors[_MATCHED:]], 0)


class ForbiddenPhrases:
    """Excludes phrases, however they are split into tokens.

    Most tokens have the same effect in all states of a context, because they do not
    continue what a state has found of a phrase; see `ForbiddenTables`.

    Args:
        allowed: which tokens are allowed in each context, [C, V].
        transitions: the state after each token in each context, [C, V] int32.
        contexts: the context of each state, [states] int32.
        keys: the exceptions, state * V + token, in increasing order, [E] int64; the
            last one is none.
        targets: the states after them, [E] int32, `MATCHED` where they are forbidden.
    """

    def __init__(
        self,
        allowed: tf.Tensor,
        transitions: tf.Tensor,
        contexts: tf.Tensor,
        keys: tf.Tensor,
        targets: tf.Tensor,
    ) -> None:
        self._allowed = allowed
        self._transitions = transitions
        self._contexts = contexts
        self._keys = keys
        self._targets = targets

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
            lambda: self._mask(state),
        )

    def _mask(self, state: tf.Tensor) -> tf.Tensor:
        states = tf.reshape(state, [-1])  # [B K]
        allowed = tf.gather(self._allowed, tf.gather(self._contexts, states))
        first_keys = self._key(states, 0)
        starts = tf.searchsorted(self._keys, first_keys)
        counts = tf.searchsorted(self._keys, self._key(states + 1, 0)) - starts
        exceptions = _ranges(starts, counts)  # [E]
        tokens = tf.gather(self._keys, exceptions) - tf.repeat(first_keys, counts)
        rows = tf.repeat(tf.range(tf.size(states)), counts)
        allowed = tf.tensor_scatter_nd_update(
            allowed,
            tf.stack([rows, tf.cast(tokens, tf.int32)], 1),
            tf.gather(self._targets, exceptions) != MATCHED,
        )
        return tf.reshape(allowed, tf.concat([tf.shape(state), [-1]], 0))

    def advance(self, state: Nest, parents: tf.Tensor, tokens: tf.Tensor) -> Nest:
        """Returns the states after a step."""
        state = tf.gather(state, parents, batch_dims=1)
        contexts = tf.gather(self._contexts, state)
        states = tf.gather_nd(self._transitions, tf.stack([contexts, tokens], 2))
        keys = tf.reshape(self._key(state, tokens), [-1])
        exceptions = tf.searchsorted(self._keys, keys)
        is_exception = tf.gather(self._keys, exceptions) == keys
        targets = tf.gather(self._targets, exceptions)
        shape = tf.shape(states)
        return tf.where(
            tf.reshape(is_exception, shape), tf.reshape(targets, shape), states
        )

    def _key(self, states: tf.Tensor, tokens: tf.Tensor | int) -> tf.Tensor:
        vocab_size = tf.shape(self._allowed, tf.int64)[1]
        return tf.cast(states, tf.int64) * vocab_size + tf.cast(tokens, tf.int64)


class ForbiddenTables:
    """Makes the tables of `ForbiddenPhrases`, also in a graph.

    A phrase is excluded as a sequence of whole words: where no letter or digit precedes
    it and none follows. All characters beyond ASCII count as letters, except those of
    the blocks of punctuation. The automaton reads the bytes of the output. Time and
    memory are proportional to the number of the phrases.

    Args:
        token_bytes: for each id, what the token adds to the output's text.
    """

    def __init__(self, token_bytes: Sequence[bytes]) -> None:
        # The prefixes of all tokens form a trie. They are sorted by their length, and
        # the children of a prefix stand side by side.
        prefixes = {text[:i] for text in token_bytes for i in range(len(text) + 1)}
        ordered = sorted(prefixes, key=lambda prefix: (len(prefix), prefix))
        indices = {prefix: i for i, prefix in enumerate(ordered)}
        parents = [indices[prefix[:-1]] for prefix in ordered]
        self._parents = np.array(parents, np.int32)
        self._last_bytes = np.array([p[-1] if p else 0 for p in ordered], np.int32)
        lengths = [len(prefix) for prefix in ordered]
        self._level_stops = np.cumsum(np.bincount(lengths))
        counts = np.bincount(parents[1:], minlength=len(ordered))
        starts = 1 + np.cumsum(counts) - counts
        # The last entry is the empty prefix within a character, which continues with
        # bytes that are not the first of a character.
        first_bytes = self._last_bytes[1 : 1 + counts[0]]
        start, stop = 1 + np.searchsorted(first_bytes, [0x80, 0xC0])
        self._num_children = np.append(counts, stop - start).astype(np.int32)
        self._first_child = np.append(starts, start).astype(np.int32)
        # The prefix that each token is, and the tokens of each prefix without EOS.
        self._indices = np.array([indices[text] for text in token_bytes], np.int32)
        by_prefix = np.argsort(self._indices, kind="stable").astype(np.int32)
        self._tokens = by_prefix[by_prefix != EOS]
        counts = np.bincount(self._indices[self._tokens], minlength=len(ordered))
        starts = np.cumsum(counts) - counts
        self._num_tokens = np.append(counts, counts[0]).astype(np.int32)
        self._first_token = np.append(starts, starts[0]).astype(np.int32)

    def __call__(self, phrases: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Returns the tables for phrases [N] strings; empty ones are ignored."""
        vocab_size = len(self._indices)
        with tf.device(CPU):
            return tf.cond(
                tf.reduce_any(phrases != ""),
                lambda: self._tables(tf.boolean_mask(phrases, phrases != "")),
                lambda: (
                    tf.ones([1, vocab_size], tf.bool),
                    tf.zeros([1, vocab_size], tf.int32),
                    tf.zeros([1], tf.int32),
                    tf.constant([tf.int64.max]),
                    tf.constant([MATCHED]),
                ),
            )

    def _tables(self, phrases: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Returns the tables for phrases [F], none of them empty."""
        automaton = PhraseAutomaton(phrases)
        after_prefixes = self._after_prefixes(automaton)
        transitions = tf.gather(after_prefixes, self._indices, axis=1)
        is_eos = tf.range(len(self._indices)) == EOS  # [V]
        may_end = automaton.may_end()[:NUM_CONTEXTS, None]
        allowed = tf.where(is_eos, may_end, transitions != MATCHED)
        contexts = automaton.contexts()
        keys, targets = self._exceptions(automaton, contexts, after_prefixes)
        return allowed, tf.where(allowed, transitions, 0), contexts, keys, targets

    def _after_prefixes(self, automaton: PhraseAutomaton) -> tf.Tensor:
        """Returns the state after each prefix in each context, [C, prefixes]."""
        states = tf.range(NUM_CONTEXTS)[:, None]
        levels = [states]
        starts = [0, *self._level_stops]
        for above, start, stop in zip(starts, starts[1:], starts[2:], strict=False):
            parents = self._parents[start:stop] - above
            following = self._last_bytes[start:stop]
            states = automaton.advance(tf.gather(states, parents, axis=1), following)
            levels.append(states)
        return tf.concat(levels, 1)

    def _exceptions(
        self, automaton: PhraseAutomaton, contexts: tf.Tensor, after_prefixes: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the keys and targets of `ForbiddenPhrases`.

        They are found level by level. Where a state and its context lead to the same
        state, so do their longer prefixes.
        """

        def add_level(
            origins: tf.Tensor,
            prefixes: tf.Tensor,
            states: tf.Tensor,
            keys: tf.Tensor,
            targets: tf.Tensor,
        ) -> tuple[tf.Tensor, ...]:
            counts = tf.gather(self._num_tokens, prefixes)
            tokens = _ranges(tf.gather(self._first_token, prefixes), counts)
            tokens = tf.cast(tf.gather(self._tokens, tokens), tf.int64)
            rows = tf.cast(tf.repeat(origins, counts), tf.int64)
            keys = tf.concat([keys, rows * len(self._indices) + tokens], 0)
            targets = tf.concat([targets, tf.repeat(states, counts)], 0)

            counts = tf.gather(self._num_children, prefixes)
            children = _ranges(tf.gather(self._first_child, prefixes), counts)
            following = tf.gather(self._last_bytes, children)
            states = automaton.advance(tf.repeat(states, counts), following)
            origins = tf.repeat(origins, counts)
            in_context = tf.stack([tf.gather(contexts, origins), children], 1)
            differs = states != tf.gather_nd(after_prefixes, in_context)
            frontier = (
                tf.boolean_mask(x, differs) for x in (origins, children, states)
            )
            return *frontier, keys, targets

        origins = tf.range(FIRST_IN_PHRASE, automaton.num_states)
        is_in_character = tf.gather(automaton.is_in_character(), origins)
        within_character = len(self._num_children) - 1
        may_end = automaton.may_end()
        end_states = tf.where(may_end != tf.gather(may_end, contexts))[:, 0]
        keys = tf.concat([end_states * len(self._indices) + EOS, [tf.int64.max]], 0)
        any_size = tf.TensorShape([None])
        *_, keys, targets = tf.while_loop(
            lambda origins, *_: tf.size(origins) > 0,
            add_level,
            (
                origins,
                tf.where(is_in_character, within_character, 0),
                origins,
                keys,
                tf.fill(tf.shape(keys), MATCHED),
            ),
            shape_invariants=(any_size,) * 5,
        )
        order = tf.argsort(keys)
        return tf.gather(keys, order), tf.gather(targets, order)


def _ranges(starts: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    """Returns the integers of all ranges, one range after the other."""
    shifts = starts - tf.cumsum(counts, exclusive=True)
    return tf.range(tf.reduce_sum(counts)) + tf.repeat(shifts, counts)


# Cached, because the trie of a large vocabulary takes seconds.
forbidden_tables = functools.lru_cache(maxsize=4)(ForbiddenTables)

"""A decoding constraint by which every output is a tree over the source's words."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import tensorflow as tf

from t2t_keras.errors import UserError
from t2t_keras.text.sentences_graph import CPU
from t2t_keras.text.tokenizer import Tokenizer
from t2t_keras.text.vocabulary import EOS

from .graph import word_kinds
from .linearise import Brackets
from .words import BRACKET, KIND_OF_TAG, MARK, WORD

# In the 25,000 trees of the Treebank's sample and of CRAFT, at most 29 constituents are
# open at a word, and at most 9 begin at the same word.
MAX_DEPTH = 64
MAX_OPENERS = 16

# Number of tokens besides the leaves in the shortest allowed output: the two brackets
# of the root, and EOS.
_SHORTEST = 3


class BracketTokens(NamedTuple):
    """The role of every token of a vocabulary in `BalancedBrackets`.

    Attributes:
        leaf: [V] int32, the kinds of words that the token can stand for, as bits (see
            `words.KIND_OF_TAG`); 0 if it is not a leaf.
        opens: [V] int32, the number, from 1, of the label that the token opens, or 0.
        closes: [V] int32, the number of the label that the token closes, or 0.
    """

    leaf: np.ndarray
    opens: np.ndarray
    closes: np.ndarray

    @classmethod
    def from_symbols(cls, symbols: Sequence[str], tokenizer: Tokenizer) -> Self:
        """Returns the tokens of a problem's symbols.

        Args:
            symbols: the problem's symbols.
            tokenizer: the target tokenizer.

        Raises:
            UserError: the symbols have no brackets or no leaves, or one of them is not
                a single token.
        """
        brackets = Brackets.from_symbols(symbols)
        if not (brackets.openers and brackets.leaves):
            raise UserError(
                "the constraint 'brackets' needs a problem whose symbols are opening "
                "and closing brackets (X and /X) and leaves; set constraint to 'none'"
            )
        leaf, opens, closes = np.zeros((3, tokenizer.vocab_size), np.int32)

        def token(symbol: str) -> int:
            ids = tokenizer.encode(symbol)[:-1]
            if len(ids) != 1:
                raise UserError(
                    f"the constraint 'brackets' needs symbols of one token each, but "
                    f"'{symbol}' has {len(ids)} in the vocabulary; set constraint to "
                    "'none', or generate the data again"
                )
            return ids[0]

        kinds = {symbol: KIND_OF_TAG.get(symbol, WORD) for symbol in brackets.leaves}
        # Words of a kind without leaves may have any leaf.
        without_leaf = {WORD, MARK, BRACKET} - set(kinds.values())
        for symbol, symbol_kind in kinds.items():
            leaf[token(symbol)] = symbol_kind + sum(without_leaf)
        for label_index, label in enumerate(brackets.openers, 1):
            opens[token(label)] = label_index
            closes[token(f"/{label}")] = label_index
        return cls(leaf, opens, closes)


class _State(NamedTuple):
    """The state of every hypothesis, in the order of the beams, and of its source.

    Attributes:
        stack: [B, K, MAX_DEPTH] int32, the labels of open brackets, outermost first;
            values from `depth` on have no meaning.
        depth: [B, K] int32, the number of open brackets.
        openers: [B, K] int32, the number of openers since the last leaf or closer.
        words: [B, K] int32, the number of words without leaves.
        kinds: [B, W + 1] int32, the kind of each word of the source, then 0.
        num_words: [B, 1] int32, the number of words of the source.
        max_length: [B, 1] int32, the largest number of tokens in an output.
    """

    stack: tf.Tensor
    depth: tf.Tensor
    openers: tf.Tensor
    words: tf.Tensor
    kinds: tf.Tensor
    num_words: tf.Tensor
    max_length: tf.Tensor


class BalancedBrackets:
    """Allows only linearised trees with as many leaves as the source has words.

    Every closer closes the innermost open bracket, no bracket is empty, and one
    outermost bracket contains all words (a single word may stand alone). EOS is allowed
    exactly when this bracket is closed. If leaves are tags, then punctuation marks and
    brackets get their tags, and other words do not.

    *An output always ends within the limit.* To be completed, a hypothesis needs a leaf
    for each remaining word, a closer for each open bracket, and EOS. An opener is
    allowed only if the limit leaves two tokens more than these; leaves and closers use
    tokens that were counted. So every hypothesis can be completed. And every state
    allows some token: if words remain, a leaf (at the start, an opener); if none
    remain, a closer, because the open bracket has a child.

    *Chains* such as NP over NP over NP use up no words; their number is limited to
    MAX_OPENERS between two words and MAX_DEPTH in total.

    Args:
        table: the role of every token in the target's vocabulary.
        kinds: [B, W] int32, the kind of each word (see `graph.word_kinds`), and 0 after
            the last.
        max_length: [B] int32, the largest number of tokens in each output, at least
            three more than words.
    """

    def __init__(
        self, table: BracketTokens, kinds: tf.Tensor, max_length: tf.Tensor
    ) -> None:
        self._kinds = tf.pad(kinds, [[0, 0], [0, 1]])
        self._num_words = _count_words(kinds)[:, None]
        self._max_length = max_length[:, None]
        # Rows of a mask [V] for every kind of word: a gather replaces operations on
        # integers [B, K, V], which on a GPU run in the host's memory.
        kinds_of_words = np.arange(2 * BRACKET)[:, None]
        self._leaves_of_kind = (kinds_of_words & table.leaf) > 0
        self._is_opener = table.opens > 0
        # The label that a token opens; and 1 to open a bracket, -1 to close one, 0 for
        # all other tokens. On a GPU an int32 table would be in the host's memory.
        changes = table.opens, np.sign(table.opens - table.closes)
        self._changes = np.stack(changes, axis=1).astype(np.float32)
        # EOS is treated as a closer, for when no bracket is open.
        self._eos_label = int(table.closes.max()) + 1
        is_eos = np.arange(len(table.closes)) == EOS
        closes = np.where(is_eos, self._eos_label, table.closes)
        # Rows of a mask [V] for every label; label 0 is none.
        labels = np.arange(self._eos_label + 1)[:, None]
        self._closers_of_label = (labels > 0) & (labels == closes)

    def init(self, source: tf.Tensor, num_beams: tf.Tensor) -> _State:
        """Returns the state before the first step, without open brackets."""
        shape = tf.stack([tf.shape(source)[0], num_beams])
        zeros = tf.zeros(shape, tf.int32)
        return _State(
            stack=tf.zeros(tf.concat([shape, [MAX_DEPTH]], 0), tf.int32),
            depth=zeros,
            openers=zeros,
            words=self._num_words + zeros,
            kinds=self._kinds,
            num_words=self._num_words,
            max_length=self._max_length,
        )

    def mask(self, state: _State, position: tf.Tensor) -> tf.Tensor:
        """Returns the tokens [B, K, V] that can continue a tree."""
        depth = state.depth
        words = state.words
        remaining = state.max_length - position  # remaining tokens, EOS included
        spare = remaining - (words + depth + 1)
        has_words = words > 0
        # The kind of the next word; after the last word 0, which allows no leaf.
        last_index = tf.shape(state.kinds)[1] - 1
        word_index = tf.minimum(state.num_words - words, last_index)
        word_kind = tf.gather(state.kinds, word_index, batch_dims=1)
        word_kind = tf.where((depth > 0) | (words == 1), word_kind, 0)
        opener = has_words & (spare >= 2)
        opener &= (depth < MAX_DEPTH) & (state.openers < MAX_OPENERS)
        closer = (state.openers == 0) & ((depth > 1) | ~has_words)

        innermost = tf.range(MAX_DEPTH) == depth[:, :, None] - 1
        label = tf.reduce_sum(tf.where(innermost, state.stack, 0), axis=2)
        label = tf.where(depth > 0, label, self._eos_label)
        label = tf.where(closer, label, 0)
        return (
            tf.gather(self._leaves_of_kind, word_kind)
            | (opener[:, :, None] & self._is_opener)
            | tf.gather(self._closers_of_label, label)
        )

    def advance(self, state: _State, parents: tf.Tensor, tokens: tf.Tensor) -> _State:
        """Returns the state after the tokens [B, K].

        The state of an empty beam slot has no meaning.
        """
        stack = tf.gather(state.stack, parents, batch_dims=1)
        depth = tf.gather(state.depth, parents, batch_dims=1)
        openers = tf.gather(state.openers, parents, batch_dims=1)
        words = tf.gather(state.words, parents, batch_dims=1)
        changes = tf.cast(tf.gather(self._changes, tokens), tf.int32)
        label, step = tf.unstack(changes, axis=-1)
        is_opener = step > 0
        is_new = (tf.range(MAX_DEPTH) == depth[:, :, None]) & is_opener[:, :, None]
        return state._replace(
            stack=tf.where(is_new, label[:, :, None], stack),
            depth=depth + step,
            openers=tf.where(is_opener, openers + 1, 0),
            words=words - tf.cast(step == 0, tf.int32),
        )


def for_batch(
    table: BracketTokens, texts: tf.Tensor, max_length: tf.Tensor
) -> tuple[BalancedBrackets, tf.Tensor]:
    """Returns the constraint for a batch of sources.

    Args:
        table: the role of every token in the target's vocabulary.
        texts: [B] strings, the sources' words separated by single spaces.
        max_length: [B] int32, the largest number of tokens in each output.

    Returns:
        The constraint, and `max_length`, raised to the length of the shortest tree.
    """
    with tf.device(CPU):
        kinds = word_kinds(tf.strings.split(texts, " "))
    max_length = tf.maximum(max_length, _count_words(kinds) + _SHORTEST)
    return BalancedBrackets(table, kinds, max_length), max_length


def _count_words(kinds: tf.Tensor) -> tf.Tensor:
    return tf.math.count_nonzero(kinds, axis=1, dtype=tf.int32)

"""Pairs of random ids, in rows with one pair each and packed."""

import numpy as np

from t2t_keras.model import Packing

SOURCE_LENGTHS = (3, 5, 1, 4, 2)
TARGET_LENGTHS = (4, 2, 3, 1, 5)
# Which pairs each packed row holds; a pair's segment is one more than its number.
ROWS = ((3, 0, 2), (1,), (4,))
WIDTH = 9  # of packed rows; the last ones are mostly padding


def sentences(lengths, seed, vocab=17):
    """Ids [N, longest], padded with 0."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(2, vocab, (len(lengths), max(lengths)))
    is_token = np.arange(max(lengths)) < np.array(lengths)[:, None]
    return np.where(is_token, ids, 0).astype(np.int32)


def pack_side(ids, lengths):
    """Ids, segments and positions of packed rows, [3, R, WIDTH]."""
    packed = np.zeros((3, len(ROWS), WIDTH), np.int32)
    for row, pairs in enumerate(ROWS):
        tokens = [
            (ids[pair, i], pair + 1, i) for pair in pairs for i in range(lengths[pair])
        ]
        packed[:, row, : len(tokens)] = np.transpose(tokens)
    return packed


def pairs():
    """Source [N, S], target [N, T] and alignment [N, T, S] of all pairs."""
    source = sentences(SOURCE_LENGTHS, 1)
    target = sentences(TARGET_LENGTHS, 2)
    links = np.random.default_rng(3).random((*target.shape, source.shape[1]))
    is_linked = (target[:, :, None] > 0) & (source[:, None] > 0) & (links < 0.6)
    counts = np.maximum(is_linked.sum(2, keepdims=True), 1)
    return source, target, (is_linked / counts).astype(np.float32)


def packed_pairs():
    """The same in packed rows: source, target, alignment and packing."""
    source, target, alignment = pairs()
    sides = [pack_side(source, SOURCE_LENGTHS), pack_side(target, TARGET_LENGTHS)]
    (source, *of_source), (target, *of_target) = sides
    packing = Packing(*of_source, *of_target)
    links = np.zeros((len(ROWS), WIDTH, WIDTH), np.float32)
    for row, t, s in np.ndindex(links.shape):
        pair = packing.target_segments[row, t]
        if pair and pair == packing.source_segments[row, s]:
            t_in_pair = packing.target_positions[row, t]
            s_in_pair = packing.source_positions[row, s]
            links[row, t, s] = alignment[pair - 1, t_in_pair, s_in_pair]
    return source, target, links, packing

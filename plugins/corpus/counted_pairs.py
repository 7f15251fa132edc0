"""Pairs whose number is reported while they are read."""

from collections.abc import Callable, Iterable, Iterator

from t2t_keras.problem import Pair

_CHUNK = 2_000  # pairs between two reports


def counted(pairs: Iterable[Pair], advance: Callable[[int], None]) -> Iterator[Pair]:
    """Yields pairs, and reports how many.

    Args:
        pairs: the pairs.
        advance: called with the number of pairs since the last call, see `progress`.
    """
    count = 0
    for pair in pairs:
        count += 1
        yield pair
        if count % _CHUNK == 0:
            advance(_CHUNK)
    advance(count % _CHUNK)

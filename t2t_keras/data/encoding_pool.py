"""Encodes pairs in worker processes.

A worker does not import TensorFlow: it starts at once and takes 50 MB, not 600.
"""

import contextlib
import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path

from t2t_keras.data.encoding import Encoded, EncodingConfig, PairEncoder
from t2t_keras.data.worker_processes import worker_pool
from t2t_keras.problem import Pair

CHUNK = 1000  # number of pairs that are sent to a worker at a time


_CHUNK_CHARACTERS = 4_000_000  # of their texts, after which fewer pairs are sent


Encode = Callable[[Iterable[Pair], EncodingConfig, int], Iterator[Encoded]]


_encoder = functools.cache(PairEncoder)  # the encoder of a worker process


@contextlib.contextmanager
def encoders(vocabularies: tuple[Path, Path], workers: int) -> Iterator[Encode]:
    """Yields a function that encodes pairs: (pairs, config, first) -> `Encoded`.

    The chunks come in the order of the pairs, of which the first has number `first`.
    Only a few chunks are in memory at any time, however many pairs there are.

    Args:
        vocabularies: vocabulary files of the source and of the target side.
        workers: number of processes; with 1 this process encodes.
    """
    if workers == 1:
        encoder = PairEncoder(*vocabularies)
        yield lambda pairs, config, first: (
            encoder(number, chunk, config) for number, chunk in _chunks(pairs, first)
        )
        return

    def encode(
        pairs: Iterable[Pair], config: EncodingConfig, first: int
    ) -> Iterator[Encoded]:
        waiting: deque[Future[Encoded]] = deque()
        for number, chunk in _chunks(pairs, first):
            waiting.append(pool.submit(_encode, vocabularies, number, chunk, config))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    with worker_pool(workers) as pool:
        yield encode


def _chunks(pairs: Iterable[Pair], first: int) -> Iterator[tuple[int, list[Pair]]]:
    """Cuts the pairs into lists; yields each with the number of its first pair."""
    chunk: list[Pair] = []
    characters = 0
    for pair in pairs:
        chunk.append(pair)
        characters += len(pair[0]) + len(pair[1])
        if len(chunk) == CHUNK or characters >= _CHUNK_CHARACTERS:
            yield first, chunk
            first += len(chunk)
            chunk, characters = [], 0
    if chunk:
        yield first, chunk


def _encode(
    vocabularies: tuple[Path, Path],
    first: int,
    pairs: list[Pair],
    config: EncodingConfig,
) -> Encoded:
    return _encoder(*vocabularies)(first, pairs, config)

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

CHUNK = 1000  # pairs that are sent to a worker at a time
_CHUNK_CHARACTERS = 4_000_000  # characters after which fewer pairs are sent

# Maps pairs, their config and the index of the first pair to encoded chunks.
Encode = Callable[[Iterable[Pair], EncodingConfig, int], Iterator[Encoded]]

_encoder = functools.cache(PairEncoder)  # a worker process has one


@contextlib.contextmanager
def encoders(
    vocabularies: tuple[Path, Path], workers: int, num_pairs: int
) -> Iterator[Encode]:
    """Yields a function that encodes pairs: (pairs, config, start) -> `Encoded`.

    `start` is the index of the first pair. The chunks keep the order of the pairs, and
    only a few are in memory at a time.

    Args:
        vocabularies: vocabulary files of the source and of the target side.
        workers: the largest number of processes; with 1 this process encodes.
        num_pairs: number of pairs; there are not more processes than chunks.
    """
    num_chunks = -(-num_pairs // CHUNK)
    workers = max(1, min(workers, num_chunks))
    if workers == 1:
        encoder = PairEncoder(*vocabularies)
        yield lambda pairs, config, start: (
            encoder(index, chunk, config) for index, chunk in _chunks(pairs, start)
        )
        return

    def encode(
        pairs: Iterable[Pair], config: EncodingConfig, start: int
    ) -> Iterator[Encoded]:
        pending: deque[Future[Encoded]] = deque()
        for index, chunk in _chunks(pairs, start):
            pending.append(pool.submit(_encode, vocabularies, index, chunk, config))
            if len(pending) > 2 * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()

    with worker_pool(workers) as pool:
        yield encode


def _chunks(pairs: Iterable[Pair], start: int) -> Iterator[tuple[int, list[Pair]]]:
    """Cuts the pairs into lists; yields each with the index of its first pair."""
    chunk: list[Pair] = []
    characters = 0
    for pair in pairs:
        chunk.append(pair)
        characters += len(pair[0]) + len(pair[1])
        if len(chunk) == CHUNK or characters >= _CHUNK_CHARACTERS:
            yield start, chunk
            start += len(chunk)
            chunk = []
            characters = 0
    if chunk:
        yield start, chunk


def _encode(
    vocabularies: tuple[Path, Path],
    start: int,
    pairs: list[Pair],
    config: EncodingConfig,
) -> Encoded:
    return _encoder(*vocabularies)(start, pairs, config)

"""Pairs of texts to records, in several processes.

A worker imports no TensorFlow: it starts in a moment and needs 50 MB, not 600.
"""

import collections
import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path

from t2t_keras.data import duplicates
from t2t_keras.data.cleaning import reason_by_length, reason_by_text
from t2t_keras.data.example import example
from t2t_keras.data.shuffle import order_key, spilled
from t2t_keras.data.tfrecord import frame
from t2t_keras.data.workers import worker_pool
from t2t_keras.errors import UserError
from t2t_keras.problem import Cleaning, Pair
from t2t_keras.text.load import load_tokenizer
from t2t_keras.text.sentence_piece import SentencePieceTokenizer
from t2t_keras.text.tokenizer import Tokenizer

CHUNK = 1000  # pairs that travel to a worker at a time


@dataclasses.dataclass(frozen=True)
class Rule:
    """What becomes of the pairs of a split.

    Attributes:
        num_shards: how many shards they are spread over.
        seed: of the global order; None keeps the order of the source.
        max_length: pairs with a longer side (pieces with EOS) are dropped, and so are
            those with an empty one; None keeps every pair.
        cleaning: which others are dropped, where max_length is given.
        bpe_dropout: see `SentencePieceTokenizer.samples`; needs a seed.
        copies: of each pair, all of them examples.
    """

    num_shards: int
    seed: int | None = None
    max_length: int | None = None
    cleaning: Cleaning = Cleaning()  # noqa: RUF009, it is frozen
    bpe_dropout: float = 0.0
    copies: int = 1


@dataclasses.dataclass(frozen=True)
class Encoded:
    """What became of a chunk of pairs.

    Attributes:
        pairs: number of pairs in the chunk.
        spills: shard -> its records, as `shuffle.Spills` stores them.
        hashes: of the examples, as `duplicates` reads them; empty where duplicates
            may stay.
        dropped: examples by reason, see `cleaning.reasons`; "duplicate" is not yet
            known.
    """

    pairs: int
    spills: dict[int, bytes]
    hashes: bytes
    dropped: collections.Counter[str]


class Encoder:
    """Encodes chunks of pairs.

    Args:
        source_vocabulary: the file of the source side.
        target_vocabulary: the file of the target side.
    """

    def __init__(self, source_vocabulary: Path, target_vocabulary: Path) -> None:
        self._source: Tokenizer = load_tokenizer(source_vocabulary)
        self._target: Tokenizer = self._source
        if target_vocabulary != source_vocabulary:
            self._target = load_tokenizer(target_vocabulary)

    def __call__(self, first: int, pairs: list[Pair], rule: Rule) -> Encoded:
        """Encodes the pairs number `first`, `first` + 1, ... of a split."""
        dropped: collections.Counter[str] = collections.Counter()
        examples = _Examples(rule)
        for number, pair, *sides in self._ids(first, pairs, rule, dropped):
            for copy, (source, target) in enumerate(zip(*sides, strict=True)):
                if rule.max_length is not None:
                    reason = reason_by_length(
                        source, target, rule.max_length, rule.cleaning
                    )
                    if reason is not None:
                        dropped[reason] += 1
                        continue
                examples.add(number, copy, pair, source, target)
        return Encoded(len(pairs), *examples.finish(), dropped)

    def _ids(
        self,
        first: int,
        pairs: list[Pair],
        rule: Rule,
        dropped: collections.Counter[str],
    ) -> Iterator[tuple[int, Pair, list[list[int]], list[list[int]]]]:
        """Yields number, texts and ids of all copies of the pairs that may stay."""
        numbers: Sequence[int] = range(first, first + len(pairs))
        if rule.max_length is not None:
            reasons = [reason_by_text(pair, rule.cleaning) for pair in pairs]
            for reason in filter(None, reasons):
                dropped[reason] += rule.copies
            stays = [reason is None for reason in reasons]
            numbers = list(itertools.compress(numbers, stays))
            pairs = list(itertools.compress(pairs, stays))
        sides = (
            _copies(tokenizer, [pair[side] for pair in pairs], numbers, side, rule)
            for side, tokenizer in enumerate((self._source, self._target))
        )
        return zip(numbers, pairs, *sides, strict=True)


def _copies(
    tokenizer: Tokenizer,
    texts: list[str],
    numbers: Sequence[int],
    side: int,
    rule: Rule,
) -> list[list[list[int]]]:
    """Returns the ids of every copy of every text.

    Raises:
        UserError: the vocabulary does not suit BPE-dropout.
    """
    copies = [[ids] * rule.copies for ids in tokenizer.encode_batch(texts)]
    if not (rule.bpe_dropout and texts):
        return copies
    assert isinstance(tokenizer, SentencePieceTokenizer)  # see Problem
    if tokenizer.samples(texts[0], 1, 0.0, 0) != copies[0][:1]:
        raise UserError(
            "bpe_dropout needs a vocabulary as datagen trains it, of byte-pair "
            "encoding and without normalisation; remove the given one, or set "
            "bpe_dropout to 0"
        )
    for i, (text, number) in enumerate(zip(texts, numbers, strict=True)):
        # What is too long whole stays so, to be dropped: its words may be endless.
        if rule.max_length is None or len(copies[i][0]) <= rule.max_length:
            # By the pair's own seed: who encodes it, and with which others, is all one.
            seed = order_key(rule.seed, 2 * number + side)
            copies[i] = tokenizer.samples(text, rule.copies, rule.bpe_dropout, seed)
    return copies


class _Examples:
    """Collects the examples of a chunk.

    Args:
        rule: tells order, shards, and whether hashes are asked for.
    """

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._keys: list[int] = []
        self._payloads: list[bytes] = []
        self._lengths: list[tuple[int, int]] = []
        self._hashes: list[bytes] = []

    def add(
        self, number: int, copy: int, pair: Pair, source: list[int], target: list[int]
    ) -> None:
        """Adds one."""
        seed = self._rule.seed
        place = number * self._rule.copies + copy
        key = place if seed is None else order_key(seed, place)
        self._keys.append(key)
        self._payloads.append(example(source, target))
        self._lengths.append((len(source), len(target)))
        if self._rule.cleaning.duplicates:
            self._hashes.append(duplicates.entry(key, pair, copy))

    def finish(self) -> tuple[dict[int, bytes], bytes]:
        """Returns the records by shard, and the hashes."""
        spills: dict[int, list[bytes]] = collections.defaultdict(list)
        for key, payload, lengths in zip(
            self._keys, self._payloads, self._lengths, strict=True
        ):
            shard = key % self._rule.num_shards
            spills[shard].append(spilled(key, frame(payload), *lengths))
        joined = {shard: b"".join(records) for shard, records in spills.items()}
        return joined, b"".join(self._hashes)


Encode = Callable[[Iterable[Pair], Rule, int], Iterator[Encoded]]

_encoder: Encoder  # of a worker process


def _start_worker(*vocabularies: Path) -> None:
    global _encoder
    _encoder = Encoder(*vocabularies)


def _encode_in_worker(first: int, pairs: list[Pair], rule: Rule) -> Encoded:
    return _encoder(first, pairs, rule)


@contextlib.contextmanager
def encoders(vocabularies: tuple[Path, Path], workers: int) -> Iterator[Encode]:
    """Gives a function that encodes pairs: (pairs, rule, first) -> chunks of results.

    The results come in the order of the pairs, of which the first has number `first`.
    Only a few chunks are under way at any time, however many pairs there are.

    Args:
        vocabularies: the files of the source and the target side.
        workers: number of processes; 1 is this process.
    """
    if workers == 1:
        yield functools.partial(_encode_here, Encoder(*vocabularies))
    else:
        with worker_pool(workers, _start_worker, *vocabularies) as pool:
            yield functools.partial(_encode_in_pool, pool, 2 * workers)


def _encode_here(
    encoder: Encoder, pairs: Iterable[Pair], rule: Rule, first: int
) -> Iterator[Encoded]:
    """Encodes chunk after chunk."""
    for number, chunk in _chunks(pairs, first):
        yield encoder(number, chunk, rule)


def _encode_in_pool(
    pool: Executor, most: int, pairs: Iterable[Pair], rule: Rule, first: int
) -> Iterator[Encoded]:
    """Encodes with at most so many chunks waiting or at work."""
    waiting: collections.deque[Future[Encoded]] = collections.deque()
    for number, chunk in _chunks(pairs, first):
        waiting.append(pool.submit(_encode_in_worker, number, chunk, rule))
        if len(waiting) > most:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _chunks(pairs: Iterable[Pair], first: int) -> Iterator[tuple[int, list[Pair]]]:
    """Cuts the pairs into lists; yields each with the number of its first pair."""
    iterator = iter(pairs)
    while chunk := list(itertools.islice(iterator, CHUNK)):
        yield first, chunk
        first += len(chunk)

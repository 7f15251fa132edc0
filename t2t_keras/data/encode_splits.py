"""Encodes the pairs of splits, part by part, into spill files.

Worker processes encode. They do not import TensorFlow: they start at once and take 50
MB, not 600.
"""

import contextlib
import dataclasses
import functools
import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Self

from t2t_keras.checking import Count
from t2t_keras.console import progress
from t2t_keras.data.encoding import Encoded, EncodingConfig, PairEncoder, SpillFiles
from t2t_keras.data.manifest import Counts, DataPlan
from t2t_keras.data.mixture import corpora_of
from t2t_keras.data.record_index import num_train_shards
from t2t_keras.data.sources import changed_source
from t2t_keras.files.atomic import Lock
from t2t_keras.files.json_files import from_fields, read_json, write_json
from t2t_keras.problem import Pair, Problem, Side, Split
from t2t_keras.processes import worker_pool

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


_SAVE_EVERY = 200_000  # pairs after which an interrupted encoding can continue
_HASHES = 1 << 22  # of a file, which are compared at a time: 64 MB


@dataclasses.dataclass(frozen=True)
class EncodingState:
    """How far the encoding of a `SplitPart` has come.

    Attributes:
        pairs: the number of pairs that are encoded.
        sizes: the sizes of `SplitPart.files`, in bytes; none if nothing is written yet.
        checksums: the CRC-32 of each of these files.
        dropped: the number of examples that were dropped, by reason.
        single_sentences: see `Encoded`.
    """

    pairs: Count = 0
    sizes: list[Count] = dataclasses.field(default_factory=list)
    dropped: dict[str, int] = dataclasses.field(default_factory=dict)
    single_sentences: dict[str, int] = dataclasses.field(default_factory=dict)
    checksums: list[Count] = dataclasses.field(default_factory=list)

    def add(self, encoded: Encoded) -> Self:
        """Returns the state after another chunk, whose files are not yet flushed."""
        return dataclasses.replace(
            self,
            pairs=self.pairs + encoded.pairs,
            dropped=dict(Counter(self.dropped) + encoded.dropped),
            single_sentences=dict(
                Counter(self.single_sentences) + encoded.single_sentences
            ),
        )


@dataclasses.dataclass(frozen=True)
class SplitPart:
    """A part of the pairs of a split, and the files that they are encoded into.

    Attributes:
        split: the split.
        total: the number of pairs of the whole split.
        pairs: the indices of the pairs of this part.
        config: how they are encoded.
        files: the files with the records, one for each TFRecord file, and then those
            with the hashes of the examples, see `repeated`.
        state_path: the file from which an interrupted encoding continues.
    """

    split: Split
    total: int
    pairs: range
    config: EncodingConfig
    files: list[Path]
    state_path: Path

    def load_state(self) -> EncodingState:
        """Returns how far the encoding has come; raises `UserError` if damaged."""
        fields = read_json(self.state_path)
        if fields is None:
            return EncodingState()
        return from_fields(EncodingState, fields, self.state_path)

    def save_state(self, state: EncodingState, files: SpillFiles) -> None:
        """Writes how far the encoding has come, atomically, after what is encoded."""
        sizes = files.flush()
        state = dataclasses.replace(state, sizes=sizes, checksums=files.checksums)
        write_json(self.state_path, dataclasses.asdict(state), with_checksum=True)

    def is_complete(self) -> bool:
        """Returns whether all pairs are encoded."""
        return self.load_state().pairs == len(self.pairs)


def split_parts(
    plan: DataPlan, counts: Counts, split: Split, ranges: Mapping[Path, range]
) -> list[SplitPart]:
    """Returns parts of a split.

    Args:
        plan: what is made.
        counts: the number of pairs by split and corpus.
        split: the split.
        ranges: the indices of the pairs of each part, by the directory of its files.
    """
    config = _encoding_config(plan, counts[split], split)
    names = [f"{split}.spill-{i:05d}" for i in range(config.num_shards)]
    names += [f"{split}.hashes-{i:05d}" for i in range(config.num_hash_files)]
    parts = []
    for directory, pairs in ranges.items():
        parts.append(
            SplitPart(
                split=split,
                total=sum(counts[split].values()),
                pairs=pairs,
                config=config,
                files=[directory / name for name in names],
                state_path=directory / f"{split}.state.json",
            )
        )
    return parts


def _encoding_config(
    plan: DataPlan, counts: Mapping[str, int], split: Split
) -> EncodingConfig:
    """Returns how a split is encoded: only training pairs are shuffled and dropped."""
    sizes = list(counts.values())
    starts = tuple(itertools.accumulate(sizes[:-1], initial=0))
    tags = tuple(corpus.tag for corpus in corpora_of(plan.problem.sources[split]))
    if split != "train":
        return EncodingConfig(num_shards=1, corpora=starts, tags=tags)
    return EncodingConfig(
        num_shards=num_train_shards(sum(sizes)),
        num_hash_files=max(1, -(-sum(sizes) // _HASHES)),
        seed=plan.config.seed,
        max_length=plan.problem.max_length,
        cleaning=plan.problem.cleaning,
        corpora=starts,
        tags=tags,
    )


def encode_splits(
    problem: Problem,
    parts: Sequence[SplitPart],
    vocabularies: Mapping[Side, Path],
    workers: int,
    lock: Lock,
) -> None:
    """Encodes parts of splits, continuing from the last saved states.

    Args:
        problem: the problem with the sources.
        parts: the part of each split.
        vocabularies: the vocabulary file of each side.
        workers: the largest number of processes.
        lock: of the directory with the parts.

    Raises:
        UserError: a source has changed since its pairs were counted, or the directory
            was removed.
    """
    unfinished = [part for part in parts if not part.is_complete()]
    if not unfinished:
        return
    files = (vocabularies["source"], vocabularies["target"])
    num_pairs = sum(len(part.pairs) for part in unfinished)
    with encoders(files, workers, num_pairs) as encode:
        for part in reversed(unfinished):  # the small splits come first
            _encode_part(problem, part, encode, lock)


def _encode_part(problem: Problem, part: SplitPart, encode: Encode, lock: Lock) -> None:
    """Appends the examples of a part to its files, see `encode_splits`."""
    lock.require_place()
    part.state_path.parent.mkdir(exist_ok=True)
    state = part.load_state()
    total = len(part.pairs)
    saved = state.pairs
    with (
        SpillFiles(part.files, state.sizes, state.checksums) as files,
        progress(f"encoding {part.split}", "pairs", total, saved) as advance,
    ):
        start = part.pairs.start + saved
        remaining = problem.pairs(part.split, start, part.pairs.stop)
        for encoded in encode(remaining, part.config, start):
            files.append(encoded.contents)
            state = state.add(encoded)
            advance(encoded.pairs)
            if saved + _SAVE_EVERY <= state.pairs < total:
                lock.require_place()
                part.save_state(state, files)
                saved = state.pairs
        if state.pairs == total:
            lock.require_place()
            part.save_state(state, files)
    if state.pairs != total:
        part.state_path.unlink(missing_ok=True)
        actual = part.pairs.start + state.pairs
        raise changed_source(part.split, part.total, actual)

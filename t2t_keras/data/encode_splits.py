"""Encodes the pairs of a shard of the work into spill files."""

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from t2t_keras.data.count_pairs import Counts, changed_source
from t2t_keras.data.data_plan import DataPlan
from t2t_keras.data.encoding import EncodingConfig
from t2t_keras.data.encoding_pool import Encode, encoders
from t2t_keras.data.json_files import read_json, write_json
from t2t_keras.data.mixture import corpora_of
from t2t_keras.data.progress import progress
from t2t_keras.data.schema import from_fields
from t2t_keras.data.shard import Shard
from t2t_keras.data.sides import Side
from t2t_keras.data.spill_files import SpillFiles
from t2t_keras.data.split_files import num_train_shards
from t2t_keras.problem import Problem, Split
from t2t_keras.type_hints import Count

# Texts in which the words that begin sentences are counted, which suffice for words
# that begin one of a thousand.
_COUNTED = 200_000
_SAVE_EVERY = 200_000  # pairs after which an interrupted encoding can continue


@dataclasses.dataclass(frozen=True)
class EncodingState:
    """How far the encoding of a `SplitShard` has come.

    Attributes:
        pairs: the number of pairs that are encoded.
        sizes: the sizes of the spill files and of the file of hashes, in bytes; None:
            nothing is written yet.
        checksums: the CRC-32 of each of these files; None: unknown, as an earlier
            version leaves it.
        dropped: the number of examples that were dropped, by reason.
        single_sentences: see `Encoded`.
        starts: see `Encoded`.
    """

    pairs: Count = 0
    sizes: list[Count] | None = None
    dropped: dict[str, int] = dataclasses.field(default_factory=dict)
    single_sentences: dict[str, int] = dataclasses.field(default_factory=dict)
    starts: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    checksums: list[Count] | None = None


@dataclasses.dataclass(frozen=True)
class SplitShard:
    """The pairs of a split that belong to one shard of the work, and their files.

    Attributes:
        split: the split.
        total: the number of pairs of the whole split.
        pairs: the indices of the pairs of this shard.
        config: how they are encoded.
        spills: the files with the records, one for each TFRecord file.
        hashes: the file with the hashes of the examples, see `duplicates.repeated`.
        state_path: the file from which an interrupted encoding continues.
    """

    split: Split
    total: int
    pairs: range
    config: EncodingConfig
    spills: list[Path]
    hashes: Path
    state_path: Path

    def load_state(self) -> EncodingState:
        """Returns how far the encoding has come; raises `UserError` if damaged."""
        fields = read_json(self.state_path)
        if fields is None:
            return EncodingState()
        return from_fields(EncodingState, fields, self.state_path)

    def save_state(self, state: EncodingState) -> None:
        """Writes how far the encoding has come, atomically."""
        write_json(self.state_path, dataclasses.asdict(state), with_checksum=True)

    def is_complete(self) -> bool:
        """Returns whether all pairs are encoded."""
        if not self.state_path.exists():
            return False
        return self.load_state().pairs == len(self.pairs)


def split_shards(plan: DataPlan, counts: Counts, shard: Shard) -> list[SplitShard]:
    """Returns what belongs to a shard of the work in each split."""
    directory = plan.directory / f"part-{shard.index}-of-{shard.count}"
    shards = []
    for split in plan.splits:
        pairs = shard.slice(sum(counts[split].values()))
        shards += split_parts(plan, counts, split, {directory: pairs})
    return shards


def split_parts(
    plan: DataPlan, counts: Counts, split: Split, parts: Mapping[Path, range]
) -> list[SplitShard]:
    """Returns parts of a split.

    Args:
        plan: what is made.
        counts: the number of pairs by split and corpus.
        split: the split.
        parts: the indices of the pairs of each part, by the directory of its files.
    """
    config = _encoding_config(plan, counts[split], split)
    shards = []
    for directory, pairs in parts.items():
        spills = []
        for index in range(config.num_shards):
            spills.append(directory / f"{split}.spill-{index:05d}")
        shards.append(
            SplitShard(
                split=split,
                total=sum(counts[split].values()),
                pairs=pairs,
                config=config,
                spills=spills,
                hashes=directory / f"{split}.hashes",
                state_path=directory / f"{split}.state.json",
            )
        )
    return shards


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
        count_every=math.ceil(sum(sizes) / _COUNTED),
        num_shards=num_train_shards(sum(sizes)),
        seed=plan.config.seed,
        max_length=plan.problem.max_length,
        cleaning=plan.problem.cleaning,
        corpora=starts,
        tags=tags,
    )


def encode_splits(
    problem: Problem,
    splits: Sequence[SplitShard],
    vocabularies: Mapping[Side, Path],
    workers: int,
) -> None:
    """Encodes the pairs of some splits, continuing from the last saved states.

    Args:
        problem: the problem with the sources.
        splits: what belongs to the shard in each split.
        vocabularies: the vocabulary file of each side.
        workers: the largest number of processes.

    Raises:
        UserError: a source has changed since its pairs were counted.
    """
    unfinished = [split for split in splits if not split.is_complete()]
    if not unfinished:
        return
    files = (vocabularies["source"], vocabularies["target"])
    num_pairs = sum(len(split.pairs) for split in unfinished)
    with encoders(files, workers, num_pairs) as encode:
        for split in reversed(unfinished):  # the small splits come first
            _encode_split(problem, split, encode)


def _encode_split(problem: Problem, split: SplitShard, encode: Encode) -> None:
    """Appends the examples of a split to its files.

    Args:
        problem: the problem with the source of the split.
        split: what belongs to the shard.
        encode: encodes chunks of pairs, see `encoders`.
    """
    split.state_path.parent.mkdir(exist_ok=True)
    state = split.load_state()
    total = len(split.pairs)
    count = state.pairs
    dropped = Counter(state.dropped)
    single_sentences = Counter(state.single_sentences)
    starts = {name: Counter(counts) for name, counts in state.starts.items()}
    with (
        SpillFiles(
            [*split.spills, split.hashes], state.sizes, state.checksums
        ) as files,
        progress(f"encoding {split.split}", "pairs", total, count) as advance,
    ):

        def save_state() -> None:
            sizes = files.flush()
            state = EncodingState(
                count,
                sizes,
                dict(dropped),
                dict(single_sentences),
                {name: dict(counts) for name, counts in starts.items()},
                files.checksums,
            )
            split.save_state(state)

        saved = count
        start = split.pairs.start + count
        remaining = problem.pairs(split.split, start, split.pairs.stop)
        for encoded in encode(remaining, split.config, start):
            hashes = {split.config.num_shards: encoded.hashes}
            files.append({**encoded.spills, **hashes})
            dropped += encoded.dropped
            single_sentences += encoded.single_sentences
            for name, counts in encoded.starts.items():
                starts.setdefault(name, Counter()).update(counts)
            count += encoded.pairs
            advance(encoded.pairs)
            if count < total and count - saved >= _SAVE_EVERY:
                save_state()
                saved = count
        if count == total:
            save_state()
    if count != total:
        split.state_path.unlink(missing_ok=True)
        raise changed_source(split.split, split.total, split.pairs.start + count)

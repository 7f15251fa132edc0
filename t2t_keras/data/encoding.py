"""Encodes pairs of texts into records.

Every example has a key, a hash of the seed and of its index in the source, and the
whole data set is ordered by the keys: the remainder of its key determines the shard of
an example, and a shard is sorted by key. This shuffles globally in bounded memory:
while pairs are encoded, each record is appended to a spill file of its shard, and
later one shard at a time is read and sorted (`spill_files.read_sorted`).
"""

import bisect
import dataclasses
import math
import struct
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from t2t_keras.data.checksums import hash_64
from t2t_keras.data.cleaning import reason_by_length, reason_by_text
from t2t_keras.data.duplicates import HASH_ENTRY
from t2t_keras.data.example_proto import example
from t2t_keras.data.spill_files import SPILL_HEADER
from t2t_keras.data.tfrecord import frame
from t2t_keras.problem import AlignedPair, Alignment, Cleaning, Pair
from t2t_keras.text.sentence_ends import is_one_sentence
from t2t_keras.text.token_words import words_of_tokens
from t2t_keras.text.tokenizer import Tokenizer
from t2t_keras.text.tokenizers import load_tokenizer


@dataclasses.dataclass(frozen=True)
class EncodingConfig:
    """How the pairs of a split are encoded.

    Attributes:
        num_shards: number of shards over which the examples are spread.
        seed: seed of the global order; None keeps the order of the source.
        max_length: pairs with more tokens on a side (EOS included) are dropped, and
            so are pairs with an empty side; infinity keeps every pair.
        cleaning: further rules to drop pairs, which apply if max_length is given.
        corpora: the number of the first pair of each corpus, if there are several.
        tags: the word before the sources of each corpus, which the cleaning ignores;
            empty if it has none.
    """

    num_shards: int
    seed: int | None = None
    max_length: float = math.inf
    cleaning: Cleaning = Cleaning()  # noqa: RUF009, it is frozen
    corpora: tuple[int, ...] = (0,)
    tags: tuple[str, ...] = ("",)


@dataclasses.dataclass(frozen=True)
class Encoded:
    """The examples of a chunk of pairs.

    Attributes:
        pairs: number of pairs in the chunk.
        spills: shard -> the bytes to append to its spill file.
        hashes: the bytes to append to the file that `repeated` reads;
            empty if duplicates are kept.
        dropped: number of dropped examples by reason, see `reasons`.
            Duplicates are not counted here.
        single_sentences: side -> number of examples whose text is one sentence.
            Duplicates are counted here.
    """

    pairs: int
    spills: dict[int, bytearray] = dataclasses.field(
        default_factory=lambda: defaultdict(bytearray)
    )
    hashes: bytearray = dataclasses.field(default_factory=bytearray)
    dropped: Counter[str] = dataclasses.field(default_factory=Counter)
    single_sentences: Counter[str] = dataclasses.field(default_factory=Counter)


class PairEncoder:
    """Encodes chunks of pairs.

    Args:
        source_vocabulary: vocabulary file of the source side.
        target_vocabulary: vocabulary file of the target side.
    """

    def __init__(self, source_vocabulary: Path, target_vocabulary: Path) -> None:
        source = target = load_tokenizer(source_vocabulary)
        if target_vocabulary != source_vocabulary:
            target = load_tokenizer(target_vocabulary)
        self._tokenizers: tuple[Tokenizer, Tokenizer] = source, target

    def __call__(
        self, first: int, pairs: list[Pair], config: EncodingConfig
    ) -> Encoded:
        """Encodes the pairs number `first`, `first` + 1, ... of a split."""
        result, cleaning = Encoded(len(pairs)), config.cleaning
        kept: list[tuple[int, int, Pair]] = []  # number, number of the corpus, pair
        for number, pair in enumerate(pairs, start=first):
            corpus = bisect.bisect_right(config.corpora, number) - 1
            if config.max_length < math.inf:
                untagged = pair[0].removeprefix(config.tags[corpus]).strip(), pair[1]
                if reason := reason_by_text(untagged, cleaning):
                    result.dropped[reason] += 1
                    continue
            kept.append((number, corpus, pair))
        ids = (
            tokenizer.encode_batch([pair[side] for *_, pair in kept])
            for side, tokenizer in enumerate(self._tokenizers)
        )
        for (key, corpus, pair), source, target in zip(kept, *ids, strict=True):
            limits = config.max_length, cleaning
            if reason := reason_by_length(source, target, *limits):
                result.dropped[reason] += 1
                continue
            for side, text in zip(("source", "target"), pair, strict=True):
                result.single_sentences[side] += is_one_sentence(text)
            if config.seed is not None:
                key = hash_64(struct.pack("<qq", config.seed, key))
            aligned = isinstance(pair, AlignedPair)
            links = self._links(pair.links, source, target) if aligned else ()
            record = frame(example(source, target, links))
            result.spills[key % config.num_shards] += (
                SPILL_HEADER.pack(key, len(record), len(source), len(target), corpus)
                + record
            )
            if cleaning.duplicates:
                # Two different pairs among 40 million have the same hash with
                # probability 5e-5.
                texts = "\n".join(" ".join(side.split()) for side in pair)
                content = texts.encode("utf-8", "surrogatepass")
                result.hashes.extend(HASH_ENTRY.pack(key, hash_64(content)))
        return result

    def _links(
        self, alignment: Alignment, source: Sequence[int], target: Sequence[int]
    ) -> list[int]:
        """Returns the links between the tokens of linked words, see `example`.

        Args:
            alignment: the links between the words.
            source: ids of the source.
            target: ids of the target.
        """
        links = set(alignment)
        source_words, target_words = (
            words_of_tokens(tokenizer, ids)
            for tokenizer, ids in zip(self._tokenizers, (source, target), strict=True)
        )
        return [
            place
            for t, j in enumerate(target_words)
            for s, i in enumerate(source_words)
            if (i, j) in links
            for place in (t, s)
        ]

"""Reads single records of a data directory."""

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf

from t2t_keras.data.manifest import Manifest
from t2t_keras.data.pipeline import FEATURES
from t2t_keras.data.record_index import RecordIndex
from t2t_keras.errors import UserError
from t2t_keras.problem import Problem, Split
from t2t_keras.text.tokenizer import UNK, Tokenizer

_CHUNK = 1000  # records that are read at a time


def read_pairs(
    index: RecordIndex, records: Iterable[int]
) -> Iterator[tuple[list[int], list[int]]]:
    """Yields (source ids, target ids) of some records; each side ends in EOS."""
    remaining = iter(records)
    while chunk := list(itertools.islice(remaining, _CHUNK)):
        examples = tf.io.parse_example(index.read(chunk), FEATURES)
        source_feature, target_feature = index.features
        sources = examples[source_feature].to_list()
        targets = examples[target_feature].to_list()
        yield from zip(sources, targets, strict=True)


def source_texts(
    data_dir: Path, problem: Problem, tokenizer: Tokenizer, count: int
) -> list[str]:
    """Returns sources of the dev data, or else of the training data.

    If the data are absent, they are random sequences of tokens.

    Args:
        data_dir: the data directory.
        problem: the problem.
        tokenizer: the tokenizer of the sources.
        count: the number of sources; there are fewer if the data have fewer.
    """
    splits: tuple[Split, ...] = ("dev", "train")
    for split in splits:
        with contextlib.suppress(UserError):
            manifest = Manifest.open(data_dir, problem.data_name)
            index = manifest.open_index(data_dir, split, problem.reverse)
            interval = max(1, len(index) // max(1, count))
            records = range(0, len(index), interval)[:count]
            return [tokenizer.decode(ids) for ids, _ in read_pairs(index, records)]
    random = np.random.default_rng(0)
    ids = random.integers(UNK + 1, tokenizer.vocab_size, (count, 12))
    return [tokenizer.decode(row) for row in ids.tolist()]

"""A small corpus for the tests of data generation, and ways to interrupt them."""

import contextlib
import dataclasses
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from t2t_keras.data import encode_splits
from t2t_keras.data.encoding import SpillFiles
from t2t_keras.data.manifest import Manifest
from t2t_keras.data.record_index import RecordIndex
from t2t_keras.problem import Problem
from t2t_keras.text.tokenizer import load_tokenizer

WORDS = ["a", "cat", "saw", "two", "old", "dogs", "in", "the", "garden", "quickly"]


def make_pairs(count: int, seed: int) -> list[tuple[str, str]]:
    rng = random.Random(seed)
    lines = [" ".join(rng.choices(WORDS, k=rng.randint(1, 12))) for _ in range(count)]
    return [(f"{line} .", f"{line[::-1]} !") for line in lines]


TRAIN = make_pairs(290, 1)
DEV = make_pairs(30, 2)
TRAIN[17] = ("", "something")
TRAIN[18] = ("something", " \t")
TRAIN[40] = ("much " * 59 + "much", "little")
DEV[3] = ("", "kept")
DEV[4] = ("long " * 59 + "long", "kept, too")


@dataclasses.dataclass(frozen=True)
class Given:
    """A source of the pairs of a list."""

    pairs: list[tuple[str, str]]

    def __call__(self):
        return iter(self.pairs)


class Endless(Given):
    """Pairs of which the last one never comes, when they are read to be encoded."""

    def __call__(self):
        yield from self.pairs[:-1]
        if (Path(sys.argv[1]) / "small.incomplete/done/vocab.small.330.spm").exists():
            print("waiting", flush=True)
            signal.pause()  # until it is killed
        yield self.pairs[-1]


PROBLEM = Problem(
    sources={"train": Given(TRAIN), "dev": Given(DEV)},
    **{"name": "small", "summary": "", "vocab_size": 330, "max_length": 60},
)


def set_small_scale(setattr_) -> None:
    """Chunks, shards and saved states as a corpus 1000 times as large has them."""
    setattr_(encode_splits, "CHUNK", 10)
    setattr_(encode_splits, "_SAVE_EVERY", 50)
    setattr_(encode_splits, "num_train_shards", lambda num_pairs: 3)


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def decoded(directory: Path, split: str, name: str = "small") -> list[tuple[str, str]]:
    """Returns the texts of all records of a split, in their order."""
    import tensorflow as tf

    manifest = Manifest.open(directory, name)
    sides = [load_tokenizer(directory / file) for file in manifest.vocab_files.values()]
    index = RecordIndex.open(directory, name, split)
    pairs = []
    for i, payload in enumerate(index.read(range(len(index)))):
        feature = tf.train.Example.FromString(payload).features.feature
        assert set(feature) == {"inputs", "targets"}
        ids = [list(feature[key].int64_list.value) for key in ("inputs", "targets")]
        assert [side[-1] for side in ids] == [1, 1]
        lengths = [index.source_length[i], index.target_length[i]]
        assert lengths == [len(side) for side in ids]
        pairs.append(tuple(t.decode(side) for t, side in zip(sides, ids, strict=True)))
    return pairs


@contextlib.contextmanager
def faults(at: int, fault):
    """Calls `fault` at the n-th place where a run changes something on the disk."""
    count = 0
    make_directory = os.mkdir

    def watched(function):
        def call(*args, **kwargs):
            nonlocal count
            # Libraries make directories that exist, which changes nothing.
            if function is not make_directory or not os.path.exists(args[0]):
                count += 1
                if count == at:
                    fault()
            return function(*args, **kwargs)

        return call

    calls = [(SpillFiles, "append"), (SpillFiles, "flush")]
    calls += [(os, "replace"), (Path, "unlink"), (os, "mkdir")]
    calls += [(shutil, "rmtree")]
    with pytest.MonkeyPatch.context() as monkeypatch:
        for owner, name in calls:
            monkeypatch.setattr(owner, name, watched(getattr(owner, name)))
        yield


def interrupt():
    raise KeyboardInterrupt


def python(code: str, *arguments: object) -> subprocess.Popen:
    """Starts a process that can import the helpers."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    folder = Path(__file__).parents[1]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)


def tf_example(**lists):
    """An example as TensorFlow itself makes it, of lists of ids."""
    import tensorflow as tf

    every = {k: tf.train.Int64List(value=ids) for k, ids in lists.items()}
    feature = {k: tf.train.Feature(int64_list=ids) for k, ids in every.items()}
    return tf.train.Example(features=tf.train.Features(feature=feature))

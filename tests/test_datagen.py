"""Datagen: what it writes, that nothing else changes it, and that it survives."""

import collections
import contextlib
import dataclasses
import errno
import os
import random
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import psutil
import pytest

from t2t_keras.data import datagen, encoding, share, shuffle, vocabulary
from t2t_keras.data.datagen import generate
from t2t_keras.data.manifest import Manifest
from t2t_keras.data.records import RecordIndex, num_train_shards
from t2t_keras.data.sources import ParallelFiles
from t2t_keras.data.vocabulary import draw
from t2t_keras.errors import UserError
from t2t_keras.problem import Problem
from t2t_keras.text.load import load_tokenizer

WORDS = ["a", "cat", "saw", "two", "old", "dogs", "in", "the", "garden", "quickly"]


def make_pairs(count: int, seed: int) -> list[tuple[str, str]]:
    rng = random.Random(seed)
    lines = [" ".join(rng.choices(WORDS, k=rng.randint(1, 12))) for _ in range(count)]
    return [(f"{line} .", f"{line[::-1]} !") for line in lines]


TRAIN, DEV = make_pairs(290, 1), make_pairs(30, 2)
TRAIN[17] = ("", "something")
TRAIN[18] = ("something", " \t")
TRAIN[40] = ("much " * 60, "little")
DEV[3] = ("", "kept")
DEV[4] = ("long " * 60, "kept, too")


@dataclasses.dataclass(frozen=True)
class Given:
    """A source of the pairs of a list."""

    pairs: list[tuple[str, str]]

    def __call__(self):
        return iter(self.pairs)


PROBLEM = Problem(
    name="small",
    summary="",
    sources={"train": Given(TRAIN), "dev": Given(DEV)},
    vocab_size=330,
    max_length=60,
)


@pytest.fixture(autouse=True)
def small_scale(monkeypatch):
    """Chunks, shards and saved states as a corpus 1000 times as large has them."""
    set_small_scale(monkeypatch.setattr)


def set_small_scale(setattr_) -> None:
    setattr_(encoding, "CHUNK", 10)
    setattr_(datagen, "CHUNK", 10)
    setattr_(share, "_SAVE_EVERY", 50)
    setattr_(datagen, "num_train_shards", lambda num_pairs: 3)


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.fixture(scope="module")
def complete(tmp_path_factory) -> Path:
    """A directory made without any interruption."""
    path = tmp_path_factory.mktemp("complete")
    with pytest.MonkeyPatch.context() as monkeypatch:
        set_small_scale(monkeypatch.setattr)
        generate(PROBLEM, path, workers=1)
    return path


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


def test_records_hold_the_texts(complete):
    assert decoded(complete, "dev") == DEV  # every pair, in its place
    train = decoded(complete, "train")
    kept = [pair for i, pair in enumerate(TRAIN) if i not in (17, 18, 40)]
    assert collections.Counter(train) == collections.Counter(kept)
    assert {path.name for path in complete.iterdir()} == {
        *(f"small-train-0000{i}-of-00003" for i in range(3)),
        *("small-dev-00000-of-00001", "small-train.index.npz", "small-dev.index.npz"),
        *("vocab.small.330.spm", "small.manifest.json"),
    }


def test_manifest_counts_everything(complete):
    manifest = Manifest.open(complete, "small")
    assert manifest.examples == {"train": 287, "dev": 30}
    assert manifest.dropped["train"] == {"empty": 2, "over_length": 1}
    assert manifest.dropped["dev"] == {"empty": 0, "over_length": 0}
    tokenizer = load_tokenizer(complete / manifest.vocab_files["source"])
    assert manifest.vocab_sizes == dict.fromkeys(
        ("source", "target"), tokenizer.vocab_size
    )
    sources = sum(len(tokenizer.encode(source)) for source, _ in DEV)
    assert manifest.tokens["dev"]["source"] == sources
    index = RecordIndex.open(complete, "small", "train")
    assert manifest.tokens["train"] == {
        "source": index.source_length.sum(),
        "target": index.target_length.sum(),
    }


def test_train_is_shuffled_over_all_shards(complete):
    index = RecordIndex.open(complete, "small", "train")
    shares = np.bincount(index.file) / len(index)
    assert np.abs(shares - 1 / 3).max() < 0.1
    order = [TRAIN.index(pair) for pair in decoded(complete, "train")]
    assert abs(np.corrcoef(order, range(len(order)))[0, 1]) < 0.15
    neighbours = np.abs(np.diff(order)) == 1
    assert neighbours.mean() < 0.05


@pytest.mark.parametrize("workers", [2, 3])
def test_bytes_do_not_depend_on_the_workers(complete, tmp_path, workers):
    generate(PROBLEM, tmp_path, workers)
    assert files(tmp_path) == files(complete)


def test_bytes_do_not_depend_on_the_chunks(complete, tmp_path, monkeypatch):
    monkeypatch.setattr(encoding, "CHUNK", 73)
    generate(PROBLEM, tmp_path, workers=1)
    assert files(tmp_path) == files(complete)


def test_another_seed_is_another_order(complete, tmp_path):
    generate(PROBLEM, tmp_path, workers=1, seed=1)
    first, second = decoded(complete, "train"), decoded(tmp_path, "train")
    assert first != second
    assert sorted(first) == sorted(second)
    assert decoded(tmp_path, "dev") == DEV


def test_the_other_direction_has_the_same_files(complete, tmp_path):
    generate(PROBLEM.reversed(), tmp_path, workers=1)
    assert files(tmp_path) == files(complete)


def test_number_of_shards():
    counts = {1: 1, 10_000: 1, 10_001: 2, 270_769: 28, 4_500_000: 100, 41_000_000: 100}
    assert {pairs: num_train_shards(pairs) for pairs in counts} == counts
    assert num_train_shards(10**9) == 2000


def test_a_complete_directory_is_left_alone(complete, capsys):
    before = {path: path.stat().st_mtime_ns for path in complete.iterdir()}
    assert generate(PROBLEM, complete) == Manifest.open(complete, "small")
    assert {path: path.stat().st_mtime_ns for path in complete.iterdir()} == before
    assert "is there already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "seed", "message"),
    [
        ({}, 5, "seed was 0 and is now 5"),
        ({"max_length": 7}, 0, "max_length was 60 and is now 7"),
        ({"vocab_size": 320}, 0, "vocab_size was 330 and is now 320"),
        ({"sources": {"train": Given(TRAIN[1:])}}, 0, "'dev' is gone; sources 'train'"),
        ({"sources": PROBLEM.sources | {"test": Given(DEV)}}, 0, "'test' is new"),
    ],
)
def test_a_directory_of_something_else_is_refused(complete, changes, seed, message):
    before = files(complete)
    with pytest.raises(UserError, match=f"made otherwise .*{message}"):
        generate(PROBLEM.replace(**changes), complete, seed=seed)
    assert files(complete) == before


def test_what_was_removed_or_changed_is_noticed(complete, tmp_path):
    for name, content in files(complete).items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "small-train-00001-of-00003").unlink()
    with pytest.raises(UserError, match="only 2 of the 3 train shards"):
        generate(PROBLEM, tmp_path)
    (tmp_path / "vocab.small.330.spm").write_bytes(b"")
    with pytest.raises(UserError, match="is not the vocabulary that the data was made"):
        generate(PROBLEM, tmp_path)
    (tmp_path / "small.manifest.json").unlink()
    with pytest.raises(UserError, match="without a manifest"):
        generate(PROBLEM, tmp_path)
    assert len(RecordIndex.open(tmp_path, "small", "dev")) == 30  # as before


def test_a_given_vocabulary_is_used(complete, tmp_path):
    vocab = tmp_path / "vocab.small.330.spm"
    generate(PROBLEM.replace(sources={"train": Given(DEV)}), tmp_path / "other", 1)
    content = (tmp_path / "other" / vocab.name).read_bytes()
    assert content != (complete / vocab.name).read_bytes()
    vocab.write_bytes(content)
    manifest = generate(PROBLEM, tmp_path, workers=1)
    assert vocab.read_bytes() == content
    assert list(manifest.given_vocabularies) == [vocab.name]
    assert decoded(tmp_path, "dev") == DEV
    assert generate(PROBLEM, tmp_path) == manifest


def test_a_vocabulary_for_each_side(tmp_path):
    trees = [(f"{WORDS[i % 10]} runs", "S NP /NP VP /VP /S") for i in range(50)]
    symbols = ("S", "/S", "NP", "/NP", "VP", "/VP")
    manifest = generate(
        PROBLEM.replace(
            sources={"train": Given(trees)},
            shared_vocab=False,
            symbols=symbols,
            vocab_size=300,
        ),
        tmp_path,
        workers=1,
    )
    source, target = (tmp_path / name for name in manifest.vocab_files.values())
    assert source.name == "vocab.small.source.300.spm"
    assert target.name == "vocab.small.target.300.spm"
    assert len(load_tokenizer(target).encode("S NP /NP VP /VP /S")) == 7
    assert len(load_tokenizer(source).encode("S NP /NP VP /VP /S")) > 14
    assert manifest.vocab_sha256["source"] != manifest.vocab_sha256["target"]
    assert sorted(decoded(tmp_path, "train")) == sorted(trees)


def test_tensor2tensor_subwords(tmp_path):
    problem = PROBLEM.replace(tokenizer="t2t_subword", vocab_size=100)
    manifest = generate(problem, tmp_path, workers=2)
    assert manifest.vocab_files["source"] == "vocab.small.100.subwords"
    assert decoded(tmp_path, "dev") == DEV


def test_the_vocabulary_sees_a_uniform_sample(tmp_path, monkeypatch):
    counts = collections.Counter()
    for seed in range(2000):
        drawn = list(draw(((str(i), "") for i in range(20)), 20, 5, seed))
        assert len(set(drawn)) == 5
        counts.update(int(text) for text, _ in drawn)
    assert set(counts) == set(range(20))
    assert max(abs(n - 500) for n in counts.values()) < 100  # 5 standard deviations
    assert list(draw([("a", "b")] * 7, 7, 7, seed=0)) == [("a", "b")] * 7

    seen = []
    monkeypatch.setitem(vocabulary._SAMPLE, "sentencepiece", 100)
    train = datagen.train_vocabulary

    def spy(problem, texts, path, own_process):
        seen.extend(texts)
        train(problem, seen, path, own_process)

    monkeypatch.setattr(datagen, "train_vocabulary", spy)
    generate(PROBLEM, tmp_path, workers=1)
    assert len(seen) == 200
    places = [TRAIN.index(pair) for pair in zip(seen[::2], seen[1::2], strict=True)]
    assert min(places) < 30 and max(places) > 260


# Mistakes.


def mistake(problem: Problem, directory: Path) -> str:
    with pytest.raises(UserError) as error:
        generate(problem, directory, workers=1)
    with pytest.raises(UserError):
        RecordIndex.open(directory, problem.name, "train")
    return str(error.value)


def test_files_with_mistakes_leave_nothing_and_can_be_mended(tmp_path):
    english, german = tmp_path / "en", tmp_path / "de"
    files_of = ParallelFiles(english, german)
    problem = PROBLEM.replace(sources={"train": files_of, "dev": Given(DEV)})
    out = tmp_path / "data"
    assert "No such file" in mistake(problem, out)
    assert not out.exists()
    english.write_text("".join(f"{source}\n" for source, _ in TRAIN))
    german.write_text("".join(f"{target}\n" for _, target in TRAIN[1:]))
    assert "has only 289 lines" in mistake(problem, out)
    german.write_bytes(german.read_bytes() + b"\xff\n")
    assert "de, line 290: byte 0xff" in mistake(problem, out)
    german.write_text("".join(f"{target}\n" for _, target in TRAIN))
    generate(problem, out, workers=1)
    assert sorted(path.name for path in out.iterdir())[0] == "small-dev-00000-of-00001"
    assert len(decoded(out, "train")) == 287


def test_no_examples(tmp_path):
    assert "no train examples" in mistake(PROBLEM.replace(sources={}), tmp_path)
    none = PROBLEM.replace(sources={"train": Given([])})
    assert "the train source has not a single pair" in mistake(none, tmp_path)


def test_a_source_that_changes_while_it_is_read(tmp_path):
    passes = iter([TRAIN, TRAIN, TRAIN[:-100], TRAIN])

    class Changing(Given):
        def __call__(self):
            return iter(next(passes))

        def checksum(self):
            return "the same"

    problem = PROBLEM.replace(sources={"train": Changing([])})
    assert "gave 290 pairs at first and 190 when read again" in mistake(
        problem, tmp_path
    )
    assert generate(problem, tmp_path, workers=1).examples == {"train": 287}


def test_a_directory_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    message = mistake(PROBLEM, tmp_path / "file" / "data")
    assert message.startswith("cannot write ")


# Interruptions. `faults` makes the n-th write of a run fail.


@contextlib.contextmanager
def faults(at: int, fault):
    """Calls `fault` at the n-th place where a run changes something on the disk."""
    count = 0

    def watched(function):
        def call(*args, **kwargs):
            nonlocal count
            count += 1
            if count == at:
                fault()
            return function(*args, **kwargs)

        return call

    places = [(os, "replace"), (shuffle.Spills, "append"), (shuffle.Spills, "flush")]
    places += [(Path, "unlink"), (datagen.shutil, "rmtree"), (os, "mkdir")]
    with pytest.MonkeyPatch.context() as monkeypatch:
        for owner, name in places:
            monkeypatch.setattr(owner, name, watched(getattr(owner, name)))
        yield


def run_and_kill_everywhere(directory: Path, step: int) -> int:
    """Kills a run at every `step`-th change and lets another one finish the work.

    Returns:
        the number of changes that a run makes.
    """
    set_small_scale(setattr)
    encoding.CHUNK = 40  # fewer places, all of the same kinds
    generate(PROBLEM, directory / "whole", workers=1)
    whole = files(directory / "whole")
    for at in range(1, 1000, step):
        out = directory / str(at)
        if not killed_at(at, out):
            return at - 1
        with contextlib.suppress(UserError):  # refused, or all there
            assert len(RecordIndex.open(out, "small", "train")) == 287
            assert (out / "small.manifest.json").exists()
        generate(PROBLEM, out, workers=1)
        assert files(out) == whole, f"killed at {at}"
    raise AssertionError("a run without an end")


def killed_at(at: int, out: Path) -> bool:
    """Runs datagen in a process that kills itself; returns whether it did."""
    child = os.fork()
    if child == 0:
        with faults(at, lambda: os.kill(os.getpid(), signal.SIGKILL)):
            generate(PROBLEM, out, workers=1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL)
    return status != 0


def python(code: str, *arguments: object) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_anywhere_and_run_again(tmp_path, step):
    code = """
import pathlib, sys, tensorflow, test_datagen
print(test_datagen.run_and_kill_everywhere(pathlib.Path(sys.argv[1]), int(sys.argv[2])))
"""
    process = python(code, tmp_path, step)
    places = int(process.communicate()[0])
    assert process.returncode == 0
    assert places > 30


class Endless(Given):
    """Pairs of which the last one never comes, when they are read to be encoded."""

    def __call__(self):
        yield from self.pairs[:-1]
        if (Path(sys.argv[1]) / "small.incomplete/done/vocab.small.330.spm").exists():
            print("waiting", flush=True)
            time.sleep(60)
        yield self.pairs[-1]


def test_killed_with_its_workers_at_work(complete, tmp_path):
    code = """
import sys, test_datagen
from test_datagen import *
set_small_scale(setattr)
problem = PROBLEM.replace(sources={"train": Endless(TRAIN), "dev": Given(DEV)})
generate(problem, sys.argv[1], workers=2)
"""
    process = python(code, tmp_path)
    assert process.stdout.readline() == "waiting\n"
    workers = psutil.Process(process.pid).children(recursive=True)
    assert len(workers) >= 2
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(workers, timeout=20)
    assert not alive
    with pytest.raises(UserError, match="is unfinished"):
        RecordIndex.open(tmp_path, "small", "dev")
    generate(PROBLEM, tmp_path, workers=2)
    assert files(tmp_path) == files(complete)


def interrupt():
    raise KeyboardInterrupt


def test_what_is_encoded_is_not_encoded_again(complete, tmp_path, monkeypatch):
    with faults(30, interrupt), pytest.raises(KeyboardInterrupt):
        generate(PROBLEM, tmp_path, workers=1)
    firsts = []
    chunks = encoding._chunks

    def spy(pairs, first):
        firsts.append(first)
        return chunks(pairs, first)

    monkeypatch.setattr(encoding, "_chunks", spy)
    monkeypatch.delattr(datagen, "train_vocabulary")
    generate(PROBLEM, tmp_path, workers=1)
    assert len(firsts) == 1 and firsts[0] >= 50 and firsts[0] % 10 == 0
    assert files(tmp_path) == files(complete)


def test_an_unfinished_run_of_another_recipe_is_thrown_away(complete, tmp_path, capsys):
    with faults(30, interrupt), pytest.raises(KeyboardInterrupt):
        generate(PROBLEM, tmp_path, workers=1, seed=9)
    generate(PROBLEM, tmp_path, workers=1)
    assert "starting anew, for seed was 9 and is now 0" in capsys.readouterr().err
    assert files(tmp_path) == files(complete)


def full_disk():
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("at", [1, 10, 25, 50, 55, 60, 65])
def test_full_disk(complete, tmp_path, at):
    with faults(at, full_disk), pytest.raises(UserError, match="is full; free some"):
        generate(PROBLEM, tmp_path, workers=1)
    with pytest.raises(UserError):
        RecordIndex.open(tmp_path, "small", "train")
    assert not (tmp_path / "small.manifest.json").exists()
    generate(PROBLEM, tmp_path, workers=1)
    assert files(tmp_path) == files(complete)


def test_full_disk_in_the_middle_of_a_shard(complete, tmp_path, monkeypatch):
    def cut_off(*args, **kwargs):
        records, table = shuffle.read_sorted(*args, **kwargs)
        return (full_disk() if i > 2 else r for i, r in enumerate(records)), table

    with monkeypatch.context() as patch:
        patch.setattr(datagen, "read_sorted", cut_off)
        with pytest.raises(UserError, match=f"the disk of {tmp_path} is full"):
            generate(PROBLEM, tmp_path, workers=1)
    assert [path.name for path in tmp_path.iterdir()] == ["small.incomplete"]
    generate(PROBLEM, tmp_path, workers=1)
    assert files(tmp_path) == files(complete)


def test_tensorflow_is_not_needed(tmp_path):
    code = """
import sys, test_datagen
test_datagen.generate(test_datagen.PROBLEM, sys.argv[1], workers=1)
print({"tensorflow", "keras"} & set(sys.modules))
"""
    assert python(code, tmp_path).communicate()[0] == "set()\n"


def test_the_vocabulary_knows_the_second_half_of_the_corpus(tmp_path, monkeypatch):
    cyrillic = str.maketrans("abcdefghijklmnopqrstuvwxyz", "абцдефгхийклмнопqрстувwхыз")
    halves = TRAIN[:200] + [
        tuple(text.translate(cyrillic) for text in pair) for pair in TRAIN[:200]
    ]
    monkeypatch.setitem(vocabulary._SAMPLE, "sentencepiece", 100)
    problem = PROBLEM.replace(sources={"train": Given(halves)}, vocab_size=480)
    tokenizer = load_tokenizer(
        tmp_path / generate(problem, tmp_path, workers=1).vocab_files["source"]
    )
    for word in ("garden", "garden".translate(cyrillic)):
        assert len(tokenizer.encode(word)) < len(word)  # has pieces of several letters


def test_only_one_at_a_time(tmp_path):
    class Nested(Given):
        def __call__(self):
            with pytest.raises(UserError, match="another `t2t datagen` is at work"):
                generate(PROBLEM.replace(sources={"train": Given(TRAIN)}), tmp_path)
            return iter(self.pairs)

        def checksum(self):
            return "nested"

    generate(PROBLEM.replace(sources={"train": Nested(TRAIN)}), tmp_path, workers=1)


def test_a_worker_that_dies(tmp_path):
    class Killing(Given):
        def __call__(self):
            yield from self.pairs[:200]
            for child in psutil.Process().children():
                if "spawn_main" in " ".join(child.cmdline()):
                    child.kill()
            yield from self.pairs[200:]

        def checksum(self):
            return "killing"

    problem = PROBLEM.replace(sources={"train": Killing(TRAIN)})
    with pytest.raises(UserError, match="a worker process died"):
        generate(problem, tmp_path, workers=2)


def test_memory_does_not_grow_with_the_corpus(complete, tmp_path):
    def peak(count: int) -> int:
        out = tmp_path / str(count)
        out.mkdir()
        name = "vocab.small.330.spm"
        (out / name).write_bytes((complete / name).read_bytes())

        def source():
            return (TRAIN[i % len(TRAIN)] for i in range(count))

        tracemalloc.start()
        generate(PROBLEM.replace(sources={"train": source}), out, workers=1)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(datagen, "num_train_shards", lambda n: -(-n // 500))
        monkeypatch.setattr(shuffle, "_BUFFER", 1 << 10)
        peak(500)  # what is imported and cached once
        small, large = peak(1_000), peak(6_000)
    assert large < 1.5 * small

"""Datagen: what it writes, and that nothing else changes it."""

import collections
import random
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from helpers.command_line import run_json, run_refused, write
from helpers.errors import refused
from helpers.small_corpus import DEV, PROBLEM, TRAIN, Given, decoded, files, python

from t2t_keras.data import encode_splits, encoding
from t2t_keras.data.datagen import generate
from t2t_keras.data.manifest import Manifest
from t2t_keras.data.record_index import RecordIndex
from t2t_keras.data.sources import ParallelFiles
from t2t_keras.data.vocabulary import draw
from t2t_keras.problem import Problem
from t2t_keras.text.sentence_piece import SentencePieceTokenizer
from t2t_keras.text.tokenizer import load_tokenizer

pytestmark = pytest.mark.usefixtures("small_scale")

CHOSEN = PROBLEM.replace(vocab_size=None)


def test_records_hold_the_texts(complete):
    assert decoded(complete, "dev") == DEV  # every pair, in its place
    train = decoded(complete, "train")
    pairs = [pair for i, pair in enumerate(TRAIN) if i not in (17, 18, 40)]
    assert collections.Counter(train) == collections.Counter(pairs)
    assert {path.name for path in complete.iterdir()} == {
        *(f"small-train-0000{i}-of-00003" for i in range(3)),
        *("small-dev-00000-of-00001", "small-train.index.npz", "small-dev.index.npz"),
        *("small-dev.sources", "small-dev.targets"),
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


def test_bytes_depend_neither_on_the_workers_nor_on_the_direction(complete, tmp_path):
    generate(PROBLEM.reversed(), tmp_path, workers=3)
    assert files(tmp_path) == files(complete)


def test_a_complete_directory_is_left_alone(complete, capsys):
    times = {path: path.stat().st_mtime_ns for path in complete.iterdir()}
    assert generate(PROBLEM, complete) == Manifest.open(complete, "small")
    assert {path: path.stat().st_mtime_ns for path in complete.iterdir()} == times
    assert "is there already" in capsys.readouterr().err


ADDED = {"test": Given(DEV)}


@pytest.mark.parametrize(
    ("changes", "seed", "message"),
    [
        ({}, 5, "seed was 0 and is now 5"),
        ({"max_length": 7}, 0, "max_length was 60 and is now 7"),
        ({"vocab_size": 320}, 0, "vocab_size was 330 and is now 320"),
        ({"sources": {"train": Given(TRAIN[1:])}}, 0, "sources 'train' has changed"),
        ({"sources": {"dev": Given(DEV[1:])}}, 0, "sources 'dev' has changed"),
        # Also where a split is to be added.
        ({"sources": ADDED, "vocab_size": 400}, 0, "vocab_size was 330 and is now 400"),
        ({"sources": ADDED | {"dev": Given(DEV[1:])}}, 0, "'dev' has changed"),
        ({"sources": ADDED | {"train": Given(DEV)}}, 0, "'train' has changed"),
    ],
)
def test_a_directory_of_something_else_is_refused(complete, changes, seed, message):
    contents = files(complete)
    changed = PROBLEM.replace(**changes)
    refused(f"made otherwise .*{message}", generate, changed, complete, seed=seed)
    assert files(complete) == contents


def test_what_was_removed_or_changed_is_noticed(complete, tmp_path):
    for name, content in files(complete).items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "small-train-00001-of-00003").unlink()
    refused("only 2 of the 3 train shards", generate, PROBLEM, tmp_path)
    (tmp_path / "vocab.small.330.spm").write_bytes(b"")
    refused("is not the vocabulary that the data was made", generate, PROBLEM, tmp_path)
    (tmp_path / "small.manifest.json").unlink()
    refused("without a manifest", generate, PROBLEM, tmp_path)
    assert len(RecordIndex.open(tmp_path, "small", "dev")) == 30  # as before


def test_a_given_vocabulary_is_used(complete, tmp_path):
    vocab = tmp_path / "vocab.small.330.spm"
    generate(PROBLEM.replace(sources={"train": Given(DEV)}), tmp_path / "other", 1)
    content = (tmp_path / "other" / vocab.name).read_bytes()
    assert content != (complete / vocab.name).read_bytes()
    vocab.write_bytes(content)
    manifest = generate(CHOSEN, tmp_path, workers=1)
    assert manifest.vocab_size == 330  # which nobody has given
    assert vocab.read_bytes() == content
    assert list(manifest.given_vocabularies) == [vocab.name]
    assert decoded(tmp_path, "dev") == DEV
    assert generate(PROBLEM, tmp_path) == manifest


def test_the_sample_for_the_vocabulary_is_uniform():
    counts = collections.Counter()
    for seed in range(2000):
        drawn = list(draw(((str(i), "") for i in range(20)), [20], [5], seed))
        assert len(set(drawn)) == 5
        counts.update(int(text) for text, _ in drawn)
    assert set(counts) == set(range(20))
    assert max(abs(n - 500) for n in counts.values()) < 100  # 5 standard deviations
    assert list(draw([("a", "b")] * 7, [7], [7], seed=0)) == [("a", "b")] * 7


# Mistakes.


def mistake(problem: Problem, directory: Path) -> str:
    message = refused("", generate, problem, directory, workers=1)
    refused("", RecordIndex.open, directory, problem.name, "train")
    return message


def test_files_with_mistakes_leave_nothing_and_can_be_mended(tmp_path):
    english = tmp_path / "en"
    german = tmp_path / "de"
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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer": "tees"}, "must be one of sentencepiece"),
        ({"sources": {}}, "no train examples"),
        ({"sources": {"train": Given([("a", 1)])}}, "strings, not ('a', 1)"),
        ({"sources": {"train": Given(["ab"])}}, "yield pairs of strings, not 'ab'"),
        ({"sources": {"train": lambda: None}}, "a source must be a function that yiel"),
        ({"sources": {"train": Given([])}}, "the train source has no pairs"),
    ],
)
def test_impossible_problems(changes, message, tmp_path):
    assert message in mistake(PROBLEM.replace(**changes), tmp_path)


def test_a_source_that_changes_while_it_is_read(tmp_path):
    # Counted, sampled, encoded; encoded again, and read to find the languages.
    passes = iter([TRAIN, TRAIN, TRAIN[:-100], TRAIN, TRAIN])

    class Changing(Given):
        def __call__(self):
            return iter(next(passes))

        def checksum(self):
            return "the same"

    problem = PROBLEM.replace(sources={"train": Changing([])})
    message = mistake(problem, tmp_path)
    assert "gave 290 pairs at first and 190 when read again" in message
    assert generate(problem, tmp_path, workers=1).examples == {"train": 287}


def test_tensorflow_is_not_needed(tmp_path):
    code = """
import sys
from helpers.small_corpus import PROBLEM
from t2t_keras.data.datagen import generate
generate(PROBLEM, sys.argv[1], workers=1)
print({"tensorflow", "keras"} & set(sys.modules))
"""
    assert python(code, tmp_path).communicate()[0] == "set()\n"


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
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return peak_bytes

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(encode_splits, "num_train_shards", lambda n: -(-n // 500))
        monkeypatch.setattr(encoding, "_BUFFER", 1 << 10)
        peak(100)  # what is imported and cached once
        small = peak(500)
        large = peak(2_000)
    assert large < 1.5 * small


# `t2t datagen` from the command line: its result, vocabularies, mistakes.


LINES = [" ".join(random.Random(i).choices("abcdefgh", k=7)) for i in range(60)]


@pytest.fixture
def argv(tmp_path):
    source = write(tmp_path / "source", *LINES)
    target = write(tmp_path / "target", *LINES[::-1])
    files = ("--train_source", source, "--train_target", target)
    return "datagen", "--problem", "translate_text", "--workers", 1, *files


def test_json(argv, capfd, tmp_path):
    result = run_json(
        capfd, *argv, "--data_dir", tmp_path / "data", "--vocab_size", 300
    )
    assert result.pop("seconds") > 0
    assert result["examples"] == {"train": 60}
    assert result["vocab_sizes"]["target"] == result["vocab_size"]
    assert sum(result["dropped"].values()) == 0


def test_given_vocabularies(argv, capfd, tmp_path):
    paths = [tmp_path / "shared.spm", tmp_path / "target.spm"]
    for path, size in zip(paths, (275, 270), strict=True):
        SentencePieceTokenizer.train(LINES, path, size)
    sizes = [SentencePieceTokenizer(path).vocab_size for path in paths]
    for given in (paths[:1], paths):
        flags = ("--data_dir", tmp_path / str(len(given)), "--vocab", *given)
        for _ in range(2):  # the second time it is there already
            result = run_json(capfd, *argv, *flags)
        assert [*result["vocab_sizes"].values()] == [sizes[0], sizes[len(given) - 1]]
    # Another vocabulary of that size would replace it.
    (tmp_path / f"2/vocab.translate_text.source.{sizes[0]}.spm").write_text("")
    message = "is another vocabulary; give a new --data_dir"
    assert message in run_refused(capfd, *argv, *flags)
    flags = ("--data_dir", tmp_path / "2", "--vocab", tmp_path)
    assert "no config.json" in run_refused(capfd, *argv, *flags)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--clean", "tidy"], "--clean: there is no rule 'tidy'"),
        (
            ["--vocab_size", "300", "--vocab", "x"],
            "--vocab_size has no effect with --vocab",
        ),
        (["--vocab", "a", "b", "c"], "--vocab takes at most 2, not 3 files"),
    ],
)
def test_mistakes(argv, capfd, tmp_path, flags, message):
    argv = (*argv, "--data_dir", tmp_path / "data", *flags)
    assert message in run_refused(capfd, *argv)
    assert not (tmp_path / "data").exists()

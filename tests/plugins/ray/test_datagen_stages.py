"""Data generation in tasks, as a cluster runs them, makes the bytes of one process."""

import functools
import gzip
import os
import pickle
import shutil

import pytest
from helpers.errors import refused
from helpers.small_corpus import (
    DEV,
    PROBLEM,
    TRAIN,
    Given,
    faults,
    files,
    interrupt,
    set_small_scale,
)

from t2t_keras.data import datagen, encode_splits, write_shards
from t2t_keras.data.datagen import generate
from t2t_keras.data.mixture import Corpus, Mixture
from t2t_keras.data.sources import ParallelFiles
from t2t_keras.errors import UserError
from t2t_keras.plugins.ray import datagen as ray_datagen
from t2t_keras.plugins.ray import survey
from t2t_keras.plugins.ray.datagen import ClusterStages, divide
from t2t_keras.problem import Cleaning


def in_tasks(run):
    """The stages as a cluster of two workers does them, with `run` in its place."""
    return ClusterStages(run, 2)


HERE = in_tasks(map)

pytestmark = pytest.mark.usefixtures("small_scale")


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch):
    monkeypatch.setattr(survey, "_RANGE", 700)
    monkeypatch.setattr(ray_datagen, "_PAIRS", 60)
    monkeypatch.setattr(encode_splits, "_HASHES", 100)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A problem whose text files can be read from the middle, and its data."""
    folder = tmp_path_factory.mktemp("plain")
    sources = {"train": text_files(folder, TRAIN), "dev": text_files(folder, DEV)}
    problem = PROBLEM.replace(sources=sources)
    with pytest.MonkeyPatch.context() as monkeypatch:
        set_small_scale(monkeypatch.setattr)
        generate(problem, folder / "data", workers=1)
    return problem, files(folder / "data")


def run_elsewhere(task, arguments):
    """Runs tasks on copies of their arguments, the last one first."""
    copies = [pickle.loads(pickle.dumps((task, argument))) for argument in arguments]
    results = [pickle.dumps(task(argument)) for task, argument in reversed(copies)]
    return map(pickle.loads, reversed(results))


def text_files(folder, pairs, suffix=""):
    paths = []
    for side in (0, 1):
        content = "".join(f"{pair[side]}\n" for pair in pairs).encode()
        paths.append(folder / f"{len(pairs)}.{side}{suffix}")
        paths[-1].write_bytes(gzip.compress(content) if suffix == ".gz" else content)
    return ParallelFiles(*paths)


@pytest.fixture
def mixture(tmp_path):
    """Three corpora, of which only the first one can be read from the middle."""
    plain = Corpus("a", text_files(tmp_path, TRAIN[:150]), tag="<2a>")
    compressed = Corpus("b", text_files(tmp_path, TRAIN[150:220], ".gz"))
    in_memory = Corpus("c", Given([*TRAIN[220:], *TRAIN[180:200]]))
    return Mixture((plain, compressed, in_memory))


def test_bytes_match_one_process(tmp_path, mixture):
    sources = {"train": mixture, "dev": text_files(tmp_path, DEV)}
    problem = PROBLEM.replace(sources=sources, cleaning=Cleaning(duplicates=True))
    manifest = generate(problem, tmp_path / "one", workers=1)
    assert manifest.dropped["train"]["duplicate"] >= 20
    generate(problem, tmp_path / "two", workers=2)
    generate(problem, tmp_path / "tasks", stages=in_tasks(run_elsewhere))
    expected = files(tmp_path / "one")
    assert files(tmp_path / "two") == expected
    assert files(tmp_path / "tasks") == expected


def test_vocabulary_whose_size_depends_on_the_texts(tmp_path, mixture):
    problem = PROBLEM.replace(
        sources={"train": mixture}, vocab_size=None, shared_vocab=False
    )
    generate(problem, tmp_path / "one", workers=1)
    generate(problem, tmp_path / "tasks", stages=in_tasks(run_elsewhere))
    assert files(tmp_path / "one") == files(tmp_path / "tasks")


def test_encoded_parts_are_reused(plain, tmp_path, monkeypatch):
    problem, expected = plain
    encoded = []
    encode = encode_splits._encode_part

    def note(problem, part, *args):
        encoded.append(part.pairs)
        encode(problem, part, *args)

    monkeypatch.setattr(encode_splits, "_encode_part", note)
    with faults(45, interrupt), pytest.raises(KeyboardInterrupt):
        generate(problem, tmp_path, stages=HERE)
    done = encoded[:-1]
    assert range(0, 60) in done
    encoded.clear()
    generate(problem, tmp_path, stages=HERE)
    assert encoded and not set(done) & set(encoded)
    assert files(tmp_path) == expected


def test_each_way_continues_the_other(plain, tmp_path):
    problem, expected = plain
    with faults(80, interrupt), pytest.raises(KeyboardInterrupt):
        generate(problem, tmp_path / "a", stages=HERE)
    generate(problem, tmp_path / "a", workers=1)
    assert files(tmp_path / "a") == expected
    with faults(60, interrupt), pytest.raises(KeyboardInterrupt):
        generate(problem, tmp_path / "b", workers=1)
    generate(problem, tmp_path / "b", stages=HERE)
    assert files(tmp_path / "b") == expected


def test_a_part_of_which_the_disk_lost_the_end(plain, tmp_path, monkeypatch):
    """As a machine that lost its power leaves it: the state is newer than the rest."""
    problem, expected = plain
    encode = ray_datagen.encode_splits

    def lose_power(problem, splits, *args, **settings):
        encode(problem, splits, *args, **settings)
        splits[0].files[1].write_bytes(b"")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(ray_datagen, "encode_splits", lose_power)
        generate(problem, tmp_path, stages=HERE)
    generate(problem, tmp_path, stages=HERE)
    assert files(tmp_path) == expected


DAMAGES = {
    "a state": lambda folder: (folder / "train.state.json").write_text("{"),
    "an end": lambda folder: (folder / "train.spill-00001").write_bytes(b"half"),
    "hashes": lambda folder: (folder / "train.hashes-00000").unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_parts_of_a_lost_machine_are_encoded_again(plain, tmp_path, damage):
    """Its last writes are not on the shared disk, though its tasks are done."""
    problem, expected = plain
    lost = []

    def lose_a_part(task, arguments):
        yield from map(task, arguments)
        if task is ray_datagen._encode and not lost:
            lost.extend(tmp_path.glob("*.incomplete/pairs-60-*"))
            DAMAGES[damage](lost[0])

    generate(problem, tmp_path, stages=in_tasks(lose_a_part))
    assert lost and files(tmp_path) == expected


def test_encoded_parts_that_are_lost_before_a_resume(plain, tmp_path):
    problem, expected = plain

    def stop_at_the_second_shard(task, arguments):
        for index, argument in enumerate(arguments):
            if task is write_shards._write_shard and index:
                raise KeyboardInterrupt
            yield task(argument)

    with pytest.raises(KeyboardInterrupt):
        generate(problem, tmp_path, stages=in_tasks(stop_at_the_second_shard))
    shutil.rmtree(next(tmp_path.glob("*.incomplete/pairs-60-*")))
    generate(problem, tmp_path, stages=HERE)
    assert files(tmp_path) == expected


def test_a_disk_that_loses_what_is_written(plain, tmp_path):
    def lose(task, arguments):
        yield from map(task, arguments)
        for path in tmp_path.glob("*.incomplete/pairs-60-*/train.spill-00001"):
            path.unlink()

    refused(
        "damaged, perhaps by a lost machine",
        generate,
        plain[0],
        tmp_path,
        stages=in_tasks(lose),
    )


@pytest.mark.parametrize("stages", [None, HERE])
@pytest.mark.parametrize("name", ["spill-00001", "hashes-00000"])
def test_what_is_damaged_is_not_published(plain, tmp_path, monkeypatch, name, stages):
    problem, expected = plain
    finish = datagen.finish

    def damage_and_finish(plan, *args):
        path = next(plan.directory.glob(f"pa*/train.{name}"))
        path.write_bytes(bytes(path.stat().st_size) or b"more")
        return finish(plan, *args)

    with monkeypatch.context() as patch:
        patch.setattr(datagen, "finish", damage_and_finish)
        run = functools.partial(generate, problem, tmp_path, workers=1, stages=stages)
        refused(f"train.{name} is damaged, .* run the same command again", run)
    shutil.rmtree(next(tmp_path.glob("*.incomplete/pa*/")))
    run()
    assert files(tmp_path) == expected


@pytest.mark.parametrize("stages", [None, HERE])
def test_damaged_hashes_of_equal_size(plain, tmp_path, monkeypatch, stages):
    problem = plain[0].replace(cleaning=Cleaning(duplicates=True))
    finish = datagen.finish

    def damage_and_finish(plan, *args):
        path = next(plan.directory.glob("pa*/train.hashes-00000"))
        assert path.stat().st_size
        path.write_bytes(bytes(path.stat().st_size))
        return finish(plan, *args)

    monkeypatch.setattr(datagen, "finish", damage_and_finish)
    run = functools.partial(generate, problem, tmp_path, workers=1, stages=stages)
    refused("train.hashes-00000 is damaged, .* run the same command again", run)


def test_a_shard_of_which_the_disk_lost_the_end(plain, tmp_path):
    def lose(task, arguments):
        yield from map(task, arguments)
        if task is write_shards._write_shard:
            os.truncate(arguments[0].path, 100)

    refused(
        "-00000-of-00003 is damaged",
        generate,
        plain[0],
        tmp_path,
        stages=in_tasks(lose),
    )


def test_two_tasks_of_one_shard(plain, tmp_path, monkeypatch):
    """The first one belongs to a machine that was given up and still writes."""
    problem, expected = plain
    read_sorted = write_shards.read_sorted

    def write_with_another(task, arguments):
        for argument in arguments:

            def other_comes_first(*args, argument=argument, **settings):
                patch.setattr(write_shards, "read_sorted", read_sorted)
                task(argument)
                return read_sorted(*args, **settings)

            if task is write_shards._write_shard:
                patch.setattr(write_shards, "read_sorted", other_comes_first)
            yield task(argument)

    with monkeypatch.context() as patch:
        generate(problem, tmp_path, stages=in_tasks(write_with_another))
    assert files(tmp_path) == expected


@pytest.mark.parametrize("stages", [None, HERE])
def test_an_input_of_equal_size_that_changes_before_a_resume(tmp_path, stages):
    problem = PROBLEM.replace(sources={"train": text_files(tmp_path, TRAIN)})
    run = functools.partial(generate, problem, workers=1, stages=stages)
    with faults(45, interrupt), pytest.raises(KeyboardInterrupt):
        run(tmp_path / "data")
    path = problem.sources["train"].target_path
    times = path.stat()
    content = path.read_bytes()
    path.write_bytes(content.replace(b"tac a", b"tac A"))
    assert path.read_bytes() != content
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    run(tmp_path / "data")
    run(tmp_path / "fresh")
    assert files(tmp_path / "data") == files(tmp_path / "fresh")


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [*lines[:200], b"caf\xe9\n", *lines[201:]],
        lambda lines: lines[:-3],
        lambda lines: [],
        lambda lines: [b"%PDF-1.4\n", *lines],
    ],
)
def test_mistakes_are_reported_as_by_one_process(tmp_path, change):
    source = text_files(tmp_path, TRAIN)
    lines = source.target_path.read_bytes().splitlines(keepends=True)
    source.target_path.write_bytes(b"".join(change(lines)))
    problem = PROBLEM.replace(sources={"train": source})
    with pytest.raises(UserError) as error:
        generate(problem, tmp_path / "one", workers=1)
    sentence = f"^{error.value}$".replace("(", r"\(").replace(")", r"\)")
    refused(
        sentence,
        generate,
        problem,
        tmp_path / "tasks",
        stages=in_tasks(run_elsewhere),
    )


def test_parts_have_all_pairs_and_do_not_divide_what_is_read_from_its_beginning():
    counts = {"a": 5, "b": 100, "c": 3, "d": 260, "e": 1, "f": 30}
    ranges = divide(counts, {"b", "f"}, 50)
    assert [i for pairs in ranges for i in pairs] == list(range(399))
    assert range(108, 368) in ranges  # the large one, "d", alone
    assert max(len(pairs) for pairs in ranges if pairs.start != 108) <= 50
    assert divide({"": 1}, {""}, 50) == [range(1)]
    assert divide({"": 100}, (), 50) == [range(100)]

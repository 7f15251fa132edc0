"""Records and their index, against TensorFlow's own reading and writing."""

import dataclasses
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from helpers.command_line import run, run_refused
from helpers.errors import refused
from helpers.small_corpus import PROBLEM, decoded, faults, files, interrupt, tf_example
from helpers.small_run import HPARAMS

from t2t_keras import registry
from t2t_keras.data import record_index
from t2t_keras.data.datagen import generate
from t2t_keras.data.manifest import Manifest
from t2t_keras.data.record_index import RecordIndex, shard_name
from t2t_keras.data.tfrecord import example, frame
from t2t_keras.files.json_files import write_json
from t2t_keras.run.config import config_for
from t2t_keras.run.directory import RunDirectory


def tf_bytes(**lists) -> bytes:
    return tf_example(**lists).SerializeToString(deterministic=True)


def random_pairs(count: int, seed: int = 0) -> list[tuple[list[int], list[int]]]:
    rng = np.random.default_rng(seed)

    def ids() -> list[int]:
        return [*rng.integers(2, 40_000, rng.integers(0, 200)).tolist(), 1]

    return [(ids(), ids()) for _ in range(count)]


def test_example_has_the_bytes_of_tensorflow():
    values = [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, 2**31]
    for source, target in [(values, [1]), ([1], values), *random_pairs(100)]:
        assert example(source, target) == tf_bytes(inputs=source, targets=target)


def test_frames_match_tensorflow(tmp_path):
    rng = np.random.default_rng(2)
    payloads = [rng.bytes(length) for length in (0, 1, 2, 300, 4096, 4097, 20_000)]
    with tf.io.TFRecordWriter(str(tmp_path / "file")) as writer:
        for payload in payloads:
            writer.write(payload)
    assert b"".join(map(frame, payloads)) == (tmp_path / "file").read_bytes()


@pytest.fixture
def t2t_dir(tmp_path):
    """A directory as tensor2tensor writes it: three shards, the second one empty."""
    pairs = random_pairs(300)
    for shard, part in enumerate((pairs[:200], [], pairs[200:])):
        path = tmp_path / shard_name("corpus", "train", shard, 3)
        with tf.io.TFRecordWriter(str(path)) as writer:
            for source, target in part:
                writer.write(tf_bytes(inputs=source, targets=target))
    return tmp_path


def open_train(directory) -> RecordIndex:
    return RecordIndex.open(directory, "corpus", "train")


def check(index: RecordIndex, pairs) -> None:
    assert len(index) == len(pairs)
    assert index.source_length.tolist() == [len(source) for source, _ in pairs]
    assert index.target_length.tolist() == [len(target) for _, target in pairs]
    order = np.random.default_rng(1).permutation(len(pairs))
    for i, payload in zip(order, index.read(order), strict=True):
        source, target = pairs[i]
        assert payload == tf_bytes(inputs=source, targets=target)


def test_index_of_a_tensor2tensor_directory(t2t_dir, monkeypatch):
    check(open_train(t2t_dir), random_pairs(300))
    monkeypatch.delattr(
        record_index, "scan_shard"
    )  # the second time, the saved one serves
    index = open_train(t2t_dir)
    check(index, random_pairs(300))
    assert index.read([]) == []
    assert [path.name for path in index.files] == [
        f"corpus-train-0000{i}-of-00003" for i in range(3)
    ]
    assert index.file.tolist() == [0] * 200 + [2] * 100


def test_a_stale_index_is_rebuilt(t2t_dir):
    open_train(t2t_dir)
    first_shard = t2t_dir / shard_name("corpus", "train", 0, 3)
    pairs = random_pairs(300)
    for changed in (pairs[1:200], pairs[199:0:-1]):  # another size; the same size
        first_shard.write_bytes(b"".join(frame(example(*pair)) for pair in changed))
        check(open_train(t2t_dir), [*changed, *pairs[200:]])


def test_an_index_in_the_other_direction_has_the_lengths_swapped(t2t_dir):
    index = open_train(t2t_dir)
    back = RecordIndex.open(t2t_dir, "corpus", "train", swap=True)
    np.testing.assert_array_equal(back.source_length, index.target_length)
    np.testing.assert_array_equal(back.target_length, index.source_length)
    assert (index.source_length != index.target_length).any()
    assert back.sha256() == index.sha256()


def test_threads_read_at_the_same_time(t2t_dir):
    index = open_train(t2t_dir)
    pairs = random_pairs(300)

    def work(seed: int) -> None:
        for i in np.random.default_rng(seed).integers(0, 300, [60, 8]):
            assert index.read(i) == [example(*pairs[k]) for k in i]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))  # raises what a thread has raised


def fails(directory, split: str = "train") -> str:
    return refused("", RecordIndex.open, directory, "corpus", split)


def test_what_is_not_there(t2t_dir):
    assert "no dev data of 'corpus'" in fails(t2t_dir, "dev")
    assert "no train data" in fails(t2t_dir / "absent")
    other_shard = t2t_dir / shard_name("corpus", "train", 0, 1)
    other_shard.touch()
    assert "more than once, in 1 and in 3 shards" in fails(t2t_dir)
    other_shard.unlink()
    (t2t_dir / shard_name("corpus", "train", 1, 3)).unlink()
    assert "only 2 of the 3 train shards" in fails(t2t_dir)


def test_what_is_not_whole(t2t_dir):
    shard = t2t_dir / shard_name("corpus", "train", 2, 3)
    shard.write_bytes(shard.read_bytes()[:-7])
    assert f"{shard} is damaged" in fails(t2t_dir)
    shard.write_bytes(frame(tf_bytes(targets=[5, 1])))
    assert f"{shard}: a record lacks `inputs`" in fails(t2t_dir)
    (t2t_dir / "corpus.incomplete").mkdir()
    assert "is unfinished" in fails(t2t_dir)


def test_a_shard_cut_off_while_in_use(t2t_dir):
    index = open_train(t2t_dir)
    index.read([299])
    with index.files[2].open("r+b") as file:
        file.truncate(file.seek(0, 2) // 2)
    message = f"{index.files[2]} is damaged: .* record 100 "
    refused(message, index.read, [299])
    # A mixture has a record several times, which the file has once.
    refused(message, index.repeated(np.full(300, 2)).read, [599])


def test_manifest_survives_the_disk(complete, tmp_path):
    manifest = Manifest.open(complete, "small")
    write_json(Manifest.path(tmp_path, "small"), dataclasses.asdict(manifest))
    assert Manifest.open(tmp_path, "small") == manifest
    message = r"other\.manifest\.json: run `t2t datagen`"
    refused(message, Manifest.open, tmp_path, "other")
    foreign = dataclasses.replace(manifest, vocab_files={"source": "../a"})
    write_json(Manifest.path(tmp_path, "outside"), dataclasses.asdict(foreign))
    message = r"the name of a file in its directory, not '\.\./a'"
    refused(message, Manifest.open, tmp_path, "outside")


# Damaged files of a data directory: refused in one sentence, or repaired.


NAME = "translate_text"
TRAIN = f"{NAME}-train-00000-of-00001"
MANIFEST = f"{NAME}.manifest.json"


@pytest.fixture
def directory(data_dir, tmp_path):
    return shutil.copytree(data_dir, tmp_path / "data")


def open_small(directory) -> RecordIndex:
    return RecordIndex.open(directory, NAME, "train")


def flip(index: RecordIndex, record: int, byte: int) -> int:
    """Flips a bit of a record, numbered from 0; returns where the record begins."""
    offset = int(index.offset[record])
    with index.files[0].open("r+b") as file:
        file.seek(offset + byte)
        content = file.read(1)[0]
        file.seek(offset + byte)
        file.write(bytes([content ^ 4]))
    return offset


@pytest.mark.parametrize(
    ("record", "part"),  # in the middle; at the end
    [(160, "length"), (160, "payload"), (319, "its checksum"), (319, "checksum")],
)
def test_a_flipped_bit_is_noticed(directory, part, record):
    index = open_small(directory)
    unchanged = np.delete(np.arange(len(index)), record)
    expected = index.read(unchanged)
    size = int(index.size[record])
    parts = {"length": 1, "its checksum": 9}
    parts |= {"payload": 12 + size // 2, "checksum": 12 + size}
    offset = flip(index, record, parts[part])
    assert index.read(unchanged) == expected
    sentence = (
        rf"{TRAIN} is damaged: the checksum of record {record + 1} \(at byte "
        rf"{offset:,}\) is wrong"
    )
    refused(sentence, index.read, [record])
    # The damage is also found when the index is rebuilt.
    (directory / f"{NAME}-train.index.npz").unlink()
    refused(sentence, open_small, directory)


def test_the_program_ends_in_one_sentence(directory, tmp_path, capfd):
    """Damage in the middle of a shard, which an index does not notice."""
    index = open_small(directory)
    middle = (index.offset > 4096) & (index.offset < index.offset.max() - 4096)
    assert middle.mean() > 0.5
    for record in np.flatnonzero(middle):
        flip(index, record, 30)
    argv = ["train", "--problem", NAME, "--hparams_set", "tiny", "--data_dir"]
    argv += [directory, "--output_dir", tmp_path / "run", "--hparams"]
    assert run(*argv, "num_layers=1,d_model=16,d_ff=16,num_heads=2") == 2
    err = capfd.readouterr().err
    assert "Traceback" not in err and "function_node" not in err
    message = err.strip().splitlines()[-1]
    assert message.startswith(f"t2t train: error: {directory / TRAIN} is damaged: ")
    assert "checksum of record" in message


def test_a_runs_vocabulary_is_checked_by_all_who_open_it(directory, tmp_path):
    """One bit of one piece would change ids silently."""
    config = config_for(registry.problem(NAME), "tiny", directory, 0)
    opened = RunDirectory.create(tmp_path / "run", config, HPARAMS)
    assert opened.tokenizers[0] is opened.tokenizers[1]
    path = opened.path / config.source_vocab
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)
    for use in (RunDirectory.build_model, RunDirectory.translator):
        message = f"{path} is not the vocabulary of this run"
        refused(message, use, RunDirectory(opened.path))


DAMAGE = {
    "empty": lambda content: b"",
    "truncated": lambda content: content[: len(content) // 2],
    "an array": lambda content: b"\x93NUMPY\x01\x00" + content[8:],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_index_is_rebuilt(directory, damage, capsys):
    path = directory / f"{NAME}-train.index.npz"
    content = path.read_bytes()
    path.write_bytes(DAMAGE[damage](content))
    assert len(open_small(directory)) == 320
    assert f"{path} is damaged; building it again" in capsys.readouterr().err
    assert path.read_bytes() == content
    open_small(directory)
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (MANIFEST, "is damaged: it is not valid JSON"),
        ("vocab.*", "is not the vocabulary that the data was made with"),
    ],
)
def test_training_does_not_begin_on_damaged_data(
    directory, tmp_path, pattern, message, capfd
):
    (path,) = directory.glob(pattern)
    path.write_bytes(DAMAGE["truncated"](path.read_bytes()))
    argv = ["train", "--problem", NAME, "--hparams_set", "tiny", "--data_dir"]
    argv += [directory, "--output_dir", tmp_path / "run"]
    assert f"{path} {message}" in run_refused(capfd, *argv)
    assert not (tmp_path / "run").exists()


def test_a_state_file_of_datagen(tmp_path):
    out = tmp_path / "out"
    with faults(12, interrupt), pytest.raises(KeyboardInterrupt):
        generate(PROBLEM, out, workers=1)
    work = out / "small.incomplete"
    (work / "corpora.json").write_text('{"train": 2')
    message = f"{work / 'corpora.json'} is damaged: .* or remove it and run the same"
    refused(message, generate, PROBLEM, out, workers=1)
    (work / "corpora.json").unlink()
    generate(PROBLEM, out, workers=1)
    generate(PROBLEM, tmp_path / "whole", workers=1)
    assert files(out) == files(tmp_path / "whole")


def index_with(directory: Path, position: int, bit: int) -> int | None:
    """Returns the number of records with a flipped bit; None: it was refused."""
    path = directory / "small-train.index.npz"
    content = path.read_bytes()
    damaged = bytearray(content)
    damaged[position] ^= 1 << bit
    path.write_bytes(damaged)
    try:
        return len(Manifest.open(directory, "small").open_index(directory, "train"))
    finally:
        assert path.read_bytes() in (content, bytes(damaged))
        path.write_bytes(content)


def test_no_bit_of_an_index_loses_records(complete, tmp_path, capsys):
    """NumPy reads fewer rows of a table if its header says so, without an error."""
    directory = shutil.copytree(complete, tmp_path / "data")
    content = (directory / "small-train.index.npz").read_bytes()
    with np.load(directory / "small-train.index.npz") as arrays:
        rows = [len(arrays[str(shard)]) for shard in range(3)]
    for index in rows:
        header = content.index(b"'shape': (%d" % index)
        for position in range(header + 10, header + 14):
            for bit in range(8):
                assert index_with(directory, position, bit) == sum(rows)
    assert "is damaged; building it again" in capsys.readouterr().err


@pytest.mark.usefixtures("small_scale")
def test_other_shards_are_noticed(complete, tmp_path):
    """Those of another order of the same examples, with its index."""
    generate(PROBLEM, tmp_path / "other", workers=1, seed=1)
    orders = [decoded(path, "train") for path in (complete, tmp_path / "other")]
    assert orders[0] != orders[1] and sorted(orders[0]) == sorted(orders[1])
    directory = shutil.copytree(complete, tmp_path / "data")
    for path in directory.glob("small-train*"):
        path.unlink()
    for path in (tmp_path / "other").glob("small-train*"):
        shutil.copy(path, directory)
    message = "the train data of 'small' in .* are not those"
    refused(message, Manifest.open(directory, "small").open_index, directory, "train")

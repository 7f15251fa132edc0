"""Records and their index, against TensorFlow's own reading and writing."""

import dataclasses
import threading

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.data import records
from t2t_keras.data.files import write_json
from t2t_keras.data.manifest import Manifest
from t2t_keras.data.records import (
    RecordIndex,
    example,
    frame,
    shard_name,
)
from t2t_keras.option import UserError


def tf_example(**lists) -> bytes:
    features = {
        name: tf.train.Feature(int64_list=tf.train.Int64List(value=ids))
        for name, ids in lists.items()
    }
    message = tf.train.Example(features=tf.train.Features(feature=features))
    return message.SerializeToString(deterministic=True)


def random_pairs(count: int, seed: int = 0) -> list[tuple[list[int], list[int]]]:
    rng = np.random.default_rng(seed)
    return [
        tuple(
            [*rng.integers(2, 40_000, rng.integers(0, 200)).tolist(), 1] for _ in "st"
        )
        for _ in range(count)
    ]


def test_example_has_the_bytes_of_tensorflow():
    numbers = [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, 2**31]
    for source, target in [(numbers, [1]), ([1], numbers), *random_pairs(100)]:
        assert example(source, target) == tf_example(inputs=source, targets=target)


def test_frames_are_those_of_tensorflow(tmp_path):
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
                writer.write(tf_example(inputs=source, targets=target))
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
        assert payload == tf_example(inputs=source, targets=target)


def test_index_of_a_tensor2tensor_directory(t2t_dir, monkeypatch):
    check(open_train(t2t_dir), random_pairs(300))
    monkeypatch.delattr(records, "_scan")  # the second time, the saved one serves
    index = open_train(t2t_dir)
    check(index, random_pairs(300))
    assert index.read([]) == []
    assert [path.name for path in index.files] == [
        f"corpus-train-0000{i}-of-00003" for i in range(3)
    ]
    assert index.file.tolist() == [0] * 200 + [2] * 100


def test_stale_index_is_built_anew(t2t_dir):
    open_train(t2t_dir)
    first = t2t_dir / shard_name("corpus", "train", 0, 3)
    pairs = random_pairs(300)
    for changed in (pairs[1:200], pairs[199:0:-1]):  # another size; the same size
        first.write_bytes(b"".join(frame(example(*pair)) for pair in changed))
        check(open_train(t2t_dir), [*changed, *pairs[200:]])


def test_threads_read_at_the_same_time(t2t_dir):
    index, pairs = open_train(t2t_dir), random_pairs(300)
    wrong = []

    def work(seed: int) -> None:
        for i in np.random.default_rng(seed).integers(0, 300, [60, 8]):
            expected = [example(*pairs[k]) for k in i]
            if index.read(i) != expected:
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def refused(directory, split: str = "train") -> str:
    with pytest.raises(UserError) as error:
        RecordIndex.open(directory, "corpus", split)
    return str(error.value)


def test_what_is_not_there(t2t_dir):
    assert "no dev data of 'corpus'" in refused(t2t_dir, "dev")
    assert "no train data" in refused(t2t_dir / "absent")
    other = t2t_dir / shard_name("corpus", "train", 0, 1)
    other.touch()
    assert "more than once, in 1 and in 3 shards" in refused(t2t_dir)
    other.unlink()
    (t2t_dir / shard_name("corpus", "train", 1, 3)).unlink()
    assert "only 2 of the 3 train shards" in refused(t2t_dir)


def test_what_is_not_whole(t2t_dir):
    shard = t2t_dir / shard_name("corpus", "train", 2, 3)
    content = bytearray(shard.read_bytes())
    shard.write_bytes(content[:-7])
    assert f"{shard} is damaged" in refused(t2t_dir)
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    assert f"{shard} is damaged" in refused(t2t_dir)
    shard.write_bytes(frame(tf_example(targets=[5, 1])))
    assert f"{shard}: a record lacks `inputs`" in refused(t2t_dir)
    (t2t_dir / "corpus.incomplete").mkdir()
    assert "is unfinished" in refused(t2t_dir)


def test_a_shard_cut_off_while_in_use(t2t_dir):
    index = open_train(t2t_dir)
    index.read([299])
    with index.files[2].open("r+b") as file:
        file.truncate(file.seek(0, 2) // 2)
    with pytest.raises(UserError, match=f"{index.files[2]} is damaged: .* record 100"):
        index.read([299])


def test_manifest_survives_the_disk(tmp_path):
    manifest = Manifest(
        problem="corpus",
        seed=3,
        tokenizer="sentencepiece",
        vocab_size=500,
        shared_vocab=False,
        symbols=("S", "/S"),
        max_length=64,
        sources={"train": "files 1 2"},
        given_vocabularies={},
        vocab_files={"source": "a", "target": "b"},
        vocab_sizes={"source": 500, "target": 400},
        vocab_sha256={"source": "1", "target": "2"},
        examples={"train": 3},
        dropped={"train": {"empty": 1, "over_length": 0}},
        tokens={"train": {"source": 10, "target": 20}},
    )
    write_json(Manifest.path(tmp_path, "corpus"), dataclasses.asdict(manifest))
    assert Manifest.open(tmp_path, "corpus") == manifest
    with pytest.raises(UserError, match=r"other\.manifest\.json: run `t2t datagen`"):
        Manifest.open(tmp_path, "other")
    Manifest.path(tmp_path, "other").write_text('{"symbols": [], "new": 1}')
    with pytest.raises(UserError, match="another version"):
        Manifest.open(tmp_path, "other")
    outside = dataclasses.replace(manifest, vocab_files={"source": "../a"})
    write_json(Manifest.path(tmp_path, "outside"), dataclasses.asdict(outside))
    with pytest.raises(UserError, match=r"'\.\./a' is not the name of a file in its"):
        Manifest.open(tmp_path, "outside")

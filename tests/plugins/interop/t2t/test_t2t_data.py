"""A data directory that tensor2tensor made: adopted, and trained on."""

import shutil
from pathlib import Path

import pytest
import tensorflow as tf
from helpers.command_line import run_json
from helpers.reference import reference
from helpers.small_corpus import tf_example
from helpers.small_data import sentence_pairs

from t2t_keras import registry
from t2t_keras.data.record_index import RecordIndex, index_path, shard_name
from t2t_keras.errors import UserError
from t2t_keras.plugins.interop.t2t.data import adopt
from t2t_keras.plugins.interop.t2t.subword_training import train_subwords
from t2t_keras.plugins.interop.t2t.subwords import SubwordTokenizer

NAME = "translate_ende_wmt32k"
SHARDS = {"train": 3, "dev": 1}


def t2t_data(directory: Path, vocab: Path) -> None:
    """Writes records as tensor2tensor does, with TensorFlow's own writer."""
    tokenizer = SubwordTokenizer(vocab)
    ids = [tuple(map(tokenizer.encode, pair)) for pair in sentence_pairs()]
    for split, num_shards in SHARDS.items():
        for shard in range(num_shards):
            path = directory / shard_name(NAME, split, shard, num_shards)
            with tf.io.TFRecordWriter(str(path)) as writer:
                for source, target in ids[shard::num_shards]:
                    writer.write(example(source, target).SerializeToString())


def example(source: list[int], target: list[int]) -> tf.train.Example:
    return tf_example(inputs=source, targets=target)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("t2t")
    vocab = directory / f"vocab.{NAME}.32768.subwords"
    train_subwords((text for pair in sentence_pairs() for text in pair), vocab, 200)
    t2t_data(directory, vocab)
    return directory


def test_adopted(made, tmp_path, capfd):
    times = {path: path.stat().st_mtime_ns for path in made.iterdir()}
    data_dir = tmp_path / "data"
    argv = ("adopt", "--problem", "translate_ende", "--data_dir", data_dir, made / NAME)
    assert run_json(capfd, *argv)["examples"] == {"train": 320, "dev": 320}
    assert {path: path.stat().st_mtime_ns for path in made.iterdir()} == times
    for split in ("train", "dev"):
        index = index_path(data_dir, "translate_ende", split).read_bytes()
        assert len(RecordIndex.open(data_dir, "translate_ende", split)) == 320
        # It was not built again.
        assert index_path(data_dir, "translate_ende", split).read_bytes() == index


def test_names_with_wildcards(made, tmp_path):
    """The prefix, and the directories of the files and of the links."""
    directory = tmp_path / "t2t[1]"
    directory.mkdir()
    for path in made.iterdir():
        shutil.copy(path, directory / path.name.replace(NAME, "a[b]*"))
    problem = registry.problem("translate_ende")
    manifest = adopt(problem, directory / "a[b]*", tmp_path / "data\\[1]")
    assert manifest.examples == {"train": 320, "dev": 320}
    index = manifest.open_index(tmp_path / "data\\[1]", "train")
    assert index.sha256() == manifest.index_sha256["train"]


def test_the_published_vocabulary(tmp_path):
    vocab = reference("t2t/vocab.translate_ende_wmt8k.8192.subwords")
    t2t_data(tmp_path, vocab)
    problem = registry.problem("translate_ende")
    manifest = adopt(problem, tmp_path / NAME, tmp_path / "data", vocab)
    assert manifest.vocab_sizes == {"source": 8190, "target": 8190}


def refused(message: str, *args) -> None:
    with pytest.raises(UserError, match=message):
        adopt(registry.problem("translate_ende"), *args)


def test_a_vocabulary_that_has_other_pieces_is_noticed(made, tmp_path):
    """It has more pieces than the highest id, so that all ids are in it."""
    other_vocabulary = tmp_path / "vocab.other.subwords"
    pieces = SubwordTokenizer(next(made.glob("vocab.*"))).pieces
    lines = [f"'{piece}'" for piece in pieces[:2] + pieces[:1:-1] + ["aaaa_"]]
    other_vocabulary.write_text("\n".join(lines) + "\n")
    data_dir = tmp_path / "a"
    refused("of 100 records have other ids", made / NAME, data_dir, other_vocabulary)
    assert not data_dir.exists()


def test_packed_data_are_refused(made, tmp_path):
    packed = example([5, 1, 6, 1], [7, 1, 8, 1])
    for name in ("inputs_segmentation", "inputs_position"):
        packed.features.feature[name].int64_list.value.extend([1, 1, 2, 2])
    with tf.io.TFRecordWriter(str(tmp_path / "p-train-00000-of-00001")) as writer:
        writer.write(packed.SerializeToString())
    vocab = next(made.glob("vocab.*"))
    refused("are of a packed problem", tmp_path / "p", tmp_path / "a", vocab)
    assert not (tmp_path / "a").exists()


def test_mistakes(made, tmp_path):
    small = tmp_path / "vocab.small.subwords"
    train_subwords(["ab"], small, 10)
    refused("there is no train data of 'absent'", made / "absent", tmp_path / "a")
    with tf.io.TFRecordWriter(str(tmp_path / "big-train-00000-of-00001")) as writer:
        writer.write(example([5, 1], [999, 1]).SerializeToString())
    refused("the id 999, .* 25 tokens; give", tmp_path / "big", tmp_path / "a", small)
    adopt(registry.problem("translate_ende"), made / NAME, tmp_path / "a")
    refused("has data of 'translate_ende' already", made / NAME, tmp_path / "a")


def test_adopted_in_the_same_directory(made, tmp_path):
    copy = tmp_path / "t2t"
    shutil.copytree(made, copy)
    initial_names = {path.name for path in copy.iterdir()}
    adopt(registry.problem("translate_ende"), copy / NAME, copy)
    assert initial_names < {path.name for path in copy.iterdir()}
    other_dir = tmp_path / "other"
    shutil.copytree(made, other_dir)
    (shard,) = other_dir.glob("*-dev-*")
    shard.write_bytes(b"no record")
    initial_names = {path.name for path in other_dir.iterdir()}
    refused("the checksum of record 1", other_dir / NAME, other_dir)
    assert initial_names == {path.name for path in other_dir.iterdir()}

"""Damaged files of a data directory: one sentence, or mended, but never a traceback."""

import shutil

import numpy as np
import pytest
from command_line import run
from small_run import HPARAMS

from t2t_keras import registry
from t2t_keras.data.manifest import Manifest
from t2t_keras.data.records import RecordIndex
from t2t_keras.decoding.translator import Translator
from t2t_keras.evaluation.evaluator import Evaluator
from t2t_keras.model.transformer import Transformer
from t2t_keras.option import UserError
from t2t_keras.problem import Problem
from t2t_keras.training.run_dir import RunDirectory
from t2t_keras.training.runs import config_for

NAME = "translate_text"
TRAIN = f"{NAME}-train-00000-of-00001"
MANIFEST = f"{NAME}.manifest.json"


@pytest.fixture
def directory(data_dir, tmp_path):
    return shutil.copytree(data_dir, tmp_path / "data")


def open_train(directory) -> RecordIndex:
    return RecordIndex.open(directory, NAME, "train")


def flip(directory, record: int, byte: int, shard: str = TRAIN) -> int:
    """Flips a bit of a record, numbered from 0; returns where the record begins."""
    split = shard.split("-")[1]
    offset = int(RecordIndex.open(directory, NAME, split).offset[record])
    with (directory / shard).open("r+b") as file:
        file.seek(offset + byte)
        old = file.read(1)[0]
        file.seek(offset + byte)
        file.write(bytes([old ^ 4]))
    return offset


def places(directory, record: int) -> dict[str, int]:
    """A byte of each of the four parts of a record."""
    size = int(open_train(directory).size[record])
    payload, checksum = 12, 12 + size
    return {
        "length": 1,
        "its checksum": 9,
        "payload": payload + size // 2,
        "checksum": checksum,
    }


@pytest.mark.parametrize("part", ["length", "its checksum", "payload", "checksum"])
@pytest.mark.parametrize("record", [160, 319])  # in the middle; at the end
def test_a_flipped_bit_is_noticed(directory, part, record):
    index = open_train(directory)
    others = np.delete(np.arange(len(index)), record)
    expected = index.read(others)
    offset = flip(directory, record, places(directory, record)[part])
    assert index.read(others) == expected
    sentence = (
        f"{TRAIN} is damaged: the checksum of record {record + 1} (at byte "
        f"{offset:,}) is wrong"
    )
    with pytest.raises(UserError) as error:
        index.read([record])
    assert sentence in str(error.value)
    # Whoever builds the index anew sees it as well.
    (directory / f"{NAME}-train.index.npz").unlink()
    with pytest.raises(UserError) as error:
        open_train(directory)
    assert sentence in str(error.value)


def damage_the_middle(directory) -> None:
    """Flips a bit of every record but those by which an index knows its shard."""
    index = open_train(directory)
    content = bytearray((directory / TRAIN).read_bytes())
    middle = (index.offset > 4096) & (index.offset + 200 < len(content) - 4096)
    assert middle.mean() > 0.5
    for place in index.offset[middle] + 30:
        content[place] ^= 4
    (directory / TRAIN).write_bytes(content)


def test_the_program_ends_in_one_sentence(directory, tmp_path, capfd):
    damage_the_middle(directory)
    argv = ["train", "--problem", NAME, "--hparams_set", "tiny", "--data_dir"]
    argv += [directory, "--output_dir", tmp_path / "run", "--hparams"]
    assert run(*argv, "num_layers=1,d_model=16,d_ff=16,num_heads=2") == 2
    err = capfd.readouterr().err
    assert "Traceback" not in err and "function_node" not in err
    last = err.strip().splitlines()[-1]
    assert last.startswith(f"t2t train: error: {directory / TRAIN} is damaged: ")
    assert "checksum of record" in last


def test_evaluation_ends_in_one_sentence(directory):
    dev = f"{NAME}-dev-00000-of-00001"
    index = RecordIndex.open(directory, NAME, "dev")
    translator = Translator(Problem(summary=""), Transformer(HPARAMS, 400), None, None)
    evaluator = Evaluator(translator, index)
    flip(directory, 160, 30, dev)
    with pytest.raises(UserError, match=f"{dev} is damaged: .* record 161 "):
        evaluator.loss()


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
        with pytest.raises(
            UserError, match=f"{path} is not the vocabulary of this run"
        ):
            use(RunDirectory(opened.path))


DAMAGE = {
    "empty": lambda content: b"",
    "truncated": lambda content: content[: len(content) // 2],
    "junk": lambda content: b"\x93junk\xff" * 100,
    "an array": lambda content: b"\x93NUMPY\x01\x00" + content[8:],
    "zeros": lambda content: bytes(len(content)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_an_index_is_built_anew(directory, damage, capsys):
    path = directory / f"{NAME}-train.index.npz"
    content = path.read_bytes()
    path.write_bytes(DAMAGE[damage](content))
    assert len(open_train(directory)) == 320
    assert f"{path} is damaged; building it again" in capsys.readouterr().err
    assert path.read_bytes() == content
    open_train(directory)
    assert not capsys.readouterr().err


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_manifest(directory, tmp_path, damage, capfd):
    path = directory / MANIFEST
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    with pytest.raises(UserError, match=f"{path} is damaged: it is not valid JSON"):
        Manifest.open(directory, NAME)
    for verb in ("datagen", "train"):
        flags = ["--hparams_set", "tiny", "--output_dir", tmp_path / "run"]
        argv = [verb, "--problem", NAME, "--data_dir", directory]
        assert run(*argv, *(flags if verb == "train" else [])) == 2
        err = capfd.readouterr().err
        assert f"{path} is damaged" in err.splitlines()[-1] and "Traceback" not in err


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_vocabulary(directory, tmp_path, damage, capfd):
    (path,) = directory.glob("vocab.*")
    content = DAMAGE[damage](path.read_bytes())
    path.write_bytes(content)
    argv = ["train", "--problem", NAME, "--hparams_set", "tiny"]
    argv += ["--data_dir", directory, "--output_dir", tmp_path / "run"]
    assert run(*argv) == 2
    assert f"{path} is not the vocabulary" in capfd.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "run").exists()
    # Given before the data are made.
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / path.name).write_bytes(content)
    argv = ["datagen", "--problem", NAME, "--data_dir", empty, "--workers", "2"]
    argv += ["--train_source", directory / "source.txt"]
    assert run(*argv, "--train_target", directory / "target.txt") == 2
    err = capfd.readouterr().err
    assert "Traceback" not in err
    last = err.splitlines()[-1]
    assert f"{empty / path.name} is not a SentencePiece model" in last


def test_a_state_file_of_datagen(directory, tmp_path):
    from small_corpus import PROBLEM, faults, files, interrupt

    from t2t_keras.data.datagen import generate

    out = tmp_path / "out"
    with faults(12, interrupt), pytest.raises(KeyboardInterrupt):
        generate(PROBLEM, out, workers=1)
    work = out / "small.incomplete"
    (work / "corpora.json").write_text('{"train": 2')
    message = f"{work / 'corpora.json'} is damaged: .* or remove it and run the same"
    with pytest.raises(UserError, match=message):
        generate(PROBLEM, out, workers=1)
    (work / "corpora.json").unlink()
    generate(PROBLEM, out, workers=1)
    generate(PROBLEM, tmp_path / "whole", workers=1)
    assert files(out) == files(tmp_path / "whole")

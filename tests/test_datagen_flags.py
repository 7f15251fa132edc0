"""`t2t datagen` from the command line: shares of the work, rules, mistakes."""

import json
import random

import pytest

from t2t_keras.cli import main
from t2t_keras.text.sentence_piece import SentencePieceTokenizer

LINES = [" ".join(random.Random(i).choices("abcdefgh", k=7)) for i in range(60)]


@pytest.fixture
def argv(tmp_path):
    for name, lines in (("source", LINES), ("target", LINES[::-1])):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    return [
        *("datagen", "--problem", "translate_text", "--workers", "1", "--json"),
        *("--data_dir", str(tmp_path / "data"), "--vocab_size", "300"),
        *("--train_source", str(tmp_path / "source")),
        *("--train_target", str(tmp_path / "target")),
    ]


def test_two_tasks(argv, capfd):
    assert main([*argv, "--task", "2/2"]) == 0
    first = json.loads(capfd.readouterr().out)
    assert first == {"task": "2/2", "finished": False, "seconds": first["seconds"]}
    assert main([arg for arg in argv if arg != "--json"] + ["--task", "2/2"]) == 0
    assert "part 2/2 is done, others are not yet" in capfd.readouterr().out
    assert main([*argv, "--task", "1/2"]) == 0
    last = json.loads(capfd.readouterr().out)
    assert last["finished"] and last["examples"] == {"train": 60}


def test_given_vocabularies(argv, capfd, tmp_path):
    sizes = {}
    for name, size in (("one", 275), ("two", 270)):
        SentencePieceTokenizer.train(LINES, tmp_path / f"{name}.spm", size)
        tokenizer = SentencePieceTokenizer(tmp_path / f"{name}.spm")
        sizes[str(tmp_path / f"{name}.spm")] = tokenizer.vocab_size
    argv = [a for a in argv if a not in ("--vocab_size", "300")]
    one, two = sizes
    assert main([*argv, "--vocab", one]) == 0
    result = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert result["vocab_sizes"] == {"source": sizes[one], "target": sizes[one]}
    # Again it is there already; another vocabulary of that size would replace it.
    assert main([*argv, "--vocab", one]) == 0
    (given,) = (tmp_path / "data").glob("vocab.*")
    assert given.read_bytes() == (tmp_path / "one.spm").read_bytes()
    argv[argv.index("--data_dir") + 1] = str(tmp_path / "both")
    assert main([*argv, "--vocab", one, two]) == 0
    result = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert list(result["vocab_sizes"].values()) == [sizes[one], sizes[two]]
    (tmp_path / "both" / f"vocab.translate_text.source.{sizes[one]}.spm").write_text("")
    capfd.readouterr()
    assert main([*argv, "--vocab", one, two]) == 2
    assert "is another vocabulary; give a new --data_dir" in capfd.readouterr().err
    assert main([*argv, "--vocab", str(tmp_path)]) == 2
    assert "no config.json" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--task", "3/2"], "--task 3/2: of 2 parts the first is 1/2"),
        (["--clean", "tidy"], "--clean: there is no rule 'tidy'"),
        (["--vocab", "x"], "--vocab_size has no effect with --vocab"),
        (["--vocab", "a", "b", "c"], "--vocab takes at most 2, not 3 files"),
    ],
)
def test_mistakes(argv, capfd, flags, message):
    assert main([*argv, *flags]) == 2
    out, err = capfd.readouterr()
    assert not out and message in err.strip().splitlines()[-1]

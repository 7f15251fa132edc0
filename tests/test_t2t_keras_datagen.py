"""`t2t_keras.datagen`: what `t2t datagen` does, in Python."""

from helpers.command_line import run, write
from helpers.errors import refused

import t2t_keras

PAIRS = [(f"it sees {i} dogs", f"es sieht {i} Hunde") for i in range(60)]


def test_it_makes_the_data_of_the_command(tmp_path):
    sources, targets = zip(*PAIRS, strict=True)
    files = write(tmp_path / "a", *sources), write(tmp_path / "b", *targets)
    words = ["datagen", "--problem", "translate_text", "--data_dir", tmp_path / "x"]
    words += ["--train_source", files[0], "--train_target", files[1], "--workers", 1]
    assert run(*words) == 0
    data = tmp_path / "y"
    source, target = files
    manifest = t2t_keras.datagen(
        "translate_text", data, train_source=source, train_target=target, workers=1
    )
    assert manifest.examples == {"train": 60}
    for path in (tmp_path / "x").iterdir():
        if path.suffix != ".lock":
            assert (data / path.name).read_bytes() == path.read_bytes(), path.name


def test_mistakes(tmp_path):
    refused("there is no 'x'", t2t_keras.datagen, "x", tmp_path)
    files = {"train_source": tmp_path / "a", "train_target": tmp_path / "b"}
    refused("cannot read", t2t_keras.datagen, "translate_text", tmp_path / "d", **files)

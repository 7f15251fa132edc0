"""Positional arguments, and help that fits on a screen."""

import re

import pytest
from helpers.command_line import run

from t2t_keras.cli import program

COMMANDS = sorted(program.commands())


def parsed(*words: str) -> dict:
    return vars(program.parse(words)[1])


SAME_LINES = [
    ("translate run file --beam_size 3", "translate --beam_size 3 run file"),
    ("translate run file --n_best 2", "translate run --n_best 2 file"),
    ("translate run file", "translate --output_dir run --input file"),
    ("translate run --ensemble a b", "translate --model run --ensemble a b"),
    ("translate saved file", "translate --export_dir saved --input file"),
    ("translate ct2 file", "translate --export_dir ct2 --input file"),
    ("translate file --output_dir run", "translate run file"),
    ("translate --model=run file", "translate run file"),
    ("score run a b", "score --output_dir run --source a --target b"),
    ("score run a --target b", "score --model run --input a --target b"),
    ("export run new --overwrite", "export --overwrite run new"),
    ("export run new", "export --output_dir run --export_dir new"),
    ("evaluate run --split dev", "evaluate --split=dev --output_dir=run"),
    ("describe big --gpus 1", "describe --gpus 1 --hparams_set big"),
    ("serve a=x b=y", "serve --model a=x --model b=y"),
    ("serve a=x --port 0 b=y", "serve a=x b=y --port 0"),
    ("compare a b --page p", "compare a --page p b"),
]


@pytest.mark.parametrize(("line", "same_line"), SAME_LINES)
def test_places_and_flags_say_the_same(line, same_line, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "saved_model.pb").touch()
    (tmp_path / "ct2").mkdir()
    for name in ("model.bin", "config.json"):  # CTranslate2's, and not a run's
        (tmp_path / "ct2" / name).touch()
    values = parsed(*line.split())
    same_values = parsed(*same_line.split())
    del values["argv"], same_values["argv"]
    assert values == same_values


def test_words_after_launch_belong_to_its_command():
    args = parsed("launch", "--processes", "2", "train", "--problem", "p", "x")
    assert args["train_command"] == ["train", "--problem", "p", "x"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_at_most_40_lines_and_help_all_every_flag(command, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert run(command, "--help") == 0
    brief = capfd.readouterr().out
    assert len(brief.splitlines()) <= 40
    assert run(command, "--help-all") == 0
    full = capfd.readouterr().out
    assert max(map(len, full.splitlines())) <= 80
    parser = program.command_parser(command, program.commands()[command])
    for flag in parser._option_string_actions:
        assert flag in full or flag in ("--output_dir", "--export_dir", "--source")
    left_out = re.search(r"has (\d+) further options", brief)
    shown = [text.count("\n  --") + text.count("\n    ") for text in (brief, full)]
    assert bool(left_out) == (shown[1] > shown[0])


def test_each_command_is_in_one_of_three_groups(capfd):
    assert run("--help") == 0
    text = capfd.readouterr().out
    groups = re.findall(r"^([a-z ]+):\n((?:  .*\n)+)", text, re.MULTILINE)
    titles = ["options", *program.GROUPS, "the workflow"]
    assert [title for title, _ in groups] == titles
    listed = re.findall(r"^  (\w+) ", "".join(rows for _, rows in groups[1:4]), re.M)
    assert sorted(listed) == COMMANDS

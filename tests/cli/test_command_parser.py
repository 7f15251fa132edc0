"""Positional arguments, and help that fits on a screen."""

import re

import pytest
from helpers.command_line import parsed, run

from t2t_keras.cli import program

COMMANDS = sorted(program.commands())


SAME_LINES = [
    ("translate run file --beam_size 3", "translate --beam_size 3 run file"),
    ("translate run file --n_best 2", "translate run --n_best 2 file"),
    ("translate run file", "translate --output_dir run --input file"),
    ("translate run --ensemble a b", "translate --model run --ensemble a b"),
    ("translate file --output_dir run", "translate run file"),
    ("translate --model=run file", "translate run file"),
    ("translate run --beam_size 3", "translate run --decode_hparams beam_size=3"),
    ("score run a b", "score --output_dir run --source a --target b"),
    ("score run a --target b", "score --model run --input a --target b"),
    ("export run new --overwrite", "export --overwrite run new"),
    ("export run new", "export --output_dir run --export_dir new"),
    ("evaluate run --split dev", "evaluate --split=dev --output_dir=run"),
    ("describe big --gpus 1", "describe --gpus 1 --hparams_set big"),
    ("serve a=x b=y", "serve --model a=x --model b=y"),
    ("serve a=x --port 0 b=y", "serve a=x b=y --port 0"),
    ("compare a b --page p", "compare a --page p b"),
    ("compare a b --metric x y", "compare a b --metric x --metric y"),
    ("average run --last 2 --last 3", "average run --last 3"),
]


@pytest.mark.parametrize(("line", "same_line"), SAME_LINES)
def test_places_and_flags_say_the_same(line, same_line):
    assert parsed(*line.split()) == parsed(*same_line.split())


def test_words_after_launch_belong_to_its_command():
    args = parsed("launch", "--processes", "2", "train", "--problem", "p", "x")
    assert args["train_command"] == ("train", "--problem", "p", "x")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_at_most_40_lines_and_help_all_every_flag(command, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert run(command, "--help") == 0
    brief = capfd.readouterr().out
    assert len(brief.splitlines()) <= 40
    assert run(command, "--help-all") == 0
    full = capfd.readouterr().out
    assert max(map(len, full.splitlines())) <= 80
    line = program.command_line(command, program.commands()[command])
    for flag in line.flags.values():
        shown = flag.metavar if flag.is_positional else flag.names[0]
        assert re.search(rf"^  (-h, )?{re.escape(shown)}(  | )", full, re.MULTILINE)
    left_out = re.search(r"has (\d+) further options", brief)
    shown_flags = [text.count("\n  --") for text in (brief, full)]
    assert shown_flags[1] - shown_flags[0] == int(left_out[1] if left_out else 0)


def test_each_command_is_in_one_of_three_groups(capfd):
    assert run("--help") == 0
    text = capfd.readouterr().out
    groups = re.findall(r"^([a-z ]+):\n((?:  .*\n)+)", text, re.MULTILINE)
    titles = ["options", *program.HEADINGS, "the workflow"]
    assert [title for title, _ in groups] == titles
    listed = re.findall(r"^  (\w+) ", "".join(rows for _, rows in groups[1:4]), re.M)
    assert sorted(listed) == COMMANDS

"""`t2t list` and a user's files of hparam sets."""

import io
import sys

import pytest
from helpers.command_line import run, run_json, write

from t2t_keras.cli import program

FILE = '''"""Sets for my corpus."""
import t2t_keras

@t2t_keras.register_hparams
def {name}():
    """A {name} set."""
    return t2t_keras.registry.hparams("tiny").override(dropout=0.5)
'''


@pytest.fixture
def usr_dir(tmp_path, registrations):
    """A folder whose definitions are registered for one test only."""
    return tmp_path


def test_a_set_precedes_the_file_that_has_its_name(usr_dir, capfd):
    write(usr_dir / "slow_dropout.py", FILE.format(name="slow_dropout"))
    listed = run_json(capfd, "list", "slow_dropout", "--usr_dir", usr_dir)
    assert listed.keys() == {"fields"}
    assert listed["fields"]["dropout"]["value"] == 0.5


def test_a_user_file_named_like_ours_is_a_family_beside_it(usr_dir, capfd):
    ours = run_json(capfd, "list", "paper")["family"]
    write(usr_dir / "paper.py", FILE.format(name="slow_dropout"))
    merged = run_json(capfd, "list", "paper", "--usr_dir", usr_dir)["family"]
    assert merged == ours | {"slow_dropout": "A slow_dropout set."}
    assert run("list", "--usr_dir", usr_dir) == 0
    sections = capfd.readouterr().out.split("\n\n")
    title = sections.index("Sets for my corpus")
    assert sections[title + 1].split() == ["slow_dropout", "A", "slow_dropout", "set."]


def test_a_large_family_is_one_line_unless_all_is_given(capfd):
    sets = run_json(capfd, "list", "table3")["family"]
    assert run("list") == 0
    abridged = capfd.readouterr().out
    assert f"table3    {len(sets)} sets: " in abridged
    assert run("list", "--all") == 0
    complete = capfd.readouterr().out
    for name in sets:
        assert f"\n{name} " not in abridged and f"\n{name} " in complete


@pytest.mark.parametrize(
    "words", [(), ("--all",), ("small_data",), ("small_data_range",)]
)
def test_every_list_fits_into_80_columns_of_a_terminal(words, monkeypatch):
    stdout = io.StringIO()
    stdout.isatty = lambda: True
    monkeypatch.setattr(sys, "stdout", stdout)
    monkeypatch.setenv("COLUMNS", "80")
    command = program.parse(["list", *words])
    print(command.show(command.run()))
    assert max(map(len, stdout.getvalue().splitlines())) <= 80

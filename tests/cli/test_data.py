"""`t2t datagen` names the next command."""

from types import SimpleNamespace

import pytest
from helpers.command_line import run, write

from t2t_keras import registry
from t2t_keras.cli import program
from t2t_keras.data.datagen import generate
from t2t_keras.data.manifest import Manifest
from t2t_keras.data.sources import ParallelFiles
from t2t_keras.run.config import config_for


def next_command(monkeypatch, pairs, tokens, problem="translate_text", *flags):
    """The command for data of so many pairs with so many tokens each."""
    manifest = SimpleNamespace(
        examples={"train": pairs}, tokens={"train": {"target": pairs * tokens}}
    )
    monkeypatch.setattr(Manifest, "load", lambda path: manifest)
    words = ["datagen", "--problem", problem, "--data_dir", "data", *flags]
    return program.parse(words).next_command()


@pytest.mark.parametrize(
    ("limit", "shown", "name", "next_name"),
    [
        (150_000, "150,000", "small_data", "pairs_300k"),
        (500_000, "0.5 million", "pairs_300k", "pairs_1m"),
        (1_500_000, "1.5 million", "pairs_1m", "pairs_3m"),
        (4_000_000, "4 million", "pairs_3m", "base"),
    ],
)
def test_the_next_command_has_the_set_for_the_number_of_pairs(
    limit, shown, name, next_name, monkeypatch
):
    assert f"to {shown} pairs:" in registry.list_hparams()[name]
    for pairs, expected in ((limit, name), (limit + 1, next_name)):
        command = next_command(monkeypatch, pairs, 25)
        assert f"--hparams_set {expected} " in command


def test_only_few_short_pairs_get_the_set_of_the_toy_problem(monkeypatch):
    for pairs, tokens, name in (
        (10_000, 13, "tiny"),
        (10_000, 18, "small_data"),
        (10_001, 13, "small_data"),
    ):
        command = next_command(monkeypatch, pairs, tokens)
        assert f"--hparams_set {name} " in command


def test_the_next_command_has_the_set_of_the_problem(monkeypatch):
    for problem, name in (
        ("parsing_wsj", "parsing"),
        ("parsing_wsj_words", "parsing_next_word"),
        ("parsing_toy", "tiny"),
    ):
        command = next_command(monkeypatch, 40_000, 40, problem)
        assert f"--hparams_set {name} " in command


def test_other_tasks_and_absent_data_have_no_set(monkeypatch):
    with monkeypatch.context() as patch:  # the plugin with its set is absent
        patch.setattr(registry, "list_hparams", dict)
        command = next_command(monkeypatch, 40_000, 40, "parsing_wsj_words")
    assert "--hparams_set SET " in command
    monkeypatch.undo()
    words = ["datagen", "--problem", "translate_text", "--data_dir", "absent"]
    assert "--hparams_set SET " in program.parse(words).next_command()


def test_the_next_command_has_the_folder_of_the_users_code(monkeypatch):
    command = next_command(
        monkeypatch, 29_000, 18, "translate_text", "--usr_dir", "my code"
    )
    assert "--usr_dir 'my code'" in command


def test_data_without_dev_say_so(tmp_path, capfd):
    texts = [f"{n} {n % 7}{n % 11} birds" for n in range(60)]
    files = [write(tmp_path / f"train.{side}", *texts) for side in ("en", "de")]
    words = ["datagen", "--problem", "translate_text", "--workers", "1"]
    words += ["--train_source", files[0], "--train_target", files[1]]
    words += ["--vocab_size", "300"]
    for size, says_so in (([], True), (["--dev_size", "5"], False)):
        capfd.readouterr()
        assert run(*words, *size, "--data_dir", tmp_path / str(says_so)) == 0
        shown = capfd.readouterr().err
        assert ("there are no dev data" in shown) == says_so


def test_data_of_a_reversed_problem_have_the_languages_of_their_direction(tmp_path):
    texts = [f"{n} {n % 7}{n % 11} birds" for n in range(60)]
    files = [str(write(tmp_path / f"train.{side}", *texts)) for side in ("en", "de")]
    sources = {"train": ParallelFiles(*files)}
    problem = registry.problem("translate_text").replace(
        languages=("en", "de"), vocab_size=300, sources=sources
    )
    for _ in range(2):  # the second time it adds to the manifest
        manifest = generate(problem.reversed(), tmp_path / "data", workers=1)
        assert tuple(manifest.languages) == ("en", "de")
    config = config_for(problem.reversed(), "tiny", tmp_path / "data", 0)
    assert config.languages == ["de", "en"]

"""The command line on a problem of trees: from words to bracketed trees."""

import itertools

import pytest
from command_line import run, run_json, write

from t2t_keras import registry
from t2t_keras.problems.parsing.linearise import restore_text
from t2t_keras.problems.parsing.tree import parse_tree

pytestmark = pytest.mark.slow

LINES = ("The dog barks .", "", "  A cat\t(it sleeps ) .")
WORDS = (
    ["The", "dog", "barks", "."],
    [],
    ["A", "cat", "-LRB-it", "sleeps", "-RRB-", "."],
)


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """A run that has hardly learned anything."""
    folder = tmp_path_factory.mktemp("trees")
    pairs = itertools.islice(registry.problem("parsing_toy").source("train")(), 60)
    trees = write(folder / "trees", *(restore_text(*pair) for pair in pairs))
    files = [w for s in ("train", "dev", "test") for w in (f"--{s}_trees", trees)]
    problem = ("--problem", "parsing_toy", "--data_dir", folder / "data")
    assert run("datagen", *problem, *files, "--vocab_size", 430, "--workers", 1) == 0
    hparams = "num_layers=1,d_model=16,d_ff=32,num_heads=2,batch_tokens=512"
    train = ("train", *problem, "--hparams_set", "tiny", "--hparams", hparams)
    steps = ("--train_steps", 1, "--eval_sentences", 2)
    assert run(*train, *steps, "--output_dir", folder / "run") == 0
    return folder / "run"


def test_translate(run_dir, capfd, tmp_path):
    argv = (
        "translate",
        "--output_dir",
        run_dir,
        "--input",
        write(tmp_path / "a", *LINES),
    )
    output = tmp_path / "b"
    result = run_json(capfd, *argv, "--output", output)
    assert (result["sentences"], result["repaired"]) == (3, 0.0)
    trees = output.read_text().split("\n")[:-1]
    assert [parse_tree(t).words() if t else [] for t in trees] == list(WORDS)

    free = ("--decode_hparams", "constraint=none")
    result = run_json(capfd, *argv, "--output", output, *free)
    assert result["repaired"] == pytest.approx(2 / 3)
    trees = output.read_text().split("\n")[:-1]
    assert [parse_tree(t).words() if t else [] for t in trees] == list(WORDS)

    assert run(*argv, "--output", output, "--n_best", 2, *free) == 0
    assert "66.7% of the outputs were malformed" in capfd.readouterr().err
    rows = [line.split("\t") for line in output.read_text().splitlines()]
    assert [row[:2] for row in rows if row[3]] == [
        ["1", "1"],
        ["1", "2"],
        ["3", "1"],
        ["3", "2"],
    ]
    assert float(rows[0][2]) >= float(rows[1][2])

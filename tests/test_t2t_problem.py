"""A usr_dir written for tensor2tensor, with its imports changed."""

import json

import pytest
from command_line import run, run_json

from t2t_keras.option import UserError
from t2t_keras.plugins.interop import t2t_problem

MODULE = '''
from t2t_keras.plugins.interop import t2t_problem as problem
from t2t_keras.plugins.interop import t2t_problem as text_problems
from t2t_keras.plugins.interop import t2t_problem as registry


@registry.register_problem
class CountingLines(text_problems.Text2TextProblem):
    """Numbers, and the next ones."""

    @property
    def approx_vocab_size(self):
        return 60

    @property
    def is_generate_per_split(self):
        return False

    @property
    def dataset_splits(self):
        return [{
            "split": problem.DatasetSplit.TRAIN,
            "shards": 3,
        }, {
            "split": problem.DatasetSplit.EVAL,
            "shards": 1,
        }]

    def generate_samples(self, data_dir, tmp_dir, dataset_split):
        del data_dir, tmp_dir
        assert dataset_split == problem.DatasetSplit.TRAIN
        for i in range(40):
            yield {"inputs": "from %d on" % i, "targets": "%d %d" % (i + 1, i + 2)}
'''


def test_from_samples_to_a_translation(tmp_path, capfd):
    (tmp_path / "usr").mkdir()
    (tmp_path / "usr" / "counting_lines.py").write_text(MODULE)
    data_dir, output_dir = tmp_path / "data", tmp_path / "run"
    problem = ("--usr_dir", tmp_path / "usr", "--problem", "counting_lines")
    result = run_json(capfd, "datagen", *problem, "--data_dir", data_dir)
    assert result["examples"] == {"train": 30, "dev": 10}
    sources = (data_dir / "counting_lines-dev.sources").read_text().splitlines()
    assert sources == [f"from {i} on" for i in range(3, 40, 4)]
    flags = ("--data_dir", data_dir, "--output_dir", output_dir, "--train_steps", 1)
    tiny = ("--hparams_set", "transformer_tiny", "--hparams")
    tiny += ("num_hidden_layers=1,hidden_size=8,filter_size=8,num_heads=2",)
    assert run("train", *problem, *flags, *tiny, "--eval_sentences", 2) == 0
    hparams = json.loads((output_dir / "hparams.json").read_text())
    assert (hparams["d_model"], hparams["d_ff"]) == (8, 8)
    (tmp_path / "input").write_text("from 7 on\n")
    capfd.readouterr()
    translate = ("translate", "--output_dir", output_dir, "--input", tmp_path / "input")
    assert run(*translate) == 0
    assert capfd.readouterr().out.count("\n") == 1


def test_samples_of_each_split_and_other_vocabularies():
    class Each(t2t_problem.Text2TextProblem):
        """One sample for each split."""

        def generate_samples(self, data_dir, tmp_dir, dataset_split):
            yield {"inputs": dataset_split, "targets": tmp_dir}

    problem = Each().to_problem()
    assert problem.summary == "One sample for each split."
    assert (problem.tokenizer, problem.vocab_size) == ("t2t_subword", 32768)
    assert [next(problem.pairs(split))[0] for split in ("train", "dev")] == [
        "train",
        "eval",
    ]

    class OfCharacters(Each):
        vocab_type = t2t_problem.VocabType.CHARACTER

    with pytest.raises(UserError, match="vocabulary of subwords; leave it out"):
        OfCharacters().to_problem()

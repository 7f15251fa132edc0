"""The whole program on a task that can be learnt: every way out gives the same."""

import json

import pytest
from helpers.command_line import python
from helpers.small_data import sentence_pairs, small_data

import t2t_keras
from t2t_keras.cli import main, translation

HPARAMS = (
    "num_layers=1,d_model=64,d_ff=128,num_heads=4,dropout=0.05,"
    "batch_tokens=512,warmup_steps=100,learning_rate=0.3"
)
SERVE = """
import sys
import tensorflow as tf
import tensorflow_text
model = tf.saved_model.load(sys.argv[1])
lines = sys.stdin.read().split("\\n")[:-1]
outputs = model.signatures["serving_default"](texts=tf.constant(lines))
print("\\n".join(texts[0].decode() for texts in outputs["texts"].numpy()))
assert "t2t_keras" not in sys.modules
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A trained run directory, and what `t2t train` printed."""
    directory = tmp_path_factory.mktemp("system")
    small_data(directory / "data")
    flags = {
        **{"problem": "translate_text", "hparams_set": "tiny", "hparams": HPARAMS},
        **{"data_dir": directory / "data", "output_dir": directory / "run"},
        **{"train_steps": 250, "save_every": 50, "log_every": 50},
        **{"eval_every": 125, "eval_sentences": 40},
    }
    command("train", **flags)
    return directory / "run"


def command(command: str, **flags) -> int:
    arguments = [str(part) for k, v in flags.items() for part in (f"--{k}", v)]
    assert main([command, *arguments, "--json"]) == 0


def printed(capsys) -> dict:
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_the_task_is_learnt(run):
    records = [json.loads(line) for line in (run / "metrics.jsonl").open()]
    dev = [record for record in records if record["kind"] == "dev"]
    assert [record["step"] for record in dev] == [125, 250]
    assert dev[-1]["accuracy"] > 0.99
    assert dev[-1]["bleu"] > 97
    train = [record for record in records if record["kind"] == "train"]
    assert [record["step"] for record in train] == list(range(50, 251, 50))
    assert train[-1]["loss"] < train[0]["loss"] / 2
    assert 0 <= train[-1]["waiting_for_data_share"] < 1
    assert 0 <= train[-1]["padding_share"] < 0.2


def test_every_way_out_translates_the_same(run, tmp_path, capsys, monkeypatch):
    pairs = sentence_pairs()[::13]
    sources, references = map(list, zip(*pairs, strict=True))
    command("average", output_dir=run, last=3)
    assert printed(capsys)["checkpoint"].endswith("average.ckpt-250")

    translators = []

    def load(*arguments):
        translators.append(t2t_keras.load(*arguments))
        return translators[0]

    monkeypatch.setattr(translation, "load", load)
    (tmp_path / "in").write_text("".join(f"{text}\n" for text in sources))
    command("translate", output_dir=run, input=tmp_path / "in", output=tmp_path / "out")
    assert printed(capsys)["sentences"] == len(sources)
    outputs = (tmp_path / "out").read_text().split("\n")[:-1]
    num_correct = sum(map(str.__eq__, outputs, references))
    assert num_correct >= 0.95 * len(pairs)  # of the average
    (translator,) = translators  # whose graph is traced
    assert translator.translate(sources) == outputs

    command("export", output_dir=run, export_dir=tmp_path / "export")
    assert printed(capsys)["bytes"] > 0
    assert t2t_keras.load(tmp_path / "export").translate(sources) == outputs


@pytest.mark.slow
def test_an_export_is_served_without_the_package(run, tmp_path):
    command("export", output_dir=run, export_dir=tmp_path / "export")
    sources = [source for source, _ in sentence_pairs()[::7]]
    printed = python(SERVE, tmp_path / "export", input="\n".join([*sources, ""]))
    assert printed.split("\n")[:-1] == t2t_keras.load(run).translate(sources)

"""The commands as functions: each once on a tiny run, and the names in its errors."""

import inspect
import json
import pickle
import pydoc
import shutil
import subprocess
import sys

import numpy as np
import pytest
from helpers.command_line import python, run_json, write
from helpers.errors import refused
from helpers.small_data import write_pairs
from helpers.small_run import HPARAMS, replace_search, replace_updates

import t2t_keras
from t2t_keras.api.calling import Table, argument_names
from t2t_keras.api.functions import train as train_function
from t2t_keras.api.run import Run
from t2t_keras.cli.training import Train
from t2t_keras.console import say
from t2t_keras.decoding.engine import Hypothesis, Score
from t2t_keras.decoding.translator import Translator
from t2t_keras.errors import UserError
from t2t_keras.training.settings import TrainOptions

FUNCTIONS = (
    *("average", "compare", "datagen", "evaluate", "export", "import_model"),
    *("inspect", "load", "train"),
)
QUICK = {"eval_sentences": 3, "beam_size": 1, "engine": "tensorflow"}
FEW = {"bootstrap_samples": 5, "randomization_trials": 5}


@pytest.fixture
def run(trained_run, monkeypatch):
    """A run that "translates" each sentence into itself."""
    replace_search(monkeypatch)
    return t2t_keras.load(trained_run)


def is_short(value: object) -> bool:
    lines = repr(value).splitlines()
    return len(lines) <= 30 and all(len(line) < 250 for line in lines)


def test_data_are_made_and_trained_on(tmp_path, monkeypatch):
    replace_updates(monkeypatch)
    files = write_pairs(tmp_path)
    pairs = {"train_source": files.source_path, "train_target": str(files.target_path)}
    findings = t2t_keras.inspect(**pairs)
    assert findings["splits"]["train"]["pairs"] == 320
    assert "no faults were found" in repr(findings)
    data = tmp_path / "data"
    manifest = t2t_keras.datagen(
        "translate_text", data, dev_size=20, vocab_size=300, workers=1, **pairs
    )
    assert manifest.examples == {"train": 300, "dev": 20}
    assert repr(manifest).startswith("Manifest('translate_text', examples=")
    assert is_short(manifest)
    changes = {name: getattr(HPARAMS, name) for name in ("num_layers", "d_model")}
    run = t2t_keras.train(
        "translate_text",
        "tiny",
        data_dir=data,
        output_dir=tmp_path / "run",
        hparams=changes | {"d_ff": 16, "num_heads": 2, "batch_tokens": 256},
        train_steps=4,
        log_every=2,
        save_every=2,
        eval_sentences=0,
    )
    assert (run.result.step, run.result.stopped_by) == (4, "train_steps")
    assert run.result.dev_nll > 0 and is_short(run.result)
    assert is_short(run) and "step=4" in repr(run)
    assert "engine" not in vars(run)  # no weights are read before they are needed
    assert list(run.history("dev")["step"]) == [4]
    assert {"nll", "loss"} <= {*run.history("train")}
    assert "loss" not in [*run.history("dev").dropna(axis="columns")]


SCRIPT = """
import t2t_keras

print("The script runs.")
files = {"train_source": "source.txt", "train_target": "target.txt"}
t2t_keras.datagen("translate_text", "data", vocab_size=300, workers=2, **files)
"""


def test_a_script_needs_no_main_guard(tmp_path):
    """Worker processes do not run it again."""
    write_pairs(tmp_path)
    script = write(tmp_path / "script.py", SCRIPT)
    printed = subprocess.check_output([sys.executable, script], cwd=tmp_path)
    assert printed == b"The script runs.\n"


def test_a_run_is_a_translator(run):
    assert isinstance(run, Translator)
    text = "a dog sees the house"
    assert run.translate([text]) == [text]
    assert repr(run.n_best([text])) == f"[[Hypothesis({text!r}, score=-1)]]"
    assert "checkpoint='model.ckpt-4'" in repr(run) and is_short(run)


def test_it_is_evaluated_as_by_the_command(run, trained_run, capfd):
    scores = run.evaluate("dev", **QUICK)
    flags = ("--split", "dev", "--eval_sentences", 3, "--beam_size", 1)
    flags += ("--engine", "tensorflow")
    assert scores == run_json(capfd, "evaluate", trained_run, *flags)
    assert json.loads(json.dumps(scores)) == scores
    assert repr(pickle.loads(pickle.dumps(scores))) == repr(scores)
    assert scores == t2t_keras.evaluate(trained_run, "dev", **QUICK)
    assert "nll" in repr(scores) and is_short(scores)
    assert all(name in repr(scores) for name in scores["bleu"]["signatures"])


def test_a_glossary_is_a_dictionary_everywhere(run):
    scores = run.evaluate("dev", glossary={"a": "b"}, **QUICK)
    assert scores == run.evaluate("dev", glossary=[["a", "b"]], **QUICK)


def test_systems_are_compared(run, trained_run):
    first = trained_run / "model.ckpt-2"
    result = t2t_keras.compare(first, trained_run, split="dev", **QUICK, **FEW)
    assert result["sentences"] == 3 and {*result["metrics"]} == {"bleu", "chrf"}
    assert is_short(result)


def test_files_are_compared_and_scored(tmp_path):
    a = write(tmp_path / "a", "a b c d e", "a b c d g")
    b = write(tmp_path / "b.de", "a b c d f", "a b c d e")
    scores = t2t_keras.evaluate(hypotheses=a, references=b)["bleu"]
    assert 0 < scores["sacrebleu_13a"] < 100
    result = t2t_keras.compare(a, b, references=b, metric="chrf", input=a, **FEW)
    assert [*result["metrics"]] == ["chrf"]
    escaped = write(tmp_path / "\x1b[31m", "a b c d e", "a b c d f")
    result = t2t_keras.compare(a, escaped, references=b, metric="chrf", **FEW)
    assert "\x1b" not in repr(result) and r"\x1b[31m" in repr(result)


def test_attention_draws_itself(run, tmp_path):
    attention = run.attention("a dog", "dog a")
    assert attention.cross.shape[:2] == (1, 2) and is_short(attention)
    assert np.allclose(attention.cross.sum(-1), 1, atol=1e-5)
    assert attention._repr_html_().startswith('<iframe srcdoc="&lt;!DOCTYPE html')
    assert len(repr(run.attention("a dog " * 300, "a"))) < 200
    attention.save(tmp_path / "page.html")
    assert "<title>" in (tmp_path / "page.html").read_text()


def test_what_a_run_records(run, trained_run, monkeypatch):
    assert run.describe()["vocab_sizes"]["target"] == run.target_tokenizer.vocab_size
    records = [json.loads(x) for x in (trained_run / "metrics.jsonl").open()]
    frame = run.history()
    assert list(frame["step"]) == [record["step"] for record in records]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    table = run.history("train")
    assert isinstance(table, Table)
    train = [record for record in records if record["kind"] == "train"]
    assert len(table) == len(train) and [*table] == [*train[0]]
    assert table["nll"] == [record["nll"] for record in train]
    assert table._repr_html_().startswith("<pre>step ")
    refused("kind must be one of train, dev", run.history, "test")


def test_a_long_table_shows_its_ends():
    table = Table({"step": step, "kind": "<b>"} for step in range(1000))
    assert len(repr(table).splitlines()) == 12
    assert "... 990 rows ..." in repr(table) and "<b>" not in table._repr_html_()


def test_an_average_and_an_export(trained_run, tmp_path):
    copy = shutil.copytree(trained_run, tmp_path / "run")
    assert t2t_keras.average(copy, 2).name == "average.ckpt-4"
    run = t2t_keras.load(copy)
    assert "average.ckpt-4" in repr(run)
    served = tmp_path / "served" / "1"
    result = run.export(served, verify=0, beam_size=1)
    assert result["bytes"] > 0 and is_short(result)
    export = t2t_keras.load(served)
    assert repr(export) == "ExportedTranslator('translate_text', engine='tensorflow')"
    message = "holds an export; name another directory, or give overwrite=True"
    refused(message, t2t_keras.export, copy, served)


def test_all_methods_use_the_weights_that_translate(trained_run, tmp_path):
    """Also after another process has written a checkpoint that `load` would take."""
    copy = shutil.copytree(trained_run, tmp_path / "run")
    run = t2t_keras.load(copy)
    t2t_keras.average(copy, 2)
    loss_only = {"split": "dev", "eval_sentences": 0}
    of_step, of_average = (
        t2t_keras.evaluate(copy, checkpoint=name, **loss_only)
        for name in ("model.ckpt-4", "average.ckpt-4")
    )
    assert run.evaluate(**loss_only) == of_step != of_average
    run.export(tmp_path / "served", verify=0)
    pair = ["a dog"], ["dog a"]
    (score,) = t2t_keras.load(tmp_path / "served").score(*pair)
    assert score.log_prob == pytest.approx(run.score(*pair)[0].log_prob, abs=1e-4)
    assert "checkpoint='model.ckpt-4'" in repr(run)


def test_errors_name_arguments(run, trained_run, tmp_path):
    evaluate = run.evaluate
    refused("^split must be one of train, dev, test or None", evaluate, "tset")
    refused("^split: there is no test split", evaluate, "test")
    refused("^beam_size must be at least 1", evaluate, "dev", beam_size=0)
    refused(
        "^evaluate: there is no option 'beamsize'; did you", evaluate, "dev", beamsize=2
    )
    message = "^output: with eval_sentences=0 there is nothing to write"
    refused(message, evaluate, "dev", output=tmp_path / "x", eval_sentences=0)
    refused("^format: there is no 'x'", run.export, tmp_path / "x", format="x")
    refused("^output_dir must be a path, not 5", t2t_keras.export, 5, tmp_path / "x")
    message = "^evaluate: there is no option 'splitt'; did you mean 'split'"
    refused(message, t2t_keras.evaluate, trained_run, splitt="dev")
    message = "^give either output_dir or hypotheses and references"
    refused(message, t2t_keras.evaluate)
    message = "^checkpoint must be an integer or a path, not 2.5"
    refused(message, t2t_keras.evaluate, trained_run, checkpoint=2.5)
    message = "^checkpoint: there is no .*ckpt-99"
    refused(message, t2t_keras.evaluate, trained_run, checkpoint=99)
    refused("^give two or more systems; `t2t evaluate`", t2t_keras.compare, "a")
    refused("^recipe has no effect without apply", t2t_keras.inspect, recipe="a")
    refused("^last must be at least 1", t2t_keras.average, trained_run, 0)
    refused("^problem is missing", t2t_keras.train, output_dir=tmp_path / "x")
    files = {"train_source": tmp_path / "a"}
    datagen = t2t_keras.datagen
    refused("^train_source needs train_target", datagen, "translate_text", "x", **files)
    refused("^seed must be at least 0", datagen, "translate_text", "x", seed=-1)
    refused("^datagen: there is no option 'foo'", datagen, "translate_text", "x", foo=1)
    refused("has no model", t2t_keras.import_model, tmp_path, tmp_path / "x")
    refused("the output_dir of `t2t train` is one", t2t_keras.load, tmp_path)
    refused("^output_dir is empty; give a directory", t2t_keras.load, "")
    refused("^source must be text, not b'a'", run.attention, b"a")
    refused("^target must be text or None, not 5", run.attention, "a", 5)
    ensemble = t2t_keras.load(trained_run, ensemble=[trained_run])
    refused("without an ensemble", ensemble.evaluate, "dev")


def test_what_is_printed_names_arguments(capsys):
    with argument_names(Train):
        say("--eval_every 5 is less")
    say("--eval_every")
    assert capsys.readouterr().err == "eval_every=5 is less\n--eval_every\n"


@pytest.mark.parametrize(
    ("flags", "arguments"),
    [
        ("--keep 5 and --output_dir RUN", "keep=5 and output_dir=RUN"),
        ("run `t2t train --seed 3`, or give --seed", "run `t2t train --seed 3`, or gi"),
        ("or --change_settings to resume", "or change_settings=True to resume"),
        ("--decode_hparams raw: no", "raw: no"),
        ("it as --checkpoint=model.ckpt-5; x", 'it as checkpoint="model.ckpt-5"; x'),
        ("give --hparams norm=pre, or x", 'give hparams="norm=pre", or x'),
        ("give --hparams a=b,c=0.5", 'give hparams="a=b,c=0.5"'),
        ("--decode_hparams sampling=true,top_k=N", "sampling=True, top_k=N"),
        ("use `--decode_hparams alpha=0.6,seed=1`", "use `alpha=0.6, seed=1`"),
        ("give --dev_size N, or `--keep N`", "give dev_size=N, or `keep=N`"),
        (
            "use `--hparams_set base --decode_hparams length_penalty=power`",
            'use `hparams_set="base", length_penalty="power"`',
        ),
        ("cannot read runs/a--b and /x--y/z", "cannot read runs/a--b and /x--y/z"),
    ],
)
def test_flags_in_messages(flags, arguments):
    with pytest.raises(UserError) as error, argument_names(Train):
        raise UserError(flags)
    assert str(error.value).startswith(arguments)


def test_a_notebook_shows_the_sentence():
    """By the hook that IPython calls for its traceback."""
    assert UserError("a\nb")._render_traceback_() == [r"UserError: a\nb"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_help_is_readable(name):
    function = getattr(t2t_keras, name)
    shown = pydoc.plain(pydoc.render_doc(function))
    assert "Annotated" not in shown and "Optional[" not in shown
    assert "Args:" in shown and "Returns:" in shown and "Raises:" in shown
    for parameter in inspect.signature(function).parameters:
        assert f"{parameter}: " in function.__doc__, parameter


def test_help_of_a_run_is_readable():
    assert "Annotated" not in pydoc.render_doc(Run)


def test_train_has_the_options_of_training():
    parameters = inspect.signature(train_function).parameters
    options = set(TrainOptions.__dataclass_fields__)
    assert options <= parameters.keys()
    assert all(parameters[name].default is None for name in options)


def test_reprs_of_outputs():
    hypothesis = Hypothesis("Ein Haus.", -0.123456, ids=tuple(range(99)))
    assert repr(hypothesis) == "Hypothesis('Ein Haus.', score=-0.1235)"
    assert repr(Score(-2.5, 3, (1, 2, 3))) == "Score(log_prob=-2.5, tokens=3)"


IMPORTS = """
import sys
import t2t_keras
print([name for name in sys.argv[1:] if name in sys.modules])
"""


def test_the_import_is_light():
    heavy = ("tensorflow", "keras", "numpy", "pandas", "pydantic", "cyclopts")
    plugins = ("t2t_keras.plugins", "t2t_keras.cli", "t2t_keras.data")
    assert python(IMPORTS, *heavy, *plugins) == "[]\n"

"""Runs that CTranslate2 translates: when they are converted, and for which options."""

import json
import re
import shutil

import pytest
from helpers.command_line import python, run, run_json, run_refused, write
from helpers.decoding_models import LINES
from helpers.errors import refused

pytest.importorskip("ctranslate2", reason="needs the extra [ctranslate2]")

import t2t_keras
from t2t_keras.exporting.formats import converted
from t2t_keras.files.json_files import sha256
from t2t_keras.plugins.engines import converted_run
from t2t_keras.plugins.engines.ctranslate2_engine import CTranslate2Engine
from t2t_keras.plugins.reports.card import model_card
from t2t_keras.run.directory import RunDirectory

AUTO = ("--engine", "auto")

# Translates as the program does, and says whether TensorFlow was imported.
RUN_COMMAND = """
import sys
from t2t_keras.cli import main
assert main(sys.argv[1:]) == 0
print({"tensorflow", "keras"} & sys.modules.keys())
"""


@pytest.fixture(scope="module")
def path(trained_run, tmp_path_factory):
    """A run whose last checkpoint is converted."""
    path = shutil.copytree(trained_run, tmp_path_factory.mktemp("converted") / "run")
    converted_run.convert(path, None, {})
    return path


def exports(path):
    """The conversions of a run, with numbers that a new one does not keep."""
    return {x: x.stat().st_ino for x in (path / "engines").glob("ctranslate2-*")}


def last_export(path):
    return converted_run.convert(path, None, {})


@pytest.fixture
def flags(path, tmp_path):
    source = write(tmp_path / "in", *LINES)
    return ["--output_dir", path, "--input", source, "--scores", "--beam_size", "1"]


@pytest.fixture
def translate(flags, capfd):
    """Translates; returns the outputs, their scores, and the line about the engine."""

    def translate(*further_flags):
        assert run("translate", *flags, *further_flags) == 0
        shown = capfd.readouterr()
        rows = [line.split("\t") for line in shown.out.splitlines()]
        lines = [x for x in shown.err.splitlines() if x.startswith("engine: ")]
        scores = [float(row[2]) for row in rows]
        return [row[3] for row in rows], scores, lines[-1] if lines else None

    return translate


def change_settings(export, change, is_intact):
    """Changes the settings of an export, and unless it is intact, damages it."""
    path = export / "t2t_export.json"
    settings = json.loads(path.read_text())
    change(settings)
    path.write_text(json.dumps(settings))
    if is_intact:
        sums = (export / "SHA256SUMS").read_text()
        old = next(x for x in sums.splitlines() if x.endswith(path.name))
        sums = sums.replace(old, f"{sha256(path)}  {path.name}")
        (export / "SHA256SUMS").write_text(sums)
    else:
        (export / "model.bin").unlink()


def test_a_run_is_converted_once(trained_run, tmp_path, capfd):
    path = shutil.copytree(trained_run, tmp_path / "run")
    source = write(tmp_path / "in", *LINES)
    command = ("translate", path, "--input", source, "--beam_size", 1, "--engine")
    assert run(*command, "tensorflow") == 0
    expected = capfd.readouterr().out
    inodes = set()
    for engine in ("auto", "ctranslate2"):
        assert run(*command, engine) == 0
        shown = capfd.readouterr()
        (export,) = (path / "engines").glob("ctranslate2-*")
        line = f"engine: ctranslate2, with model.ckpt-4 converted to {export}; "
        assert shown.out == expected and line in shown.err
        inodes.add(export.stat().st_ino)
    assert len(inodes) == 1


@pytest.mark.slow
def test_the_newest_conversions_of_a_run_are_kept(trained_run, tmp_path):
    path = shutil.copytree(trained_run, tmp_path / "run")
    exports = [converted_run.convert(path, str(step), {}) for step in (1, 2, 3, 4)]
    assert [export.exists() for export in exports] == [False, True, True, True]


@pytest.mark.slow
def test_outputs_and_scores_match_the_run(path, flags, translate):
    texts, scores, line = translate("--engine", "tensorflow")
    assert line is None
    existing_exports = exports(path)
    translations, fast_scores, line = translate(*AUTO)
    assert translations == texts and fast_scores == pytest.approx(scores, abs=1e-4)
    converted_to = f"model.ckpt-4 converted to {last_export(path)}; "
    assert line.startswith(f"engine: ctranslate2, with {converted_to}--engine=tensor")
    *rows, modules = python(RUN_COMMAND, "translate", *flags).splitlines()
    assert [row.split("\t")[3] for row in rows] == texts and modules == "set()"
    assert exports(path) == existing_exports


@pytest.mark.slow
@pytest.mark.parametrize("is_intact", [True, False])
def test_what_is_damaged_or_of_other_options_is_converted_again(
    is_intact, path, translate
):
    def widen(settings):
        settings["decoding"]["beam_size"] += 1

    export = last_export(path)
    settings = (export / "t2t_export.json").read_text()
    change_settings(export, widen, is_intact)
    assert f"with model.ckpt-4 converted to {export}; " in translate(*AUTO)[2]
    assert (export / "t2t_export.json").read_text() == settings


@pytest.mark.slow
def test_every_checkpoint_has_a_conversion(path, translate):
    existing_exports = exports(path)
    line = translate(*AUTO, "--checkpoint", "1")[2]
    assert "with model.ckpt-1 converted" in line
    assert existing_exports.items() < exports(path).items()
    assert len(exports(path)) == len(existing_exports) + 1


@pytest.mark.slow
def test_a_served_run_answers_phrases_with_tensorflow(path, capfd):
    serve_command = pytest.importorskip("t2t_keras.plugins.server.command")
    model = serve_command.Serve(model=("m",), engine="auto").load_model(path)
    assert model.missing == {}
    capfd.readouterr()
    rows = [{"texts": text, "prefixes": ""} for text in LINES[:2]]
    exact = t2t_keras.load(path)
    for options in ({"glossary": (("dog", "dog dog"),)}, {"forbidden": ("a",)}):
        expected = [row[0].text for row in exact.n_best(LINES[:2], **options)]
        for signature in ("translate", "explain"):
            outputs = model.predict(signature, rows, options)
            outputs = [row.get("sentences", [row])[0] for row in outputs]
            assert [row["texts"][0] for row in outputs] == expected
    # The run is loaded once, for these requests alone.
    assert capfd.readouterr().err.count("TensorFlow runs requests with glossary") == 1
    predictions = model.predict("translate", rows, {})
    fast = t2t_keras.load(last_export(path))
    assert isinstance(fast.engine, CTranslate2Engine)
    for row, text in zip(predictions, fast.translate(LINES[:2]), strict=True):
        assert row["texts"] == [text]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"glossary": {"a": "b"}}, "glossary: CTranslate2 does not support it"),
        ({"no_repeat_ngram": 2}, "no_repeat_ngram differs in CTranslate2"),
        ({"extra_length": 400}, "more than 1074 positions are not converted"),
    ],
)
def test_tensorflow_runs_what_ctranslate2_cannot(options, reason, path, capfd):
    # A path, because a training may write other checkpoints until it is loaded.
    exact = (path, str(path / "model.ckpt-4"))
    assert converted(path, "4", options, "auto") == exact
    line = capfd.readouterr().err.splitlines()[-1]
    assert line == f"engine: TensorFlow ({reason})"
    assert converted(path, "4", options, "tensorflow") == (path, "4")
    if "differs" in reason:  # whoever asks for CTranslate2 gets its way
        assert converted(path, "4", options, "ctranslate2")[0] == last_export(path)
        return
    message = f"--engine=ctranslate2: {reason}; leave out --engine"
    refused(message, converted, path, "4", options, "ctranslate2")


@pytest.mark.slow
def test_a_gpu_is_preferred_unless_ctranslate2_is_asked_for(path, monkeypatch):
    export = last_export(path)
    monkeypatch.setattr(converted_run, "_has_gpu", lambda: True)
    assert converted(path, None, {}, "auto") == (path, str(path / "model.ckpt-4"))
    assert converted(path, None, {}, "ctranslate2") == (export, None)


@pytest.mark.slow
def test_an_engine_that_cannot_run_the_model_is_refused(path, flags, capfd):
    export = last_export(path)
    ask = ("--engine", "ctranslate2")
    exported = ("translate", "--model", export, *flags[2:], "--engine")
    for argv, message in (
        (("translate", *flags, *ask, "--ensemble", path), "--ensemble needs Tensor"),
        (
            (*exported, "tensorflow"),
            f"--engine=tensorflow: the export {export} needs ctranslate2; leave it out",
        ),
        (("evaluate", path, *ask, "--checkpoint", "all"), "does not go with --checkp"),
    ):
        assert message in run_refused(capfd, *argv)
    assert run(*exported, "ctranslate2") == 0


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["tensorflow", "ctranslate2"])
def test_scores_have_their_engine(engine, path, capfd):
    command = ("evaluate", path, "--split", "dev", "--eval_sentences", 2)
    command += ("--beam_size", 1, "--engine", engine)
    assert run(*command) == 0
    rows = [line.split() for line in capfd.readouterr().out.splitlines()]
    assert ["decoded", "with", engine] in rows
    assert run_json(capfd, *command)["engine"] == engine
    assert f", decoded with {engine}, " in model_card(RunDirectory(path))


@pytest.mark.slow
def test_tensorflow_runs_everything_without_ctranslate2(path, translate, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    existing_exports = exports(path)
    assert translate(*AUTO)[2] == "engine: TensorFlow (CTranslate2 is not installed)"
    assert exports(path) == existing_exports


@pytest.mark.slow
def test_the_card_has_the_difference_of_an_evaluated_conversion(path, tmp_path, capfd):
    export = last_export(path)
    flags = "--output_dir", path, "--split", "dev", "--beam_size", "1"
    assert run("evaluate", *flags, *AUTO) == 0
    assert run("evaluate", *flags, "--export_dir", export, "--language", "fr") == 0
    foreign_export = shutil.copytree(export, tmp_path / "foreign")
    change_settings(foreign_export, lambda x: x.update(problem="other"), is_intact=True)
    sentence = run_refused(capfd, "evaluate", *flags, "--export_dir", foreign_export)
    assert "is an export of problem" in sentence
    card = model_card(RunDirectory(path))
    difference = f"dev, {export.name}, .*; difference from .*: sacrebleu_13a 0, "
    assert re.search(difference, card)
    assert "difference" not in card.replace("; difference from", "", 1)

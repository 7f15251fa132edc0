"""Whether a run splits its inputs into sentences follows from its training data."""

import dataclasses
import json
import shutil

import pytest
from helpers.command_line import run, run_json, run_refused, write
from helpers.small_run import HPARAMS, replace_updates, trainer

import t2t_keras
from t2t_keras import registry
from t2t_keras.data.datagen import generate
from t2t_keras.data.sources import ParallelFiles
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.problem import Cleaning, Problem, TextProcessor
from t2t_keras.run.config import SINGLE_SENTENCES, config_for
from t2t_keras.run.directory import RunDirectory

ONE = ("The dog sees Mr. Cat .", "Der Hund sieht z. B. die Katze.")
TWO = ("The dog runs. It barks.", "Der Hund rennt und bellt.")


def problem_of(folder, pairs, **changes):
    """The problem translate_text with these pairs for training and dev."""
    for side, texts in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
        write(folder / side, *texts)
    files = ParallelFiles(folder / "source", folder / "target")
    problem = registry.problem("translate_text")
    sources = {"train": files, "dev": files}
    return problem.replace(vocab_size=330, sources=sources, **changes)


def share(manifest):
    return manifest.single_sentences["train"]


def test_datagen_counts_single_sentences(tmp_path):
    pairs = [*[ONE] * 30, *[TWO] * 10]
    manifest = generate(problem_of(tmp_path, pairs), tmp_path / "data", workers=1)
    assert share(manifest) == {"source": 0.75, "target": 1.0}
    assert manifest.single_sentences["dev"] == share(manifest)
    # Dropped pairs do not count.
    noise = [("Yes. No. ÿ\x07", "Ja. Nein."), ("", "Ja. Nein.")]
    problem = problem_of(tmp_path, pairs + noise, cleaning=Cleaning(control=True))
    assert share(generate(problem, tmp_path / "clean", workers=1)) == share(manifest)
    # Fingerprints do not depend on it.
    other = dataclasses.replace(manifest, single_sentences={})
    assert other.fingerprint("train") == manifest.fingerprint("train")


@pytest.mark.parametrize(
    "name, twos, splits",
    [
        ("translate_text", 4, True),
        ("translate_text", 5, False),
        ("translate_text_rev", 40, True),
    ],
)
def test_a_run_knows_whether_its_sources_are_sentences(tmp_path, name, twos, splits):
    """The sources of a reversed problem are the targets of the data."""
    assert SINGLE_SENTENCES == 0.9
    pairs = [*[ONE] * (40 - twos), *[TWO] * twos]
    generate(problem_of(tmp_path, pairs), tmp_path / "data", workers=1)
    config = config_for(registry.problem(name), "none", tmp_path / "data", 1)
    expected = 1 - twos / 40 if name == "translate_text" else 1.0
    assert config.single_sentences == pytest.approx(expected)
    problem = config.registered_problem()
    assert problem.split_sentences is splits
    assert DecodingOptions.of_problem(problem).split_sentences is splits
    # An imported run, and a problem whose outputs cannot be joined.
    imported = dataclasses.replace(config, single_sentences=None)
    assert not imported.registered_problem().split_sentences

    class Whole(TextProcessor):
        splits_long_sources = False

    whole_texts = Problem(summary="", text_processor=Whole())
    assert not config.has_single_sentences(whole_texts)


@pytest.fixture(scope="module")
def sentence_run(tmp_path_factory):
    """A run of a few steps on single sentences."""
    folder = tmp_path_factory.mktemp("sentences")
    generate(problem_of(folder, [ONE] * 40), folder / "data", workers=1)
    with pytest.MonkeyPatch.context() as patch:
        replace_updates(patch)
        trainer(folder / "data", folder / "run").train()
    return folder


SEVERAL = "The dog sees. The cat sees! A dog sees"
PARTS = ["The dog sees.", "The cat sees!", "A dog sees"]


@pytest.mark.slow
def test_all_engines_of_a_run_split_by_default(sentence_run, tmp_path):
    path = sentence_run / "run"
    translator = t2t_keras.load(path)
    parts = translator.translate(PARTS, extra_length=4)
    joined = " ".join(filter(None, parts))
    (best,) = translator.n_best([SEVERAL], 1, extra_length=4)[0]
    assert (best.text, best.sentences) == (joined, 3)
    unsplit = translator.n_best([SEVERAL], 1, extra_length=4, split_sentences=False)
    assert unsplit[0][0].sentences == 1
    words = ("export", "--output_dir", path, "--decode_hparams", "extra_length=4")
    for export_format in ("savedmodel", "ctranslate2"):
        if export_format == "ctranslate2":
            pytest.importorskip("ctranslate2")
        assert (
            run(
                *words,
                "--export_dir",
                tmp_path / export_format,
                "--format",
                export_format,
            )
            == 0
        )
        export = t2t_keras.load(tmp_path / export_format)
        assert export.settings.decoding["split_sentences"] is True
        (output,) = export.n_best([SEVERAL], 1)[0]
        assert output.sentences == 3
        if export_format == "savedmodel":  # CTranslate2's beam search has another end
            assert output.text == joined


def test_a_run_without_the_statistic_does_not_split(sentence_run, tmp_path):
    shutil.copytree(sentence_run / "run", tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    fields = json.loads(path.read_text())
    assert fields.pop("single_sentences") == 1.0
    del fields["sha256"]
    path.write_text(json.dumps(fields))
    imported = RunDirectory(tmp_path / "run")
    translator = imported.translator()
    assert not translator.options.split_sentences
    output = translator.n_best([SEVERAL], 1, extra_length=4)[0][0]
    assert output.sentences == 1
    # Nor is it another setting when the training is resumed.
    problem = registry.problem("translate_text")
    config = config_for(problem, "none", sentence_run / "data", 1)
    config = dataclasses.replace(config, batch_parts=imported.config.batch_parts)
    RunDirectory.refuse_other_settings(tmp_path / "run", config, HPARAMS)


def test_describe_shows_it(sentence_run, tmp_path, capfd):
    expected = {"single_sentences": 1.0, "split_sentences": True}
    words = ("describe", sentence_run / "run")
    result = run_json(capfd, *words)
    assert expected.items() <= result["data"].items()
    assert result["data"]["examples"] == 40
    hparams = RunDirectory(sentence_run / "run").hparams
    model = t2t_keras.load(sentence_run / "run").model
    assert hparams == HPARAMS
    assert result["parameters"]["total"] == model.count_params()
    words = ("describe", "--hparams_set", "tiny")
    result = run_json(capfd, *words, "--data_dir", sentence_run / "data")
    assert expected.items() <= result["data"].items()
    reverse = ("--data_dir", sentence_run / "data", "--problem", "translate_text_rev")
    result = run_json(capfd, *words, *reverse)
    assert expected.items() <= result["data"].items()
    assert run(*words, *reverse) == 0
    text = capfd.readouterr().out
    assert "  100.0% of the sources are single sentences\n" in text
    assert "  inputs of several sentences are split (split_sentences)\n" in text
    assert run_json(capfd, *words)["data"] is None


@pytest.mark.parametrize(
    "words, message",
    [
        ([], "give SET"),
        (["run", "--data_dir", "data"], "run has its own data; --data_dir is for a"),
        (["."], ". is not a run directory"),
        (["none"], "there is no 'none'"),
        (["data"], "data is a data directory; give SET --data_dir data"),
        (["--hparams_set", "base", "--problem", "translate_text"], "needs --data_dir"),
        (["--hparams_set", "base", "--data_dir", "run"], "run has the data of 0 prob"),
    ],
)
def test_mistakes_in_describe(sentence_run, words, message, capfd, monkeypatch):
    monkeypatch.chdir(sentence_run)
    assert message in run_refused(capfd, "describe", *words)

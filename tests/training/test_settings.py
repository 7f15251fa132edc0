"""A run is resumed by its directory alone, with its settings."""

import dataclasses
import json
import shutil

import pytest
from helpers.command_line import run, run_refused
from helpers.errors import refused
from helpers.json_edits import edit_json
from helpers.small_run import replace_updates

import t2t_keras
from t2t_keras.run.config import RunConfig
from t2t_keras.run.directory import RunDirectory
from t2t_keras.training.settings import repeated_options, run_settings

DECODING = {"beam_size": 6, "length_penalty": "power", "alpha": 1.0}
ORIGIN = {"repository": "owner/name", "commit": "35bbec8", "license": "cc-by-4.0"}
OPTIONS = {"eval_sentences": 0, "save_minutes": 5.0, "keep": 3}
ARGUMENTS = {
    "hparams": "num_layers=1,d_model=16,d_ff=32,num_heads=2,batch_tokens=256",
    "train_steps": 2,
    "seed": 3,
    "accumulate": 2,
    **OPTIONS,
}


@pytest.fixture(autouse=True)
def no_updates(monkeypatch):
    replace_updates(monkeypatch)


@pytest.fixture(scope="module")
def trained(data_dir, tmp_path_factory):
    """A run of two steps, to be read only."""
    origin = tmp_path_factory.mktemp("origin") / "run"
    output_dir = tmp_path_factory.mktemp("trained") / "run"
    with pytest.MonkeyPatch.context() as patch:
        replace_updates(patch)
        arguments = {"data_dir": data_dir, **ARGUMENTS}
        t2t_keras.train("translate_text", "tiny", output_dir=origin, **arguments)
        config = RunConfig.read(origin)
        config = dataclasses.replace(config, decoding=DECODING, origin=ORIGIN)
        config.write(origin)
        arguments |= {"output_dir": output_dir, "init_from": origin}
        t2t_keras.train("translate_text", "tiny", **arguments)
    shutil.rmtree(origin)  # a run that has begun needs it no longer
    return output_dir


@pytest.fixture
def copy(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "copy")


def test_the_directory_alone_resumes_with_all_settings(copy):
    config = RunConfig.read(copy)
    hparams = RunDirectory(copy).hparams
    assert t2t_keras.train(output_dir=copy).result.step == 2
    assert RunConfig.read(copy) == config
    assert (config.seed, config.batch_parts, config.accumulate) == (3, 2, 2)
    assert config.train_options == OPTIONS
    assert config.decoding == DECODING and config.origin == ORIGIN
    assert config.registered_problem().length_penalty == "power"
    assert run("train", "--output_dir", copy, "--train_steps", 3) == 0
    resumed = RunDirectory(copy)
    assert resumed.checkpoints.steps()[-1] == 3
    assert resumed.hparams == hparams.override(train_steps=3)
    digest = resumed.config.hparams_sha256
    assert resumed.config == dataclasses.replace(config, hparams_sha256=digest)


def test_what_is_given_changes_the_settings(copy, data_dir, tmp_path, capfd):
    moved = shutil.copytree(data_dir, tmp_path / "moved")
    argv = ("train", "--output_dir", copy, "--train_steps", 3, "--data_dir", moved)
    argv += ("--save_every", 1, "--simulate_devices", 2)
    assert run(*argv, "--hparams", "clip_norm=1", "--change_settings") == 0
    config = RunConfig.read(copy)
    assert config.data_dir == str(moved)
    # Two replicas divide a batch as one with two micro-batches.
    assert (config.batch_parts, config.accumulate) == (2, 1)
    assert config.train_options == {"eval_sentences": 0, "save_every": 1, "keep": 3}
    assert RunDirectory(copy).hparams.clip_norm == 1.0
    message = run_refused(capfd, *argv, "--hparams", "clip_norm=2")
    assert "clip_norm was 1.0, is now 2.0; give the same settings or an" in message
    message = run_refused(capfd, "train", "--output_dir", copy, "--hparams_set", "base")
    assert "d_model was 16, is now 512" in message
    message = run_refused(capfd, "train", "--output_dir", copy, "--seed", 4)
    assert "seed was 3, is now 4" in message


def test_saving_by_steps_and_by_minutes_exclude_each_other(trained):
    config = RunConfig.read(trained)
    common = {"eval_sentences": 0, "keep": 3}
    assert repeated_options(config, {}) == common | {"save_minutes": 5.0}
    changes = {"save_every": 7, "keep": 4}
    assert repeated_options(config, changes) == common | changes
    message = "--save_every and --save_minutes exclude each other"
    refused(message, run_settings, trained, options={"save_every": 7} | OPTIONS)


def test_options_are_keywords_of_train(copy):
    t2t_keras.train(output_dir=copy, train_steps=3, keep=4, log_every=1)
    changed = OPTIONS | {"keep": 4, "log_every": 1}
    assert RunConfig.read(copy).train_options == changed
    lines = (copy / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["step"] == 3
    refused("keep must be an integer", t2t_keras.train, output_dir=copy, keep="4")
    message = "there is no option 'save_evry'; did you mean 'save_every'"
    refused(message, run_settings, copy, options={"save_evry": 4})


def test_what_cannot_be_resumed(copy, tmp_path, capfd):
    message = "problem is missing; only a run is resumed without it, and .* is none"
    refused(message, t2t_keras.train, output_dir=tmp_path)
    refused("data_dir is missing", t2t_keras.train, "translate_text", output_dir=copy)
    edit_json(copy / "config.json", batch_parts=None, sha256=None)
    message = "has no training, as after `t2t import`; begin one .*init_from"
    refused(message, t2t_keras.train, output_dir=copy)
    message = run_refused(capfd, "train", copy)
    assert "to resume a run: t2t train --output_dir RUN" in message
    message = run_refused(capfd, "train", "--problem", "translate_text")
    assert "give --output_dir; to resume a run, only --output_dir" in message

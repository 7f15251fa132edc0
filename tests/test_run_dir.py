"""A run directory: who may train in it, what binds, and files that are damaged."""

import contextlib
import dataclasses
import json
import os
import resource
import signal
import socket
import subprocess
import sys

import pytest
from command_line import run
from small_run import HPARAMS, trainer

import t2t_keras
from t2t_keras import UserError, registry
from t2t_keras.data.manifest import Manifest
from t2t_keras.training.average import average_run
from t2t_keras.training.run_dir import RunDirectory, config_for, training_lock

SMALL = "num_layers=1,d_model=16,d_ff=32,num_heads=2,batch_tokens=256"


def train(data_dir, output_dir, **arguments):
    """Trains from Python, for two steps unless told otherwise."""
    return t2t_keras.train(
        "translate_text",
        "tiny",
        **{"data_dir": data_dir, "output_dir": output_dir, "hparams": SMALL}
        | {"train_steps": 2}
        | arguments,
    )


def verb(data_dir, output_dir, *flags):
    """Returns the command line of a training."""
    folders = ("--data_dir", data_dir, "--output_dir", output_dir)
    hparams = () if "--hparams" in flags else ("--hparams", SMALL)
    names = ("--problem", "translate_text", "--hparams_set", "tiny")
    return ("train", *names, *folders, *hparams, *flags)


def names(directory):
    return {path.name for path in directory.iterdir()}


# One training at a time


@contextlib.contextmanager
def another_process_trains_in(directory):
    """Gives the process, which has the lock until it is killed."""
    code = f"""
import sys
from t2t_keras.training.run_dir import training_lock
with training_lock({str(directory)!r}):
    print("locked", flush=True)
    sys.stdin.read()
"""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], text=True, **pipes) as process:
        try:
            assert process.stdout.readline() == "locked\n"
            yield process
        finally:
            process.kill()


def test_a_second_training_is_refused_until_the_first_is_killed(
    data_dir, tmp_path, capfd
):
    argv = verb(data_dir, tmp_path / "run", "--train_steps", 1)
    with another_process_trains_in(tmp_path / "run") as process:
        assert run(*argv) == 2
        (message,) = [x for x in capfd.readouterr().err.splitlines() if "error" in x]
        holder = f"process {process.pid} on {socket.gethostname()}"
        assert message.startswith("t2t train: error: --output_dir: another training")
        assert holder in message
        assert names(tmp_path / "run") == {"train.lock"}
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert run(*argv) == 0
    assert (tmp_path / "run" / "train.lock").read_text() == ""


def test_readers_take_no_lock(data_dir, tmp_path):
    train(data_dir, tmp_path / "first")
    with training_lock(tmp_path / "first"):
        assert RunDirectory(tmp_path / "first").translator().translate(["a dog"])
        tuned = train(data_dir, tmp_path / "tuned", init_from=tmp_path / "first")
    assert tuned.step == 2


# Settings


def test_settings_bind_before_there_is_a_checkpoint(data_dir, tmp_path):
    trainer(data_dir, tmp_path, dropout=0.3)
    files = {name: (tmp_path / name).read_bytes() for name in names(tmp_path)}
    message = r"dropout was 0\.3, is now 0\.1; .*, or remove the directory \(it has no"
    with pytest.raises(UserError, match=message):
        trainer(data_dir, tmp_path, dropout=0.1)
    assert {name: (tmp_path / name).read_bytes() for name in names(tmp_path)} == files
    trainer(data_dir, tmp_path, dropout=0.3, train_steps=3).train()
    with pytest.raises(UserError, match=r"give the same settings or another --output"):
        trainer(data_dir, tmp_path, seed=2, dropout=0.3)


def test_other_vocabularies_are_other_settings(data_dir, tmp_path):
    trainer(data_dir, tmp_path)
    config = config_for(registry.problem("translate_text"), "none", data_dir, 1)
    other = dataclasses.replace(config, vocab_sha256={"source": "x", "target": "x"})
    with pytest.raises(UserError, match="vocab_sha256 was"):
        RunDirectory.create(tmp_path, other, HPARAMS)
    assert Manifest.open(data_dir, "translate_text").vocab_sha256 == config.vocab_sha256


def test_the_origin_of_the_weights_binds(data_dir, tmp_path):
    trainer(data_dir, tmp_path / "first").train()
    trainer(data_dir, tmp_path / "tuned", init_from=tmp_path / "first")
    with pytest.raises(UserError, match=r"init_from was .*first, is now None"):
        trainer(data_dir, tmp_path / "tuned")
    trainer(data_dir, tmp_path / "tuned", init_from=tmp_path / "first").train()


def test_what_can_be_validated_is_validated_before_the_settings_bind(
    data_dir, tmp_path
):
    output_dir = tmp_path / "run"
    with pytest.raises(UserError, match="batch_tokens 2 is less than the longest"):
        train(data_dir, output_dir, batch_tokens=2)
    assert names(output_dir) == {"train.lock"}
    assert train(data_dir, output_dir).step == 2
    with pytest.raises(UserError, match="batch_tokens was 256, is now 2;"):
        train(data_dir, output_dir, batch_tokens=2)


def test_what_fits_is_not_sought_again(data_dir, tmp_path):
    trainer(data_dir, tmp_path, batch_tokens=384)  # failed before its first checkpoint
    with pytest.raises(UserError) as refusal:
        train(data_dir, tmp_path, batch_tokens="auto")
    assert "d_ff was 16, is now 32" in str(refusal.value)
    assert "batch_tokens" not in str(refusal.value)


@pytest.mark.parametrize("kind", ["same", "relative", "symlink"])
def test_the_data_directory_is_no_run_directory(kind, data_dir, tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(data_dir)
    monkeypatch.chdir(data_dir.parent)
    before = names(data_dir)
    output_dir = {
        "same": data_dir,
        "relative": f"./{data_dir.name}/../{data_dir.name}",
        "symlink": tmp_path / "link",
    }
    with pytest.raises(UserError, match=r"--output_dir: .* is the --data_dir"):
        train(data_dir, output_dir[kind])
    assert names(data_dir) == before


# Damaged files


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", b"", r"config\.json is not as it was written"),
        ("config.json", b"[]", r"config\.json is not as it was written"),
        ("config.json", b'{"problem": "x"}', r"config\.json is not as it was written"),
        ("config.json", b"\xff", r"config\.json is not as it was written"),
        ("hparams.json", b"", r"hparams\.json is not valid JSON"),
        ("hparams.json", b"\xff", r"hparams\.json is not valid JSON"),
        ("hparams.json", b"[]", r"hparams\.json is not a JSON object"),
        ("hparams.json", b'{"dropout": []}', r"hparams\.json: hparams: dropout must"),
        ("hparams.json", None, r"there is no .*hparams\.json"),
        ("metrics.jsonl", b"\xff\n", r"metrics\.jsonl, line 1 is no record"),
        ("metrics.jsonl", b'{"st\n5\n', r"metrics\.jsonl, line 2 is no record"),
        ("metrics.jsonl", b'{"step": 1}\n', r"metrics\.jsonl, line 1 is no record"),
        (
            "metrics.jsonl",
            b'{"step": 1, "kind": "dev"}\n',
            r"metrics\.jsonl, line 1 is no record",
        ),
    ],
)
def test_damaged_files_are_named(name, content, message, data_dir, tmp_path):
    train(data_dir, tmp_path, train_steps=1)
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        train(data_dir, tmp_path, train_steps=1)
    assert "\n" not in str(error.value)


def test_half_a_line_of_metrics_is_of_a_killed_process(data_dir, tmp_path):
    train(data_dir, tmp_path)
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text(metrics.read_text() + '{"step": 3, "ki')
    assert train(data_dir, tmp_path).dev_best["step"] == 2


# A full disk


@contextlib.contextmanager
def largest_file(size):
    """Lets no file grow beyond so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_no_space_for_a_checkpoint(data_dir, tmp_path, capfd):
    argv = verb(data_dir, tmp_path, "--train_steps", 1)
    with largest_file(40_000):
        assert run(*argv) == 2
    (message,) = [x for x in capfd.readouterr().err.splitlines() if "error" in x]
    path = tmp_path / "model.ckpt-1"
    assert f"cannot write checkpoint {path}: File too large; free disk" in message
    assert not list(tmp_path.glob("incomplete*"))
    assert run(*argv) == 0


def test_no_space_for_metrics(data_dir, tmp_path, capfd):
    argv = verb(data_dir, tmp_path, "--train_steps", 1)
    size = 1_000_000
    (tmp_path / "metrics.jsonl").write_text("\n" * (size - 10))
    with largest_file(size):
        assert run(*argv) == 2
    (message,) = [x for x in capfd.readouterr().err.splitlines() if "error" in x]
    assert f"cannot write to {tmp_path}: File too large; free disk" in message


def test_no_space_for_events(tmp_path):
    import tensorflow as tf

    from t2t_keras.training.launch import _disk_errors

    writer = tf.summary.create_file_writer(str(tmp_path))
    with (
        pytest.raises(UserError, match="File too large; free disk") as error,
        largest_file(1000),
        _disk_errors(tmp_path),
        writer.as_default(step=1),
    ):
        tf.summary.text("long", "x" * 2000)
        writer.flush()
    assert "{{" not in str(error.value)
    with pytest.raises(tf.errors.InvalidArgumentError), _disk_errors(tmp_path):
        tf.constant([1.0]) + tf.constant([1.0, 2.0])


def test_orphans_of_killed_processes_are_removed(data_dir, tmp_path):
    train(data_dir, tmp_path)
    kinds = ("model", "best", "average")
    orphans = [
        f"incomplete.{kind}.ckpt-1.data-00000-of-00001{end}"
        for kind in kinds
        for end in ("", ".tempstate123")
    ]
    for name in orphans:
        (tmp_path / name).touch()
    train(data_dir, tmp_path, train_steps=3)
    # An average may be under way, for which there is no lock.
    assert names(tmp_path) & set(orphans) == set(orphans[-2:])
    average_run(tmp_path, last=1)
    assert not names(tmp_path) & set(orphans)


# Divergence and memory


def test_a_training_that_diverges_ends_with_one_sentence(data_dir, tmp_path, capfd):
    hparams = f"{SMALL},learning_rate=1e9,warmup_steps=1"
    flags = ("--hparams", hparams, "--train_steps", 8, "--log_every", 4)
    assert run(*verb(data_dir, tmp_path, *flags)) == 2
    errors = capfd.readouterr().err
    (message,) = [line for line in errors.splitlines() if "error" in line]
    # log 310, of the vocabulary that `small_data` asks for, is 5.74.
    assert "step 4: the training has diverged" in message
    assert "far above that of guessing, 5.7" in message
    assert max(map(len, errors.split())) < 200  # no number of 305 digits
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").open()]
    assert records[-1]["loss"] > 57
    assert RunDirectory(tmp_path).checkpoints.steps() == []


def test_a_batch_that_cannot_fit_is_refused(data_dir, tmp_path, monkeypatch):
    from t2t_keras.training import memory

    monkeypatch.setattr(memory, "free_memory", lambda: 1e6)
    message = (
        r"batch_tokens 1000000: the largest batch, \d+ pairs of \d+ and \d+ tokens, "
        r"takes at least 0\.0 GB, and 0\.0 GB are free; lower batch_tokens, let "
        r"--batch_tokens auto find what fits, or divide batches with --accumulate$"
    )
    with pytest.raises(UserError, match=message):
        train(data_dir, tmp_path, batch_tokens=1_000_000)
    assert names(tmp_path) == {"train.lock"}
    monkeypatch.undo()
    # A batch is never larger than all the data.
    assert train(data_dir, tmp_path, batch_tokens=10**12, train_steps=1).step == 1


def test_a_batch_that_the_device_has_no_room_for(data_dir, tmp_path):
    import tensorflow as tf

    def dry_run(batch, step):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating")

    training = trainer(data_dir, tmp_path)
    training._step.dry_run = dry_run
    with pytest.raises(UserError, match=r"batch_tokens 256: .* device's memory; lower"):
        training.train()

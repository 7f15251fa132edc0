"""A run directory: who may train in it, what binds, and files that are damaged."""

import contextlib
import json
import resource
import shutil
from types import SimpleNamespace

import pytest
from helpers.errors import refused
from helpers.small_run import replace_updates, trainer

import t2t_keras
from t2t_keras import UserError
from t2t_keras.evaluation.evaluator import Evaluator
from t2t_keras.run.checkpoint import CheckpointDirectory, average_run
from t2t_keras.run.directory import RunDirectory, training_lock
from t2t_keras.training.train import disk_errors, open_run
from t2t_keras.training.trainer import Trainer

FAST = {"eval_sentences": 0}
NO_STEP = {"eval_sentences": 0, "max_minutes": 1e-9}
SMALL = "num_layers=1,d_model=16,d_ff=32,num_heads=2,batch_tokens=256,dropout=0"


def train(data_dir, output_dir, **arguments):
    """Trains from Python, for two steps unless told otherwise."""
    arguments = {"hparams": SMALL, "train_steps": 2, **FAST} | arguments
    arguments |= {"data_dir": data_dir, "output_dir": output_dir}
    return t2t_keras.train("translate_text", "tiny", **arguments)


@pytest.fixture(scope="module")
def trained(data_dir, tmp_path_factory):
    """A run of two steps, to be read only."""
    directory = tmp_path_factory.mktemp("trained") / "run"
    with pytest.MonkeyPatch.context() as patch:
        replace_updates(patch)
        train(data_dir, directory)
    return directory


@pytest.fixture
def copy(trained, tmp_path):
    """The same, to be changed."""
    return shutil.copytree(trained, tmp_path / "copy")


def names(directory):
    return {path.name for path in directory.iterdir() if path.is_file()}


# One training at a time


def test_readers_take_no_lock(data_dir, copy, tmp_path, monkeypatch):
    replace_updates(monkeypatch)
    origin = {"init_from": copy, **NO_STEP}
    with training_lock(copy):
        run_of = RunDirectory(copy)
        run_of.restore(run_of.build_model())
        assert train(data_dir, tmp_path / "tuned", **origin).result.step == 0
        refused("another training writes to", train, data_dir, copy)


MOMENTS = {
    "step": (Trainer, "_run_steps", 1),
    "evaluation": (Evaluator, "loss", 1),
    "average": (Evaluator, "loss", 2),
    "results": (Trainer, "_results", 1),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_training_writes_nothing_to_another_that_took_its_place(
    moment, data_dir, tmp_path, monkeypatch
):
    """The directory was removed, and a new training has begun under its name."""
    replace_updates(monkeypatch)
    cls, method, at_call = MOMENTS[moment]
    function = getattr(cls, method)
    calls = []
    run = tmp_path / "run"
    new_files = {name: b"" for name in ("train.lock", "model.ckpt-7.index")}

    def replaced_meanwhile(*args, **kwargs):
        result = function(*args, **kwargs)
        calls.append(moment)
        if len(calls) == at_call:
            run.rename(tmp_path / "removed")
            run.mkdir()
            for name in new_files:
                (run / name).touch()
        return result

    monkeypatch.setattr(cls, method, replaced_meanwhile)
    options = {"eval_sentences": 0, "save_every": 1, "eval_every": 2}
    message = f"^{run} was removed, renamed or replaced .*; it writes nothing more"
    refused(message, train, data_dir, run, **options, hooks=["page"])
    assert {path.name: path.read_bytes() for path in run.iterdir()} == new_files


# Settings


def test_settings_bind_once_there_is_a_checkpoint(data_dir, copy, tmp_path):
    new = tmp_path / "new"
    trainer(data_dir, new, dropout=0.3)
    trainer(data_dir, new, dropout=0.1)
    moved = RunDirectory(new)
    assert moved.hparams.dropout == 0.1
    # Another process must have the settings that the chief has written.
    worker = SimpleNamespace(is_chief=False, barrier=lambda: None)
    changed = moved.hparams.override(dropout=0.3)
    message = r"dropout was 0\.1, is now 0\.3"
    refused(message, open_run, new, moved.config, changed, worker, False)
    files = {name: (copy / name).read_bytes() for name in names(copy)}
    message = r"dropout was 0\.0, is now 0\.3; give the .* or another output_dir, or "
    refused(message, train, data_dir, copy, hparams=SMALL.replace("=0", "=0.3"))
    refused("must be at least 2, not 1", train, data_dir, copy, train_steps=1)
    refused(r"give the same .* or another output_dir$", train, data_dir, copy, seed=2)
    assert {name: (copy / name).read_bytes() for name in names(copy)} == files


def test_constants_of_the_update_may_be_changed_if_that_is_asked_for(
    data_dir, copy, tmp_path
):
    flags = {"hparams": f"{SMALL},clip_norm=1,learning_rate=0.1"}
    message = r"clip_norm was 0\.0, is now 1\.0.*, or change_settings=True"
    refused(message, train, data_dir, copy, **flags)
    result = train(data_dir, copy, **flags, change_settings=True).result
    assert result.step == RunDirectory(copy).checkpoints.steps()[-1]
    assert RunDirectory(copy).hparams.clip_norm == 1.0
    flags = {"hparams": SMALL.replace("num_layers=1", "num_layers=2")}
    message = r"num_layers was 1, is now 2; give the same settings or another [^,]*$"
    refused(message, train, data_dir, copy, **flags, change_settings=True)
    # What can be validated is, before the settings bind.
    flags = {"hparams": SMALL.replace("=256", "=2")}
    message = "batch_tokens 2 is less than the longest"
    refused(message, train, data_dir, tmp_path / "new", **flags)
    assert names(tmp_path / "new") == {"train.lock"}


def test_a_data_directory_is_refused_as_a_run_directory(data_dir, tmp_path):
    (tmp_path / "link").symlink_to(data_dir)
    initial_names = names(data_dir)
    refused(r"output_dir: .* is the data_dir", train, data_dir, tmp_path / "link")
    assert names(data_dir) == initial_names


# Damaged files


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", b"", r"config\.json is damaged: it is not valid JSON"),
        ("config.json", b'{"problem": "x"}', r"the field 'hparams_set' is missing"),
        (
            "config.json",
            b'{"unk_token": "u"}',
            r"its config\.json is that of an export",
        ),
        ("hparams.json", b"", r"hparams\.json is damaged: it is"),
        ("hparams.json", b'{"dropout": []}', r"hparams\.json: hparams: dropout must"),
        ("hparams.json", None, r"there is no .*hparams\.json"),
    ],
)
def test_damaged_files_are_named(name, content, message, data_dir, copy):
    (copy / name).unlink()
    if content is not None:
        (copy / name).write_bytes(content)
    refused(message, train, data_dir, copy)


def test_changed_hparams_are_refused_by_all_that_opens_a_run(
    copy, data_dir, monkeypatch
):
    """`--change_settings` and more `train_steps` write another checksum."""
    result = {"step": 2, "stopped_by": "max_minutes"}
    monkeypatch.setattr(Trainer, "train", lambda self: result)
    train(data_dir, copy, train_steps=3)
    hparams = f"{SMALL},clip_norm=1"
    train(data_dir, copy, train_steps=3, hparams=hparams, change_settings=True)
    assert RunDirectory(copy).hparams.clip_norm == 1.0
    settings = copy / "hparams.json"
    config = copy / "config.json"
    settings.write_text(
        settings.read_text().replace('"clip_norm": 1', '"clip_norm": 2')
    )
    refused(r"hparams\.json is not as `t2t train` wrote it", t2t_keras.load, copy)
    # Without checksums, as after a kill while the settings were written.
    fields = json.loads(config.read_text())
    del fields["hparams_sha256"], fields["sha256"]
    config.write_text(json.dumps(fields))
    assert RunDirectory(copy).hparams.clip_norm == 2.0


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


def test_no_space_for_a_checkpoint(data_dir, tmp_path, monkeypatch):
    replace_updates(monkeypatch)
    message = f"cannot write checkpoint {tmp_path}/model.ckpt-1: File too large; free"
    with largest_file(40_000):
        refused(message, train, data_dir, tmp_path, train_steps=1)
    assert not list(tmp_path.glob("*incomplete*"))
    assert RunDirectory(tmp_path).checkpoints.steps() == []


def test_no_space_for_events(tmp_path):
    import tensorflow as tf

    writer = tf.summary.create_file_writer(str(tmp_path))
    with (
        pytest.raises(UserError, match="File too large; free disk") as raised,
        largest_file(1000),
        disk_errors(tmp_path),
        writer.as_default(step=1),
    ):
        tf.summary.text("long", "x" * 2000)
        writer.flush()
    assert "{{" not in str(raised.value)
    with pytest.raises(tf.errors.InvalidArgumentError), disk_errors(tmp_path):
        tf.constant([1.0, 2.0]) + tf.constant([1.0, 2.0, 3.0])


def test_orphans_of_killed_processes_are_removed(data_dir, copy):
    kinds = ("model", "best", "average")
    orphans = [f"incomplete.{prefix}.ckpt-1.data-00000.tempstate1" for prefix in kinds]
    for name in orphans:
        (copy / name).touch()
    train(data_dir, copy)
    # An average may be under way, for which there is no lock.
    assert names(copy) & set(orphans) == set(orphans[-1:])
    average_run(copy, count=1)
    assert not names(copy) & set(orphans)
    assert CheckpointDirectory(copy).steps("average.ckpt") == [2]


# Divergence and memory


def test_a_training_that_diverges_ends_with_one_sentence(data_dir, tmp_path, capfd):
    flags = {"hparams": f"{SMALL},learning_rate=100,warmup_steps=1", "train_steps": 8}
    flags |= {"log_every": 4, "eval_sentences": 0}
    # log 310, of the vocabulary that `small_data` asks for, is 5.74.
    message = "step 4: the training has diverged.* far above a loss by guessing, 5.7"
    printed = refused(message, train, data_dir, tmp_path, **flags)
    printed += capfd.readouterr().err
    assert max(map(len, printed.split())) < 200  # no number of 305 digits
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").open()]
    assert records[-1]["loss"] > 57
    assert RunDirectory(tmp_path).checkpoints.steps() == []


def test_a_batch_too_large_for_the_device(data_dir, tmp_path):
    """The message says how much of it fits."""
    from tensorflow.errors import InternalError, ResourceExhaustedError

    training = trainer(data_dir, tmp_path)
    half = training._data.largest_shape[0] // 2
    no_batch_fits = "lower batch_tokens, or divide batches with --accumulate"
    half_fits = (
        f"{half} such pairs fit: lower batch_tokens to 128, or give --accumulate 2"
    )
    for error_type, message, limit, remedy in (
        (ResourceExhaustedError, "OOM when allocating", 0, no_batch_fits),
        (InternalError, "cuBLAS: CUBLAS_STATUS_NOT_INITIALIZED", half, half_fits),
        (InternalError, "NCCL: unhandled cuda error (out of memory)", half, half_fits),
    ):

        def update(
            batch, step, rate, dry_run, limit=limit, error=(error_type, message)
        ):
            assert dry_run
            if len(batch["source"]) > limit:
                raise error[0](None, None, error[1])

        training._step.update = update
        refused(f"batch_tokens 256: .* memory; {remedy}$", training.train)

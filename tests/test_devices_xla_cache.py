import os
import re
import shutil
import subprocess
import sys

import pytest
import tensorflow as tf
from helpers.errors import refused

from t2t_keras.decoding.batches import search_in_batches
from t2t_keras.decoding.engine import Source
from t2t_keras.devices import compiled_programs, keep_compiled_programs
from t2t_keras.training.sanity_checks import is_out_of_memory

TRITON = "--xla_gpu_enable_triton_gemm=false"
MERGER = "--xla_gpu_dot_merger_threshold_mb=0"
CARD = {"device_name": "NVIDIA H100", "compute_capability": (9, 0)}


@pytest.fixture
def _gpu(monkeypatch, tmp_path):
    """A machine with a GPU, whose name is in `CARD`."""
    monkeypatch.setattr(
        tf.config, "list_physical_devices", lambda device_type: [device_type]
    )
    experimental = tf.config.experimental
    monkeypatch.setattr(experimental, "get_device_details", lambda device: CARD)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("TF_XLA_FLAGS", "XLA_FLAGS"):
        monkeypatch.setenv(name, "")


@pytest.mark.usefixtures("_gpu")
def test_programs_are_kept_by_card_and_flags(monkeypatch, tmp_path):
    folders = []
    for flags, card in (
        ("", "H100"),
        ("--xla_a=1", "H100"),
        ("", "A100"),
        ("", "H100"),
    ):
        monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_clustering_debug")
        monkeypatch.setenv("XLA_FLAGS", flags)
        monkeypatch.setitem(CARD, "device_name", card)
        keep_compiled_programs()
        assert os.environ["TF_XLA_FLAGS"].startswith("--tf_xla_clustering_debug --tf_x")
        folders.append(compiled_programs())
    assert folders[0] == folders[3]
    assert len(set(folders)) == 3
    for folder in folders:
        assert folder.parent == tmp_path / "cache/t2t_keras/xla"
        assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.usefixtures("_gpu")
def test_programs_of_training_and_decoding_have_the_same_flags(monkeypatch):
    """Training calls it twice, in `t2t` and in `make_strategy`; decoding once."""
    keep_compiled_programs()
    folder = compiled_programs()
    assert os.environ["XLA_FLAGS"] == f"{TRITON} {MERGER}"
    monkeypatch.setenv("TF_XLA_FLAGS", "")
    keep_compiled_programs()
    assert compiled_programs() == folder
    assert os.environ["XLA_FLAGS"] == f"{TRITON} {MERGER}"


@pytest.mark.usefixtures("_gpu")
@pytest.mark.parametrize(
    ("user_flags", "flags"),
    [
        ("--xla_a=1", f"--xla_a=1 {TRITON} {MERGER}"),
        (
            "--xla_gpu_enable_triton_gemm=true",
            f"--xla_gpu_enable_triton_gemm=true {MERGER}",
        ),
    ],
)
def test_flags_of_the_user_are_kept_with_a_folder_of_the_user(
    monkeypatch, user_flags, flags
):
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_persistent_cache_directory=/given")
    monkeypatch.setenv("XLA_FLAGS", user_flags)
    given = os.environ["TF_XLA_FLAGS"]
    keep_compiled_programs()
    assert (os.environ["XLA_FLAGS"], os.environ["TF_XLA_FLAGS"]) == (flags, given)
    assert str(compiled_programs()) == "/given"


@pytest.mark.usefixtures("_gpu")
def test_a_folder_that_cannot_be_made_is_not_taken(tmp_path):
    (tmp_path / "cache").write_text("a file")
    keep_compiled_programs()
    assert compiled_programs() is None


def test_without_a_gpu_nothing_is_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("TF_XLA_FLAGS", "XLA_FLAGS"):
        monkeypatch.setenv(name, "")
    keep_compiled_programs()
    assert compiled_programs() is None
    assert not os.environ["XLA_FLAGS"]
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("_gpu")
def test_with_little_space_nothing_is_kept(monkeypatch):
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=10**8))
    keep_compiled_programs()
    assert compiled_programs() is None


PROGRAM = """
import resource, sys
import tensorflow as tf
from t2t_keras.devices import program_failures_named
from t2t_keras.training.sanity_checks import is_out_of_memory
from t2t_keras.training.segment_sums import segment_sums

if limit := int(sys.argv[1]):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
function = tf.function(lambda v, i: segment_sums(v, i, 9), jit_compile=True)
with program_failures_named():
    try:
        print(float(tf.reduce_sum(function(tf.ones([5, 2]), tf.range(5)))))
    except tf.errors.OpError as error:
        assert not is_out_of_memory(error)
        raise
"""


def program_output(folder, limit=0):
    """Returns the output of a process whose files are limited in size."""
    flags = f"--tf_xla_persistent_cache_directory={folder}"
    completed = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(limit)],
        env={**os.environ, "TF_XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        errors="backslashreplace",  # TensorFlow prints bytes of the damaged program
        check=False,
    )
    return completed.stdout or completed.stderr.splitlines()[-1]


@pytest.mark.slow
def test_tensorflow_reads_what_another_process_has_kept(tmp_path):
    """On a CPU here: the folder is TensorFlow's, whatever the device."""
    assert program_output(tmp_path) == "10.0\n"
    (file,) = tmp_path.iterdir()
    time_written = file.stat().st_mtime_ns
    assert program_output(tmp_path) == "10.0\n"
    assert [path.stat().st_mtime_ns for path in tmp_path.iterdir()] == [time_written]
    content = file.read_bytes()
    for damaged in (content[:200], b"", b"\xff" * 300):
        file.write_bytes(damaged)
        message = program_output(tmp_path)
        assert f"UserError: {tmp_path}: a program that XLA kept there is da" in message


@pytest.mark.slow
def test_a_program_that_cannot_be_written(tmp_path):
    """It is not reported as a lack of device memory."""
    message = program_output(tmp_path, limit=1000)
    assert f"UserError: {tmp_path}: XLA cannot keep a program there (File t" in message


@pytest.mark.parametrize(
    ("error", "is_of_memory"),
    [
        ("/given/a.pb.tmp; No space left on device", False),
        ("Out of memory while trying to allocate 9 bytes", True),
    ],
)
def test_a_full_disk_is_not_a_full_device(monkeypatch, error, is_of_memory):
    """TensorFlow has one error for both."""
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_persistent_cache_directory=/given")
    raised = tf.errors.ResourceExhaustedError(None, None, error)
    assert is_out_of_memory(raised) == is_of_memory


def test_a_search_names_the_folder(monkeypatch):
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_persistent_cache_directory=/given")

    def search_batch(sources):
        raise tf.errors.InvalidArgumentError(
            None, None, "Serialized cache key does not match.\n\t [[{{node call}}]]"
        )

    message = "/given: a program that XLA kept there is damaged (Serialized cache key "
    refused(re.escape(message), search_in_batches, search_batch, [Source((1,), "")], 64)


@pytest.mark.slow
def test_xla_knows_the_flags_that_are_set():
    """An unknown flag would end every process with a GPU."""
    program = "import tensorflow as tf; tf.function(lambda: 1, jit_compile=True)()"
    flags = f"{TRITON} {MERGER}"
    unknown = "--xla_gpu_unknown=0"
    for xla_flags, is_known in ((flags, True), (f"{flags} {unknown}", False)):
        environment = {**os.environ, "XLA_FLAGS": xla_flags}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True
        )
        assert (done.returncode == 0) == is_known, done.stderr

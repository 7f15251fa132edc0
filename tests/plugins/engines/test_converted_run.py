"""Conversions of runs for `--engine auto`: when they are tried, found and refused."""

import contextlib
import dataclasses
import errno
import os
import shutil
import sys
from pathlib import Path

import pytest
from helpers.errors import refused

from t2t_keras.errors import UserError
from t2t_keras.export.directory import replaced
from t2t_keras.export.formats import converted, find_converted

pytest.importorskip("ctranslate2", reason="needs the extra [ctranslate2]")

from t2t_keras.plugins.engines import converted_run, gpus
from t2t_keras.plugins.engines.conversions import conversion_of
from t2t_keras.plugins.engines.converted_run import convert


@pytest.fixture
def path(trained_run, tmp_path):
    """A run without a conversion."""
    return shutil.copytree(trained_run, tmp_path / "run")


@pytest.fixture
def tried(monkeypatch):
    """The exports that were tried; each has wrong outputs."""
    exports = []

    def export(translator, path, verify):
        exports.append(path)
        raise UserError("the outputs differ; export something else")

    monkeypatch.setattr(converted_run, "export_ctranslate2", export)
    return exports


def full_disk(*args, **options):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_run_that_cannot_be_converted_is_tried_once(path, tried):
    for _ in range(2):
        refused("the outputs differ", convert, path, None, {})
    assert len(tried) == 1
    for step in (1, 2):
        refused("the outputs differ", convert, path, str(step), {})
    assert len(tried) == 3


def test_a_process_that_waited_does_not_try_again(path, tried, monkeypatch):
    conversion = conversion_of(path, None, {})

    @contextlib.contextmanager
    def wait_for_refusal(file, refusal):
        file.parent.mkdir()
        conversion.refuse("the outputs differ")
        yield

    monkeypatch.setattr(converted_run, "lock", wait_for_refusal)
    refused("the outputs differ", convert, path, None, {})
    assert not tried


def test_a_refusal_holds_for_the_options_of_the_problem(path):
    conversion = conversion_of(path, None, {})
    conversion.export.parent.mkdir()
    conversion.refuse("the outputs differ")
    refused("the outputs differ", conversion.raise_refusal)
    other = dataclasses.replace(conversion.default, extra_length=7)
    conversion._replace(default=other).raise_refusal()


def test_a_full_disk_does_not_refuse_the_run(path, monkeypatch):
    tried = []

    def export(translator, path, verify):
        tried.append(path)
        with replaced(path):
            full_disk()

    monkeypatch.setattr(converted_run, "export_ctranslate2", export)
    for _ in range(2):
        refused("No space left on device", convert, path, None, {})
    assert len(tried) == 2


def test_a_refusal_that_cannot_be_recorded(path, tried, monkeypatch):
    monkeypatch.setattr(Path, "write_text", full_disk)
    for _ in range(2):
        refused("the outputs differ", convert, path, None, {})
    assert len(tried) == 2


def test_tensorflow_translates_a_run_on_a_read_only_disk(path, monkeypatch, capfd):
    def mkdir(*args, **options):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "mkdir", mkdir)
    assert converted(path, None, {}) == (path, None)
    reason = f"{path / 'engines'} cannot be written (Read-only file system)"
    assert capfd.readouterr().err == f"engine: TensorFlow ({reason})\n"


@pytest.mark.parametrize(
    ("checkpoint", "options", "message"),
    [
        ("77", {}, "--checkpoint: there is no "),
        (None, {"n_best": 30}, "n_best 30 is more than beam_size 4; raise beam_size"),
    ],
)
def test_a_mistake_is_not_a_reason_for_tensorflow(
    path, checkpoint, options, message, capfd
):
    """It is said once."""
    refused(message, converted, path, checkpoint, options)
    assert not capfd.readouterr().err


def test_tensorflow_is_not_imported_to_look_for_a_gpu(path, tmp_path, monkeypatch):
    """Only it knows whether there is a GPU, so no conversion is found without it."""
    export = convert(path, None, {})
    driver = tmp_path / "nvidia0"
    monkeypatch.setattr(gpus, "_NVIDIA", str(driver))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with monkeypatch.context() as context:
        context.delitem(sys.modules, "tensorflow")
        assert find_converted(path, None, {}) == export
        driver.touch()
        assert find_converted(path, None, {}) is None
        for hidden in ("", "-1"):
            context.setenv("CUDA_VISIBLE_DEVICES", hidden)
            assert find_converted(path, None, {}) == export
        assert "tensorflow" not in sys.modules
    assert find_converted(path, None, {}) == export  # TensorFlow has no GPU

"""Messages of errors, and those that say what to install."""

import importlib.metadata
import json

import keras
import numpy as np
import pytest

from t2t_keras import errors
from t2t_keras.errors import (
    UserError,
    did_you_mean,
    first_line,
    install_command,
    misspelt_names,
    printable,
    quantity,
    require_readable_name,
)

GIT = {"url": "https://x/a.git", "vcs_info": {"vcs": "git", "commit_id": "1f"}}


@pytest.mark.parametrize(
    ("origin", "address"),
    [
        (None, ""),
        ({"url": "file:///my%20clone"}, " @ file:///my%20clone"),
        ({"url": "https://x/a.whl"}, " @ https://x/a.whl"),
        (GIT, " @ git+https://x/a.git@1f"),
    ],
)
def test_an_extra_is_installed_from_where_the_package_came(
    origin, address, monkeypatch, tmp_path
):
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "t2t_keras" / "errors.py"))
    if origin:
        (tmp_path / "direct_url.json").write_text(json.dumps(origin))
    distribution = importlib.metadata.PathDistribution(tmp_path)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: distribution)
    assert install_command("serve") == f'pip install "t2t_keras[serve]{address}"'
    # In a clone, another command would replace the installation by a copy.
    (tmp_path / "pyproject.toml").touch()
    assert install_command("serve") == f'pip install -e "{tmp_path}[serve]"'


def test_an_extra_of_a_package_that_was_only_copied(monkeypatch, tmp_path):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(errors, "__file__", str(tmp_path / "t2t_keras" / "errors.py"))
    monkeypatch.setattr(importlib.metadata, "distribution", absent)
    assert install_command("serve") == 'pip install "t2t_keras[serve]"'


def test_the_first_line_of_an_error_of_keras_is_its_reason():
    class Broken(keras.layers.Layer):
        def call(self, x):
            raise ValueError("x has 2 axes\nand needs 3")

    with pytest.raises(ValueError) as raised:
        Broken()(np.ones(3))
    assert str(raised.value).startswith("Exception encountered when calling Broken")
    assert first_line(raised.value) == "x has 2 axes"
    assert first_line(ValueError("\none\ntwo")) == "one"


@pytest.mark.parametrize(
    ("name", "is_misspelt"),
    [
        *(("trian", True), ("tain", True), ("traiin", True), ("truin", True)),
        *(("Train", True), ("rtain", True), ("train", True)),
        *(("trina_", False), ("trni", False), ("rain_s", False), ("iartn", False)),
    ],
)
def test_a_misspelling_differs_by_a_letter_or_a_swap(name, is_misspelt):
    assert misspelt_names(name, ["train", "translate"]) == ["train"] * is_misspelt


def test_the_nearest_name_is_meant():
    names = ["usr_dir", "user_name", "data_dir"]
    assert did_you_mean("user-dir", names) == "; did you mean 'usr_dir'?"
    assert did_you_mean("user_nam", names) == "; did you mean 'user_name'?"
    assert did_you_mean("dta_dir", names, "--{}") == "; did you mean --data_dir?"
    assert did_you_mean("x", names) == ""


@pytest.mark.parametrize("name", ["run[1]", "a*b", "a?", "a\\b", "a\udcff"])
def test_a_name_that_tensorflow_takes_for_a_pattern(tmp_path, name):
    """TensorFlow writes `run[1]/ckpt.index`, and then finds no file of this name."""
    with pytest.raises(UserError, match="output_dir: TensorFlow cannot read"):
        require_readable_name("output_dir", tmp_path / name)
    require_readable_name("output_dir", tmp_path / "run {1} (ü)")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((0, "lines"), "0 lines"),
        ((1, "lines"), "1 line"),
        ((1014, "lines"), "1,014 lines"),
        ((1, "batches", "batch"), "1 batch"),
        ((2, "batches", "batch"), "2 batches"),
    ],
)
def test_a_noun_agrees_with_its_number(arguments, text):
    assert quantity(*arguments) == text


def test_control_characters_are_shown_as_in_code():
    text = "".join(map(chr, range(0x180))) + "\udc9b"
    shown = printable(text)
    assert printable(shown) == shown and "\t" in shown and "\n" in shown
    kept = [c for c in text if c in "\t\n" or c.isprintable() or c in "\xa0\xad"]
    assert [c for c in text if printable(c) == c] == kept
    assert printable("\x1b[2J\x9b\x7f") == r"\x1b[2J\x9b\x7f"
    assert str(UserError("no \x1b]0;x\x07 in\r\na line")) == (
        r"no \x1b]0;x\x07 in\r\na line"
    )

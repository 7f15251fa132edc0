"""Files that are written atomically, locks, and JSON files with a checksum."""

import ast
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from errors import refused
from small_corpus import PROBLEM, faults, interrupt

from t2t_keras.data.atomic_files import atomic, open_records
from t2t_keras.data.datagen import generate
from t2t_keras.data.json_files import read_json, write_json
from t2t_keras.data.locks import lock, purpose_of_holder
from t2t_keras.data.manifest import Manifest
from t2t_keras.data.record_index import RecordIndex
from t2t_keras.errors import UserError
from t2t_keras.export.directory import replaced
from t2t_keras.run.directory import training_lock
from t2t_keras.text.vocabulary_file import write_vocabulary

ROOT = Path(__file__).parents[1]


@pytest.fixture
def victim(tmp_path):
    """A file of somebody else, to which a stranger's directory may have links."""
    path = tmp_path / "victim"
    path.write_text("precious\n")
    yield path
    assert path.read_text() == "precious\n"


# Temporary files


def test_a_temporary_file_is_new_and_its_name_cannot_be_guessed(tmp_path):
    names = set()
    for _ in range(2):
        with atomic(tmp_path / "file") as path:
            assert path.parent == tmp_path and path.read_bytes() == b""
            path.write_text("content")
            names.add(path.name)
    assert len(names) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666 & ~umask()


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_nothing_is_left_after_an_error(tmp_path):
    with pytest.raises(KeyError), atomic(tmp_path / "file") as path:
        path.write_text("half")
        raise KeyError
    assert not list(tmp_path.iterdir())


def test_a_long_name_is_possible(tmp_path):
    name = "ü" * 127
    with atomic(tmp_path / name) as path:
        path.write_text("content")
    assert (tmp_path / name).read_text() == "content"


def test_a_link_in_place_of_the_file_is_replaced(tmp_path, victim):
    (tmp_path / "file").symlink_to(victim)
    (tmp_path / "file.incomplete").symlink_to(victim)
    with atomic(tmp_path / "file") as path:
        path.write_text("content")
    assert not (tmp_path / "file").is_symlink()
    assert (tmp_path / "file").read_text() == "content"


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path):
    program = "import os, signal; from pathlib import Path\n"
    program += "from t2t_keras.data.atomic_files import atomic\n"
    program += "with atomic(Path('file')): os.kill(os.getpid(), signal.SIGKILL)\n"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path)
    assert done.returncode == -signal.SIGKILL
    (leftover,) = tmp_path.iterdir()
    unrelated = (
        "file.incomplete",
        "other.01234567.incomplete",
        "file.0123456.incomplete",
    )
    for name in unrelated:
        (tmp_path / name).write_text("of the user")
    with atomic(tmp_path / "file") as temporary:
        assert not leftover.exists()
        with atomic(tmp_path / "file"):  # another process writes the same file
            assert temporary.exists()
    assert {path.name for path in tmp_path.iterdir()} == {"file", *unrelated}


def test_a_vocabulary_is_not_written_through_a_link(tmp_path, victim):
    for name in ("vocab", f"vocab.{os.getpid()}.tmp"):
        (tmp_path / name).symlink_to(victim)
    write_vocabulary(tmp_path / "vocab", b"new")
    assert (tmp_path / "vocab").read_bytes() == b"new"


# A stranger's directories


def test_an_index_is_not_written_through_a_link(complete, tmp_path, victim):
    directory = shutil.copytree(complete, tmp_path / "data")
    index = directory / "small-train.index.npz"
    content = index.read_bytes()
    index.unlink()
    (directory / "small-train.index.npz.incomplete").symlink_to(victim)
    RecordIndex.open(directory, "small", "train")
    assert index.read_bytes() == content and not index.is_symlink()


@pytest.mark.parametrize("name", ["train.lock", "history.jsonl"])
def test_a_link_is_not_followed(name, tmp_path, victim):
    (tmp_path / name).symlink_to(victim)
    message = f"{name} is a symbolic link, .*; remove it"
    if name == "train.lock":
        refused(message, training_lock(tmp_path).__enter__)
    else:
        refused(message, open_records, tmp_path / name)


def test_what_is_no_file_is_refused(tmp_path):
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")  # to open it would wait for another process
    for name in ("directory", "pipe"):
        refused("is not a regular file", open_records, tmp_path / name)
        refused("is not a regular file", lock(tmp_path / name, None).__enter__)


def test_data_are_not_made_in_a_linked_directory(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "letter").write_text("dear")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "small.incomplete").symlink_to(home)
    refused("is a symbolic link", generate, PROBLEM, tmp_path / "data", workers=1)
    assert [path.name for path in home.iterdir()] == ["letter"]


def test_data_are_not_published_from_a_linked_directory(tmp_path, small_scale):
    data = tmp_path / "data"
    home = tmp_path / "home"
    with faults(12, interrupt), pytest.raises(KeyboardInterrupt):
        generate(PROBLEM, data, workers=1)
    (data / "small.incomplete" / "done").rename(home)
    (data / "small.incomplete" / "done").symlink_to(home)
    (home / "letter").write_text("dear")
    refused("done is a symbolic link", generate, PROBLEM, data, workers=1)
    assert (home / "letter").exists()


def test_an_export_is_not_made_in_a_linked_directory(tmp_path):
    home = tmp_path / "home"
    (home / "new").mkdir(parents=True)
    (tmp_path / ".1.incomplete").symlink_to(home)
    refused("is a symbolic link", replaced(tmp_path / "1").__enter__)
    assert [path.name for path in home.iterdir()] == ["new"]


# Locks


def test_a_lock_tells_its_purpose_while_it_is_held(tmp_path):
    path = tmp_path / "lock"
    with lock(path, None, "process 1 on host"):
        assert purpose_of_holder(path) == "process 1 on host"
        refusal = lock(path, lambda purpose: UserError(f"busy: {purpose}"))
        refused("busy: process 1 on host", refusal.__enter__)
    assert path.read_text() == "" and purpose_of_holder(path) is None
    path.write_text("process 9 on the host of a killed process")
    with lock(path, None, "process 2 on host"):
        assert path.read_text() == "process 2 on host"


def test_a_lock_does_not_truncate_what_others_wrote(tmp_path):
    path = tmp_path / "lock"
    path.write_text("my notes")
    with lock(path, None, "process 1 on host"):
        assert purpose_of_holder(path) == ""
    assert path.read_text() == "my notes"
    assert purpose_of_holder(tmp_path / "absent") is None
    assert not (tmp_path / "absent").exists()


def test_lines_are_added_to_whole_lines(tmp_path):
    path = tmp_path / "lines"
    for text in ("1\n", "2", "3\n"):  # the process that wrote 2 was killed
        with open_records(path) as file:
            file.write(text)
    assert path.read_text() == "1\n2\n3\n"


# JSON with a checksum

FIELDS = {"a": [1, 0.1], "ü": {"b": None}, "path": "\udcfc"}


def test_json_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "file.json"
    assert read_json(path) is None
    for with_checksum in (False, True):
        write_json(path, FIELDS, with_checksum)
        assert read_json(path) == FIELDS
    fields = json.loads(path.read_text())
    path.write_text(json.dumps(fields))  # other white space, the same content
    assert read_json(path) == FIELDS
    del fields["sha256"]
    path.write_text(json.dumps(fields | {"a": 5}))  # as the message advises
    assert read_json(path) == FIELDS | {"a": 5}


def test_every_flipped_bit_that_changes_the_content_is_noticed(tmp_path):
    path = tmp_path / "file.json"
    write_json(path, {"seed": 17, "names": ["train", "dev"], "x": None}, True)
    content = path.read_bytes()
    expected = read_json(path)
    for position in range(len(content)):
        for bit in range(8):
            damaged = bytearray(content)
            damaged[position] ^= 1 << bit
            path.write_bytes(damaged)
            try:
                value = read_json(path)
            except UserError as error:
                assert str(path) in str(error) and "restore it from" in str(error)
            else:  # of white space, or of the checksum's name, which schemas refuse
                assert value == expected or len(value) == len(expected) + 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it is not valid JSON"),
        (b"\xff", "it is not valid JSON"),
        (b"[" * 100_000, "it is not valid JSON"),
        (b"[1]", "it is not a JSON object"),
        (
            b'{"a": 1, "sha256": null}',
            "has been damaged or edited: .*remove that field",
        ),
        (b'{"a": 1, "sha256": ["x"]}', "has been damaged or edited"),
    ],
)
def test_damaged_json_is_refused(content, message, tmp_path):
    path = tmp_path / "file.json"
    path.write_bytes(content)
    refused(f"file.json .*{message}", read_json, path, "make it again")


# The index of records


def index_with(directory: Path, position: int, bit: int) -> int | None:
    """Returns the number of records with a flipped bit; None: it was refused."""
    path = directory / "small-train.index.npz"
    content = path.read_bytes()
    damaged = bytearray(content)
    damaged[position] ^= 1 << bit
    path.write_bytes(damaged)
    try:
        return len(Manifest.open(directory, "small").open_index(directory, "train"))
    finally:
        assert path.read_bytes() in (content, bytes(damaged))
        path.write_bytes(content)


@pytest.mark.parametrize("version", ["this", "earlier"])
def test_no_bit_of_an_index_loses_records(complete, tmp_path, version, capsys):
    """NumPy reads fewer rows of a table if its header says so, without an error."""
    directory = shutil.copytree(complete, tmp_path / "data")
    if version == "earlier":
        path = Manifest.path(directory, "small")
        fields = json.loads(path.read_text())
        del fields["sha256"], fields["index_sha256"]
        path.write_text(json.dumps(fields))
    content = (directory / "small-train.index.npz").read_bytes()
    with np.load(directory / "small-train.index.npz") as arrays:
        rows = [len(arrays[str(shard)]) for shard in range(3)]
    for index in rows:
        header = content.index(b"'shape': (%d" % index)
        for position in range(header + 10, header + 14):
            for bit in range(8):
                assert index_with(directory, position, bit) == sum(rows)
    assert "is damaged; building it again" in capsys.readouterr().err


def test_records_are_counted(complete, tmp_path):
    directory = shutil.copytree(complete, tmp_path / "data")
    manifest = Manifest.open(directory, "small")
    miscounted = {**manifest.examples, "train": manifest.examples["train"] + 1}
    path = Manifest.path(directory, "small")
    write_json(path, json.loads(path.read_text()) | {"examples": miscounted}, True)
    message = "has 287 train examples of 'small', and small.manifest.json says 288"
    refused(message, Manifest.open(directory, "small").open_index, directory, "train")


def test_other_shards_are_noticed(complete, tmp_path):
    """Those of another order of the same examples, with its index."""
    generate(PROBLEM, tmp_path / "other", workers=1, seed=1)
    directory = shutil.copytree(complete, tmp_path / "data")
    for path in directory.glob("small-train*"):
        path.unlink()
    for path in (tmp_path / "other").glob("small-train*"):
        shutil.copy(path, directory)
    message = "the train data of 'small' in .* are not those"
    refused(message, Manifest.open(directory, "small").open_index, directory, "train")


# The encoding of text


FOLDERS = ("t2t_keras", "problems", "hparams", "plugins", "examples", "benchmarks")


def test_every_text_file_names_its_encoding():
    """In a locale that is not UTF-8, Python would take that of the locale."""
    missing = []
    for path in (p for name in FOLDERS for p in (ROOT / name).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and opens_text(node):
                missing.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not missing


def opens_text(call: ast.Call) -> bool:
    """Returns whether a call reads or writes text without its encoding."""
    function = call.func
    is_method = isinstance(function, ast.Attribute)
    name = function.attr if is_method else getattr(function, "id", "")
    words = [
        argument.value for argument in call.args if isinstance(argument, ast.Constant)
    ]
    if "utf-8" in words or any(
        argument.arg == "encoding" for argument in call.keywords
    ):
        return False
    if name in ("read_text", "write_text"):
        return is_method
    is_text = any(re.fullmatch(r"[rwax]\+?t?", str(word)) for word in words)
    has_default_mode = name == "open" and not is_method and len(call.args) == 1
    return name in ("open", "fdopen") and (is_text or has_default_mode)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("path.read_text()", True),
        ("path.read_text('utf-8', 'replace')", False),
        ("path.write_text(text)", True),
        ("path.write_text(text, encoding='utf-8')", False),
        ("open(path)", True),
        ("open(path, 'a+')", True),
        ("path.open('w')", True),
        ("path.open('rb')", False),
        ("open(path, 'w', -1, 'utf-8')", False),
        ("Manifest.open(path, name)", False),
    ],
)
def test_such_calls_are_told_apart(code, expected):
    assert opens_text(ast.parse(code).body[0].value) == expected

"""Files of `torch.save` are read without PyTorch, and nothing in them is called."""

import pickle
import random
import time
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from helpers import errors
from helpers.torch_files import (
    Call,
    Identity,
    Name,
    Raw,
    pickled,
    save,
    storage,
    tensor,
    write_legacy,
    write_zip,
)

from t2t_keras import UserError
from t2t_keras.plugins.interop.marian.torch_files import read_torch_file

FIXTURES = Path(__file__).parents[3] / "fixtures" / "torch"
FORMS = pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "legacy"])


def refused(sentence: str, path: Path) -> None:
    message = errors.refused(sentence, read_torch_file, path)
    assert message.startswith(str(path)) and len(message) < 400


def write(path: Path, value: object, storages: list[bytes], is_zip: bool) -> Path:
    return (write_zip if is_zip else write_legacy)(path, value, storages)


@pytest.mark.parametrize("form", ["zip", "legacy"])
def test_what_pytorch_has_saved(form):
    """The README of the fixtures has the program that wrote them."""
    w = np.arange(12, dtype=np.float32).reshape(3, 4)
    expected = {
        **{"float32": w, "tied": w, "transposed": w.T, "slice": w[1:, 1:3]},
        "parameter": np.array([0.5, -1.5], np.float32),
        "float16": np.array([0.5, -2.0], np.float16),
        "bfloat16": np.array([[1.0, -3.25]], np.float32),
        **{"int64": np.arange(3), "int8": np.array([-1, 5], np.int8)},
        "scalar": np.array(3.5, np.float32),
        "empty": np.zeros((0, 3), np.float32),
    }
    arrays = read_torch_file(FIXTURES / f"{form}.bin")
    assert arrays.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(arrays[name], array)
        assert arrays[name].dtype == array.dtype


@FORMS
def test_the_files_of_these_tests_are_those_of_pytorch(is_zip, tmp_path):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    arrays = {name: rng.normal(size=(3, 4)).astype(np.float32) for name in "ab"}
    path = save(arrays, tmp_path / "model.bin", is_zip)
    for name, loaded in torch.load(path, weights_only=True).items():
        np.testing.assert_array_equal(loaded.numpy(), arrays[name])
        np.testing.assert_array_equal(read_torch_file(path)[name], arrays[name])


@FORMS
def test_every_bfloat16_is_widened(is_zip, tmp_path):
    bits = np.arange(2**16, dtype=np.uint16)
    path = save({"a": bits}, tmp_path / "model.bin", is_zip)
    expected = (bits.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(read_torch_file(path)["a"], expected)


# Code that is not run

MARK = "called"


def payloads() -> dict[str, object]:
    command = f"touch {MARK}"
    system = Name("posix", "system")
    return {
        "call": Call(system, (command,)),
        "entry": {"a": Call(system, (command,))},
        "eval": {"a": Call(Name("builtins", "eval"), (f"open('{MARK}','w')",))},
        "INST": Raw(b"(X\x0c\x00\x00\x00touch called" + b"iposix\nsystem\n"),
        "OBJ": Raw(b"(cposix\nsystem\nX\x0c\x00\x00\x00touch calledo"),
        "NEWOBJ": Raw(b"cposix\nsystem\n(t\x81"),
        "EXT1": Raw(b"\x82\x01"),
        "GLOBAL": Raw(b"X\x05\x00\x00\x00posixX\x06\x00\x00\x00system\x93"),
        "BUILD": Raw(b"cbuiltins\nprint\n}X\x01\x00\x00\x00ai\x01sb"),
        "attribute": {"a": Call(Name("torch", "hub.load"), ("x",))},
        "_load": {"a": Call(Name("torch.storage", "_load_from_bytes"), ("x",))},
    }


@FORMS
@pytest.mark.parametrize("name", payloads())
def test_code_is_refused_and_does_not_run(name, is_zip, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "model.bin", payloads()[name], [], is_zip)
    refused(r"(holds '|has the pickle opcode |cut off or damaged)", path)
    plain = tmp_path / "plain.bin"
    plain.write_bytes(pickled(payloads()[name]))
    refused("", plain)
    assert not (tmp_path / MARK).exists()


def test_the_payloads_would_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pickle.loads(pickled(payloads()["call"]))
    assert (tmp_path / MARK).exists()


# Other content

A = np.arange(6, dtype=np.float32).tobytes()
FLOATS = storage("0", 6)


@FORMS
@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (Call(Name("torch.nn", "Linear"), ()), "holds 'torch.nn.Linear', and only"),
        (
            {"epoch": 3, "model": {"a": tensor(FLOATS, 0, (6,), (1,))}},
            "entry 'epoch', .* checkpoint for training",
        ),
        ({"model": {"a": tensor(FLOATS, 0, (6,), (1,))}}, "entry 'model'"),
        (tensor(FLOATS, 0, (6,), (1,)), "holds a tensor without a name"),
        ([1, 2], "holds no named tensors"),
        ({"a": tensor(storage("0", 3, "DoubleStorage"), 0, (3,), (1,))}, "DoubleStor"),
        ({"a": tensor(storage("0", 3, "QInt8Storage"), 0, (3,), (1,))}, "QInt8Stor"),
        (
            {"a": Call(Name("torch._utils", "_rebuild_sparse_tensor"), ())},
            "_rebuild_sparse_tensor', and only named tensors",
        ),
        ({"a": tensor(FLOATS, 0, (7,), (1,))}, "the tensor 'a' beyond its storage"),
        ({"a": tensor(FLOATS, 1, (6,), (1,))}, "the tensor 'a' beyond its storage"),
        ({"a": tensor(FLOATS, 0, (2, 3), (4, 1))}, "the tensor 'a' beyond its stora"),
        ({"a": tensor(FLOATS, 0, (9,), (0,))}, "the tensor 'a' beyond its storage"),
        ({"a": tensor(FLOATS, 0, (2**40, 2**40), (0, 0))}, "beyond its storage"),
        ({"a": tensor(FLOATS, -1, (3,), (1,))}, "damaged"),
        ({"a": tensor(FLOATS, 0, (3,), (-1,))}, "damaged"),
        ({"a": tensor(FLOATS, 0, (3,), (1, 1))}, "damaged"),
        ({"a": tensor(FLOATS, 0, (1,) * 99, (1,) * 99)}, "damaged"),
        ({"a": tensor(FLOATS, 0, (0, 2**47, 2**47), (1, 1, 1))}, "damaged"),
        ({"a": tensor(storage("0", 7), 0, (6,), (1,))}, "damaged"),
        ({"a": tensor(storage("1", 6), 0, (6,), (1,))}, "damaged"),
        ({"a": tensor(Identity(("module", 1)), 0, (6,), (1,))}, "damaged"),
        ({(): 1}, "damaged"),
    ],
)  # fmt: skip
def test_other_content(value, sentence, is_zip, tmp_path):
    refused(sentence, write(tmp_path / "model.bin", value, [A], is_zip))


@FORMS
def test_many_names_of_one_storage(is_zip, tmp_path):
    size = 6 * 9999
    matrix = tensor(storage("0", size), 0, (size,), (1,))
    value = {str(i): matrix for i in range(9)}
    path = write(tmp_path / "model.bin", value, [A * 9999], is_zip)
    refused("tensors that are much larger than the file", path)


def test_views_of_old_storages(tmp_path):
    identity = ("storage", Name("torch", "FloatStorage"), "0", "cpu", 6)
    for view, sentence in ((None, None), (("1", 0, 3), "has a view of a storage")):
        stored = Identity((*identity, view))
        value = {"a": tensor(stored, 0, (6,), (1,))}
        path = write_legacy(tmp_path / "model.bin", value, [A])
        if sentence:
            refused(sentence, path)
        else:
            assert read_torch_file(path)["a"].tolist() == [0, 1, 2, 3, 4, 5]


POINTER = (
    "version https://git-lfs.github.com/spec/v1\n"
    f"oid sha256:{'0' * 64}\nsize 298000000\n"
)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty; fetch it again"),
        (b"<!doctype html><p>Not found", "is a page of HTML, not tensors"),
        (POINTER.encode(), "is a pointer of Git LFS"),
        (b"cposix\nsystem\n(Vtouch called\ntR.", "is another file, not tensors"),
        (pickled({"a": 1}), "is a pickle, but not one that PyTorch has saved"),
        (pickle.dumps({"a": 1}, protocol=4), "has the pickle opcode FRAME"),
        (pickled(0x1950A86A20F9469CFC6C) + pickled(7), "another version of PyTorch"),
        (b"PK\x03\x04", "is cut off or damaged"),
    ],
)
def test_other_files(content, sentence, tmp_path):
    path = tmp_path / "model.bin"
    path.write_bytes(content)
    refused(sentence, path)


def test_no_file(tmp_path):
    errors.refused("cannot read .*No such file", read_torch_file, tmp_path / "x.bin")
    errors.refused("cannot read .*Is a directory", read_torch_file, tmp_path)


def test_other_archives(tmp_path):
    value = {"a": tensor(FLOATS, 0, (6,), (1,))}
    path = tmp_path / "model.bin"
    refused(
        "is a compressed archive", write_zip(path, value, [A], zipfile.ZIP_DEFLATED)
    )
    refused("byte order b'big'", write_zip(path, value, [A], byteorder="big"))
    assert read_torch_file(write_zip(path, value, [A], byteorder="little"))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme", "hello")
    refused("a ZIP archive, but not one that PyTorch has saved", path)


@FORMS
def test_files_that_are_cut(is_zip, tmp_path):
    path = save({"a": np.ones((9, 9), np.float32)}, tmp_path / "model.bin", is_zip)
    content = path.read_bytes()
    for size in range(3, len(content), 7):
        path.write_bytes(content[:size])
        refused("is cut off or damaged", path)


# Time and memory


@FORMS
def test_flipped_bytes(is_zip, tmp_path):
    """Every file is read, or refused in one sentence, and soon."""
    arrays = {name: np.ones((2, 3), np.float32) for name in ("one", "two")}
    path = save(arrays, tmp_path / "model.bin", is_zip)
    content = path.read_bytes()
    rng = random.Random(0)
    start = time.monotonic()
    num_refused = 0
    for _ in range(400):
        changed = bytearray(content)
        for _ in range(3):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        path.write_bytes(changed)
        try:
            read_torch_file(path)
        except UserError as error:
            assert "\n" not in str(error)
            num_refused += 1
    assert num_refused > 100
    assert time.monotonic() - start < 30


@pytest.mark.parametrize(
    "bomb",
    [
        b"Nr\xff\xff\xff\xff",  # the index of a memo of 2 ** 32 entries
        b"T\xff\xff\xff\x7f",  # a string of 2 GiB
        b"\x8b\xff\xff\xff\x7f",  # a number of 2 GiB
        b"}" * 10**5,
        b"(" * 10**5,
        b"N" + b"\x85" * 10**5,  # nested tuples
        b"N" + b"q\x00h\x00\x86" * 10**5,  # a tuple of 2 ** 100,000 leaves
        b"}N" + b"q\x00h\x00\x86" * 99 + b"Ns",  # as a key
        b"](" + b"X\x00\x00\x10\x00" + b"a" * 2**20 + b"e",
        b"]q\x00h\x00a" * 10**4,  # lists that hold themselves
    ],
    ids=range(10),
)
@FORMS
def test_bombs(bomb, is_zip, tmp_path):
    path = write(tmp_path / "model.bin", Raw(bomb), [], is_zip)
    start = time.monotonic()
    tracemalloc.start()
    refused("", path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**28
    assert time.monotonic() - start < 30


@FORMS
def test_a_large_file_is_not_copied(is_zip, tmp_path):
    matrix = np.ones((1000, 4000), np.float32)
    path = save({"a": matrix}, tmp_path / "model.bin", is_zip)
    tracemalloc.start()
    array = read_torch_file(path)["a"]
    assert tracemalloc.get_traced_memory()[1] < matrix.nbytes // 2
    tracemalloc.stop()
    np.testing.assert_array_equal(array, matrix)

"""`t2t import` fetches models from the Hub and from addresses, and unpacks archives.

The servers are on this machine. Only names and sizes of the files count here, except
where a model is imported.
"""

import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import zipfile
from pathlib import Path

import pytest
from helpers import errors, torch_files
from helpers.command_line import run, run_json
from helpers.hub import COMMIT, hub
from helpers.marian_models import (
    hf_config,
    settings,
    token_list,
    weights,
    write_hf,
    write_marian,
    write_splitters,
)
from huggingface_hub import constants
from safetensors.numpy import load_file

from t2t_keras import UserError
from t2t_keras.plugins.interop import model_sources
from t2t_keras.plugins.interop.model_sources import is_on_disk, model_files
from t2t_keras.plugins.reports import describe
from t2t_keras.run.config import RunConfig

NAME = "Helsinki-NLP/opus-mt-en-de"
NEEDED = {"config.json": b"{}", "vocab.json": b"{}"}
NEEDED |= {"source.spm": b"s", "target.spm": b"t"}
README = b"---\nlicense: cc-by-4.0\ntags:\n- translation\n---\n# Model\n"
POINTER = (
    b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 298000000\n"
) % (b"0" * 64)
BIN = NEEDED | {"pytorch_model.bin": b"weights", "README.md": README}
ORIGIN = {"repository": NAME, "commit": COMMIT, "license": "cc-by-4.0"}


def use_endpoint(address: str, monkeypatch) -> None:
    """Does what HF_ENDPOINT does when huggingface_hub is imported."""
    monkeypatch.setattr(constants, "ENDPOINT", address)
    template = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)


@pytest.fixture
def server(tmp_path, monkeypatch):
    with hub() as server:
        use_endpoint(server.address, monkeypatch)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.chdir(tmp_path)
        yield server


def found(source: str) -> model_sources.FoundModel:
    assert not is_on_disk(source)
    with model_files(source) as model:
        return model


def refused(sentence: str, source: str) -> str:
    return errors.refused(sentence, found, source)


def go_offline(monkeypatch) -> None:
    with socket.socket() as free:  # nobody listens there
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    use_endpoint(address, monkeypatch)


# The Hub


def test_only_what_is_needed_is_fetched(server, capfd):
    others = {
        "rust_model.ot": b"x" * 99,
        "tf_model.h5": b"x",
        "flax_model.msgpack": b"",
    }
    server.repositories[NAME] = BIN | others | {"generation_config.json": b"{}"}
    model = found(NAME)
    names = {path.name for path in model.path.iterdir()}
    assert names == {*BIN, "generation_config.json"}
    assert model.origin == ORIGIN
    said = capfd.readouterr().err
    assert said.startswith(f"{NAME}: 0.0 MB, licence cc-by-4.0 (http://127")
    assert said.count("\n") == 1
    fetched = {Path(path).name for path in server.requests if "/resolve/" in path}
    assert fetched == names
    server.requests.clear()
    assert found(NAME).path == model.path
    assert not [path for path in server.requests if "/resolve/" in path]


def test_safetensors_come_first(server):
    server.repositories[NAME] = BIN | {"model.safetensors": b"x"}
    names = {path.name for path in found(NAME).path.iterdir()}
    assert "model.safetensors" in names and "pytorch_model.bin" not in names


def test_a_revision(server):
    server.repositories[NAME] = BIN
    assert found(f"{NAME}@refs/pr/1").origin["commit"] == COMMIT
    refused(rf"{server.address}/{NAME} has no revision nosuch", f"{NAME}@nosuch")


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        (None, f"no path {NAME}, and there is no public model h.*/{NAME}; .*=opus-mt"),
        ("GatedRepo", "wants its terms accepted: .*`hf auth login`"),
        (
            NEEDED | {"onnx/encoder_model.onnx": b"x"},
            "not a Marian model of transformers: it has no model.safetensors or pytor",
        ),
        ({"config.json": b"", "model.safetensors": b""}, "no vocab.json and no source"),
        (
            BIN | {"pytorch_model.bin": POINTER},
            "a pointer of Git LFS in the place of p",
        ),
        ("500", r"http.* cannot be fetched \(.*500.*\) and is not in .*cache; if you"),
    ],
)
def test_repositories_that_are_refused(files, sentence, server):
    if files is not None:
        server.repositories[NAME] = files
    refused(sentence, NAME)


def test_a_file_that_ends_early(server, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between the attempts
    server.repositories[NAME] = BIN | {"pytorch_model.bin": b"x" * 1000}
    server.cut.add("pytorch_model.bin")
    refused("cannot be fetched .* and is not in", NAME)
    server.cut.clear()
    assert (found(NAME).path / "pytorch_model.bin").stat().st_size == 1000


def test_ctrl_c_stops_a_download(server):
    # A shell lets the processes that it starts in the background ignore Ctrl-C.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    main_thread = threading.main_thread().ident
    has_stopped = threading.Event()
    late = []

    def press():
        signal.pthread_kill(main_thread, signal.SIGINT)
        if not has_stopped.wait(5):
            late.append(1)

    server.repositories[NAME] = BIN | {"pytorch_model.bin": b"x" * 1000}
    server.cut.add("pytorch_model.bin")
    server.after_half = press
    with pytest.raises(KeyboardInterrupt):
        found(NAME)
    signal.signal(signal.SIGINT, handler)
    has_stopped.set()
    assert not late
    server.cut.clear()
    assert (found(NAME).path / "pytorch_model.bin").stat().st_size == 1000


@pytest.mark.parametrize("how", ["no network", "HF_HUB_OFFLINE"])
@pytest.mark.parametrize("revision", ["", "@refs/pr/1"])
def test_without_a_network(how, revision, server, monkeypatch, capfd):
    source = f"{NAME}{revision}"
    server.repositories[NAME] = BIN

    def offline():
        if how == "HF_HUB_OFFLINE":
            monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        else:
            go_offline(monkeypatch)

    offline()
    message = refused("and is not in .*cache; if you have its files, give", source)
    start = f"there is no path {NAME}, and {constants.ENDPOINT}/{NAME} cannot be fetch"
    assert message.startswith(start)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    use_endpoint(server.address, monkeypatch)
    model = found(source)
    offline()
    capfd.readouterr()
    again = found(source)
    assert (again.path, again.origin) == (model.path, ORIGIN)
    said = capfd.readouterr().err
    assert said.startswith("cannot fetch http://127") and "cache is taken" in said
    (model.path / "pytorch_model.bin").unlink()
    refused("is not in .*cache", source)


def test_a_path_wins(server, tmp_path):
    folder = tmp_path / NAME
    folder.mkdir(parents=True)
    server.repositories[NAME] = BIN
    assert is_on_disk(NAME)
    with model_files(NAME) as model:
        assert (model.path, model.origin) == (Path(NAME), {})
    assert server.requests == []
    assert found(f"hf:{NAME}").origin == ORIGIN
    del server.repositories[NAME]
    assert refused("", f"hf:{NAME}").startswith("there is no public model http://127")


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        (
            "opus-mt-en-de",
            "no opus-mt-en-de; did you mean Helsinki-NLP/opus-mt-en-de, a",
        ),
        ("nothing", "there is no 'nothing'; a model is a path, OWNER/NAME on the Hug"),
        ("", "there is no ''; a model is a path"),
        ("a/b/c", "there is no 'a/b/c'; a model"),
        ("hf:name", "hf:name is not a model of the Hugging Face Hub, whose names are"),
        *(
            (
                f"{start}/staka/fugumt-en-ja{end}",
                "give the name .*, staka/fugumt-en-ja$",
            )
            for start in ("https://huggingface.co", "huggingface.co", "https://hf.co")
            for end in ("", "/", "/tree/main")
        ),
        ("gs://bucket/x", "is not a path of this machine"),
        (
            "http://example.com/x.zip",
            "can be read by others on the way; give its https",
        ),
        ("ftp://example.com/x.zip", "is not a path of this machine"),
        ("http://[/x.zip", "is not a path of this machine"),
    ],
)
def test_other_names(source, sentence):
    errors.refused(sentence, is_on_disk, source)


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    sentence = rf"no path {NAME} here, .* needs huggingface_hub, .*: pip install"
    errors.refused(sentence, is_on_disk, NAME)


@pytest.mark.parametrize(
    ("tag", "readme", "license_name"),
    [
        ("license:mit", README, "mit"),
        ("license:x\x1b[31m", README, "cc-by-4.0"),
        ("en", b'---\nlicense: "x\\e[31m"\n---\n', None),
        *(("en", x, None) for x in (b"", b"no", b"---\n- a\n---\n", b"---\n{\n---\n")),
    ],
)
def test_the_licence_of_a_repository(tag, readme, license_name, server):
    """What strangers write in its place is not recorded."""
    server.tags = [tag]
    server.repositories[NAME] = BIN | {"README.md": readme}
    assert found(NAME).origin.get("license") == license_name


# Archives


def archive(files: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as file:
        for name, content in files.items():
            file.writestr(name, content)
    return buffer.getvalue()


FILES = {"decoder.yml": b"a: 1", "LICENSE": b"Attribution 4.0 International\n\n==="}


# Where the central directory begins to describe a file; a 1 at the end: encrypted.
CENTRAL = b"PK\x01\x02\x14\x03\x14\0\0"


@pytest.mark.parametrize("folder", ["", "opus/", "a/b/"])
@pytest.mark.parametrize("is_address", [True, False])
def test_an_archive(folder, is_address, server):
    content = archive({f"{folder}{name}": text for name, text in FILES.items()})
    source = "release.zip"
    Path(source).write_bytes(content)
    if is_address:
        source = f"{server.address}/en-de/release.zip"
        server.files["/en-de/release.zip"] = content
    with model_files(source) as model:
        assert (model.path / "decoder.yml").read_bytes() == b"a: 1"
    assert not model.path.exists()
    assert model.origin == {"archive": source, "license": "cc-by-4.0"}
    assert model.shown(f"{model.path}/x") == f"{source}/x"
    with (
        pytest.raises(UserError, match=rf"^{source}/a is bad$"),
        model_files(source) as model,
    ):
        raise UserError(f"{model.path}/a is bad")


def test_names_that_lead_outside(server, tmp_path):
    names = {"../../out": b"x", "/tmp/../../out": b"x", "a/../../out": b"x"}
    Path("x.zip").write_bytes(archive(FILES | names))
    before = {*tmp_path.parent.glob("*")}
    with model_files("x.zip") as model:
        inside = [path.name for path in model.path.rglob("*")]
        assert inside.count("out") >= 1
    assert {*tmp_path.parent.glob("*")} == before and not Path("/tmp/out").exists()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (archive(FILES)[:-9], "x.zip is cut off or damaged .*; fetch it again"),
        (archive(FILES)[:40], "x.zip is cut off or damaged"),
        (b"<html>", "x.zip is a page of HTML, not a ZIP file"),
        (b"", "x.zip is not a ZIP file"),
        (archive({"a": b"0" * 10**8}), "would have 100,000,000 bytes when it is unp"),
        (archive({str(i): b"" for i in range(2000)}), "2,000 files; is it a model"),
        (archive(FILES, 0).replace(b"a: 1", b"b: 2", 1), "cut off or damaged .*CRC"),
        (archive({"a": b"0" * 9}).replace(b"a30", b"a\xff0", 1), "damaged .*decompre"),
        (archive(FILES).replace(CENTRAL, CENTRAL[:-1] + b"\1"), "x.zip is encrypted"),
    ],
    ids=range(9),
)  # fmt: skip
def test_archives_that_are_refused(content, sentence, server):
    Path("x.zip").write_bytes(content)
    refused(sentence, "x.zip")
    assert server.requests == []


def test_too_little_space_for_an_archive(server, monkeypatch):
    content = archive(FILES)
    Path("x.zip").write_bytes(content)
    server.files["/x.zip"] = content
    usage = shutil.disk_usage("/")._replace(free=9)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    sentence = rf"bytes in {tempfile.gettempdir()}, where 9 are free; set TMPDIR"
    refused(sentence, "x.zip")
    refused(sentence, f"{server.address}/x.zip")


def test_addresses_that_are_refused(server, monkeypatch):
    address = f"{server.address}/x.zip"
    refused(r"x.zip: the server answers 404 .*lists the releases of OPUS-MT", address)
    server.files["/x.zip"] = b"<!doctype html><p>Moved"
    refused("x.zip is a page of HTML, not a ZIP file", address)
    server.files["/x.zip"] = archive(FILES)
    server.cut.add("/x.zip")
    refused(r"cannot fetch .*x.zip \(the connection was closed too early\)", address)
    for other in ("http://example.com/a.zip", "file:///etc/passwd", "ftp://a/b"):
        server.files["/x.zip"] = other
        refused("give its https|not a path of this|not allowed|answers 302", address)
    server.files |= {"/x.zip": f"{server.address}/y.zip", "/y.zip": archive(FILES)}
    assert found(address).origin["archive"] == address
    go_offline(monkeypatch)
    refused(r"cannot fetch .* \(.*refused.*\); fetch", f"{constants.ENDPOINT}/x.zip")


# The whole command


@pytest.fixture(scope="module")
def marian_folder(tmp_path_factory):
    """A random Marian model in both forms."""
    folder = tmp_path_factory.mktemp("marian")
    write_splitters(folder / "opus")
    shutil.copytree(folder / "opus", folder / "hf")
    tokens = token_list(folder / "opus", "source", "target")
    variables = weights((len(tokens), len(tokens)), "all", pre_norm=False)
    write_marian(folder / "opus", variables, settings(), [tokens])
    config = hf_config(len(tokens) + 1, num_beams=2)
    write_hf(folder / "hf", variables, config, tokens)
    tensors = load_file(folder / "hf" / "model.safetensors")
    torch_files.save(tensors, folder / "hf" / "pytorch_model.bin", is_zip=False)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_model_of_the_hub(server, marian_folder, tmp_path, capfd):
    files = contents(marian_folder / "hf") | {"README.md": README}
    del files["model.safetensors"]
    server.repositories[NAME] = files
    result = run_json(capfd, "import", NAME, "--output_dir", "runs/opus")
    assert result["origin"] == ORIGIN and result["from"] == "hf-marian"
    short = f"{NAME}@35bbec8"
    assert result["took"]["model"] == f"{short}/pytorch_model.bin"
    history = Path("runs/opus/history.jsonl").read_text()
    assert f"{short}/vocab.json" in history and str(tmp_path) not in history
    assert RunConfig.read(Path("runs/opus")).origin == ORIGIN


def test_reports_and_exports_name_the_origin(server, marian_folder, capfd):
    server.repositories[NAME] = contents(marian_folder / "hf") | {"README.md": README}
    assert run("import", NAME, "--output_dir", "run") == 0
    full = f"{NAME}@{COMMIT}"
    rows = run_json(capfd, "describe", "run")["run"]
    assert rows["origin"] == full and rows["licence of the origin"] == "cc-by-4.0"
    card = run_json(capfd, "card", "run")["card"]
    header = json.loads(card.split("---")[1])
    assert header["license"] == "cc-by-4.0" and header["base_model"] == NAME
    assert f"| origin | {full} |" in card and f"made from {full}." in card
    argv = ("export", "run", "hf", "--format", "hf-marian", "--verify", 0)
    assert run(*argv) == 0, capfd.readouterr().err
    written = Path("hf/README.md").read_text()
    assert json.loads(written.split("---")[1])["license"] == "cc-by-4.0"
    assert COMMIT in written
    argv = ("export", "run", "ct2", "--format", "ctranslate2", "--verify", 0)
    assert run(*argv) == 0, capfd.readouterr().err
    assert json.loads(Path("ct2/t2t_export.json").read_text())["origin"] == ORIGIN
    assert describe.export_rows(Path("ct2"))["origin"] == full


def test_a_release_as_an_archive(server, marian_folder, tmp_path, capfd):
    content = archive(contents(marian_folder / "opus") | {"LICENSE": b"CC-BY 4.0\n"})
    source = f"{server.address}/opus-2020-02-26.zip"
    server.files["/opus-2020-02-26.zip"] = content
    result = run_json(capfd, "import", source, "--output_dir", tmp_path / "run")
    assert result["origin"] == {"archive": source, "license": "CC-BY 4.0"}
    assert result["took"]["model"] == f"{source}/model.npz"
    assert (tmp_path / "run" / "config.json").exists()


def test_what_the_command_refuses(server, marian_folder, capfd):
    def refused(sentence, source, *flags):
        capfd.readouterr()
        assert run("import", source, "--output_dir", "run", *flags) == 2
        *_, last = capfd.readouterr().err.splitlines()
        assert last.startswith("t2t import: error: ") and sentence in last, last
        assert not Path("run").exists()

    opus = contents(marian_folder / "opus")
    Path("flags.zip").write_bytes(archive(opus))
    refused("--last is for tensor2tensor's models", "flags.zip", "--last", 2)
    del opus["source.spm"]
    Path("bpe.zip").write_bytes(archive(opus))
    refused("there is no bpe.zip/source.spm, the SentencePiece model", "bpe.zip")
    opus["source.bpe"] = b"#version: 0.2\n"
    Path("bpe.zip").write_bytes(archive(opus))
    refused("bpe.zip/source.bpe splits the texts of the source into byte", "bpe.zip")
    server.repositories[NAME] = BIN
    refused(f"{NAME}@35bbec8/config.json: cannot read a model with", NAME)


def test_the_environment_of_huggingface_hub(marian_folder, tmp_path):
    """HF_ENDPOINT, HF_HOME and HF_HUB_OFFLINE, in processes."""
    code = (
        "import sys\n"
        "from t2t_keras.plugins.interop.model_sources import model_files\n"
        "with model_files(sys.argv[1]) as model: print(model.path)"
    )
    command = [sys.executable, "-c", code, NAME]
    with hub() as server:
        server.repositories[NAME] = BIN
        environ = os.environ | {"HF_HOME": str(tmp_path), "HF_ENDPOINT": server.address}
        options = {"capture_output": True, "text": True, "check": True}
        first = subprocess.run(command, env=environ, **options).stdout
        assert first.startswith(str(tmp_path / "hub"))
    offline = environ | {"HF_HUB_OFFLINE": "1"}
    assert subprocess.run(command, env=offline, **options).stdout == first

"""Files of any length: translated in order, and resumed after a kill."""

import functools
import gzip
import itertools
import json
import os
import re

import pytest
from helpers.command_line import run, standard_input, write

import t2t_keras
from t2t_keras.cli import translation
from t2t_keras.cli.lines import open_output
from t2t_keras.decoding.graph_engine import ModelTranslator
from t2t_keras.errors import UserError
from t2t_keras.files.atomic import open_lines

SOURCES = ["a dog", "", "the old house .", " \t", "a", "a dog runs", "the river"]
MODES = {
    "best": (),
    "n_best": ("--n_best", 3),
    "sample": ("--scores",),
}


@pytest.fixture(scope="module")
def model(trained_run):
    """The flags for a small run."""
    return "--output_dir", trained_run


loaded = functools.cache(t2t_keras.load)


@pytest.fixture(autouse=True)
def two_lines_at_once(monkeypatch):
    monkeypatch.setattr(translation, "MAX_LINES", 2)
    monkeypatch.setattr(translation, "load", loaded)


@pytest.fixture
def interrupted(monkeypatch, tmp_path):
    """Translates until `finished` lines are done; then comes an error."""
    n_best = ModelTranslator.n_best

    def until_interrupted(argv, finished, error=KeyboardInterrupt):
        def stopping(self, texts, *args, start_index, **options):
            if start_index == finished:
                raise error
            return n_best(self, texts, *args, start_index=start_index, **options)

        with monkeypatch.context() as patch:
            patch.setattr(ModelTranslator, "n_best", stopping)
            return run(*argv)

    return until_interrupted


def translate(model, folder, *flags, options="extra_length=4"):
    source = write(folder / "in", *SOURCES)
    flags = ("--decode_hparams", options, *flags)
    argv = ("translate", *model, "--input", source, "--output", folder / "out", *flags)
    return argv, folder / "out", folder / "out.incomplete"


@pytest.mark.parametrize("mode", MODES)
def test_a_resumed_file_equals_that_of_an_undisturbed_process(
    mode, model, interrupted, tmp_path, capfd
):
    sampling = ",sampling=true,seed=7" if mode == "sample" else ""
    options = f"extra_length=4{sampling}"
    argv, output, incomplete = translate(model, tmp_path, *MODES[mode], options=options)
    assert run(*argv) == 0
    expected = output.read_bytes()
    output.unlink()
    for finished in (0, 2):
        assert interrupted(argv, finished) == 130
        message = capfd.readouterr().err.splitlines()[-1]
        assert message.startswith("t2t translate: interrupted")
        assert incomplete.exists() == bool(finished)
    lines = len(incomplete.read_text().splitlines())
    num_kept = f"; {incomplete} has {lines} lines of output; --resume continues"
    assert message.startswith(f"t2t translate: interrupted{num_kept}")
    for finished in (4, 6):  # killed and resumed, again and again
        with incomplete.open("ab") as file:
            file.write(b"half a li")  # a kill may leave part of a chunk
        assert interrupted((*argv, "--resume"), finished) == 130
        assert expected.startswith(incomplete.read_bytes())
    capfd.readouterr()
    assert run(*argv, "--resume") == 0
    assert re.search(r"translate: 7 sentences( in |\n)", capfd.readouterr().err)
    assert output.read_bytes() == expected
    assert not list(tmp_path.glob("*incomplete*"))


def test_an_error_keeps_what_is_finished(model, interrupted, tmp_path, capfd):
    argv, output, incomplete = translate(model, tmp_path)
    source = tmp_path / "in"
    content = source.read_bytes()
    source.write_bytes(content.replace(b"river", b"r\xedver"))
    with standard_input(source):
        stream = tuple(x for x in argv if x not in ("--input", source))
        assert run(*stream) == 2
    assert (
        "standard input, line 7: byte 0xed is not valid UTF-8" in capfd.readouterr().err
    )
    assert len(incomplete.read_text().splitlines()) == 6
    source.write_bytes(content)
    compressed = tmp_path / "in.gz"
    compressed.write_bytes(gzip.compress(content))
    compressed_argv = [compressed if x == source else x for x in argv]
    assert (
        run(*compressed_argv, "--resume") == 0
    )  # the rest of the input is another now
    resumed = output.read_bytes()
    assert run(*argv) == 0
    assert output.read_bytes() == resumed
    with pytest.raises(RuntimeError):
        interrupted(argv, 0, RuntimeError)
    assert not list(tmp_path.glob("*incomplete*"))


def test_what_cannot_be_resumed(model, interrupted, tmp_path, capfd):
    argv, _, incomplete = translate(model, tmp_path, "--resume")  # nothing to resume

    def refusal(*argv):
        content = incomplete.read_bytes()
        record = read(tmp_path)
        capfd.readouterr()
        assert run(*argv) == 2
        assert (incomplete.read_bytes(), read(tmp_path)) == (content, record)
        message = capfd.readouterr().err.splitlines()[-1]
        assert message.count(". ") == 0
        return message

    assert interrupted(argv, 4) == 130
    assert "beam_size was the default, is now 2; give the same ones, or" in refusal(
        *argv, "--beam_size", 2
    )
    assert "scores was False, is now True" in refusal(*argv, "--scores")
    assert "model was " in refusal(*argv, "--checkpoint", 1)
    write(tmp_path / "in", *SOURCES[:3], "other", *SOURCES[4:])
    assert "of another input, which differs in the first 4 lines" in refusal(*argv)
    write(tmp_path / "in", *SOURCES[:3])
    assert "of another input" in refusal(*argv)
    write(tmp_path / "in", *SOURCES)
    os.truncate(incomplete, 3)
    assert "is shorter than" in refusal(*argv)
    (tmp_path / "out.incomplete.json").write_text("{")
    assert "out.incomplete.json is damaged" in refusal(*argv)
    (tmp_path / "out.incomplete.json").unlink()
    assert "has no record" in refusal(*argv)
    incomplete.unlink()
    fresh, *_ = translate(model, tmp_path, options="extra_length=4,batch_tokens=50")
    assert run(*fresh) == 0
    assert not list(tmp_path.glob("*incomplete*"))


def read(folder):
    record = folder / "out.incomplete.json"
    return record.read_bytes() if record.exists() else None


def test_only_a_file_can_be_resumed(model, capfd):
    for output in ((), ("--output", "/dev/null")):
        assert run("translate", *model, "--resume", *output) == 2
        assert "--resume needs --output FILE; only a file" in capfd.readouterr().err


def test_lines_are_read_when_they_are_needed(monkeypatch):
    """An input without end needs no more memory than a chunk of it."""
    monkeypatch.setattr(translation, "MAX_CHARACTERS", 10)
    taken = []
    lines = (taken.append(n) or "x" * n for n in itertools.cycle([1, 2, 12, 9]))
    read = translation.chunks(lines, one_by_one=False)
    for expected in ([1, 2], [12], [9, 1], [2, 12]):
        assert [len(line) for line in next(read)] == expected
    assert len(taken) == 7
    assert [len(c) for c in translation.chunks(iter("abc"), True)] == [1, 1, 1]


def test_the_record_is_written_before_the_file(tmp_path, monkeypatch):
    """Whenever a kill comes, a record belongs to its file."""
    path = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt), open_output(str(path), {"a": 1}) as output:
        list(output.unread(iter("xy")))
        output.file.write("1\n2\n")
        output.save(sentences=2)
        # What SIGKILL would leave.
        assert (tmp_path / "out.incomplete").read_text() == "1\n2\n"
        output.file.write("3\n")
        raise KeyboardInterrupt
    assert (tmp_path / "out.incomplete").read_text() == "1\n2\n"
    record = json.loads((tmp_path / "out.incomplete.json").read_text())
    assert record["done"] == {"sentences": 2} and record["bytes"] == 4
    with open_output(str(path), {"a": 1}, resume=True) as output:
        assert output.done == {"sentences": 2}
        assert list(output.unread(iter("xyz"))) == ["z"]
        output.file.write("3\n")
    assert path.read_text() == "1\n2\n3\n"
    with pytest.raises(UserError), open_output(str(path), {"a": 1}) as output:
        raise UserError("")
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


def test_one_process_writes_a_file_at_a_time(tmp_path):
    path = tmp_path / "out"
    with open_output(str(path), {}) as output:
        list(output.unread(iter("xy")))
        output.file.write("1\n2\n")
        output.save(sentences=2)
        for resume in (False, True):
            with (
                pytest.raises(UserError, match="another process is writing it"),
                open_output(str(path), {}, resume),
            ):
                pass
        output.file.write("3\n")
    assert path.read_text() == "1\n2\n3\n"


def write_atomically(path, text):
    with open_lines(path) as file:
        file.write(text)


def write_resumably(path, text):
    with open_output(str(path), {}) as output:
        output.file.write(text)


@pytest.mark.parametrize("write", [write_atomically, write_resumably])
def test_links_are_followed_and_stay(write, tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to("disk/out")
    write(tmp_path / "link", "new\n")
    assert (tmp_path / "disk" / "out").read_text() == "new\n"
    assert (tmp_path / "link").is_symlink()
    assert [file.name for file in (tmp_path / "disk").iterdir()] == ["out"]


@pytest.mark.parametrize("write", [write_atomically, write_resumably])
def test_what_leads_to_an_open_file_is_not_replaced(write, tmp_path):
    """As `/dev/stdout` does, which root could replace."""
    with open(tmp_path / "out", "w") as file:
        link = tmp_path / "stdout"
        link.symlink_to(f"/proc/self/fd/{file.fileno()}")
        write(link, "text\n")
        assert link.is_symlink()
    assert (tmp_path / "out").read_text() == "text\n"


def test_split_sentences_are_counted_once_for_a_file(model, tmp_path, capfd):
    """Even if the file has many chunks; the run's data lack the statistic."""
    lines = ["A dog. The river.", "a dog", "The old house. A dog! A river."]
    parts = ["A dog.", "The river.", "a dog", "The old house.", "A dog!", "A river."]
    for name, texts in ("lines", lines), ("parts", parts), ("whole", lines):
        source = write(tmp_path / name, *texts)
        setting = "true" if name == "lines" else "false"
        options = f"extra_length=4,split_sentences={setting}"
        argv = ("translate", *model, "--decode_hparams", options)
        run(*argv, "--input", source, "--output", tmp_path / f"{name}.out")
        note = (
            "2 of 3 inputs have several sentences, which are translated one by one; "
            "split_sentences=false turns this off\n"
        )
        assert capfd.readouterr().err.count(note) == (name == "lines")
    outputs = {}
    for name in ("lines", "parts", "whole"):
        outputs[name] = (tmp_path / f"{name}.out").read_text().splitlines()
    joined = []
    for parts in (outputs["parts"][:2], outputs["parts"][2:3], outputs["parts"][3:]):
        joined.append(" ".join(filter(None, parts)))
    assert outputs["lines"] == joined
    run(
        "translate",
        *model,
        "--input",
        write(tmp_path / "x", *lines),
        "--output",
        tmp_path / "default.out",
    )
    assert (tmp_path / "default.out").read_text().splitlines() == outputs["whole"]

"""The command line: flags, JSON objects, text files, errors, exit codes."""

import importlib.metadata
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import python, run, run_json, write
from errors import refused

import t2t_keras
from t2t_keras import registry
from t2t_keras.cli import program
from t2t_keras.cli.verb import Verb
from t2t_keras.data.datagen import generate
from t2t_keras.data.pipeline import read_pairs
from t2t_keras.data.records import RecordIndex
from t2t_keras.text.tokenizer import load_tokenizer

PROGRAM = "import sys; from t2t_keras.cli import main; sys.exit(main(sys.argv[1:]))"


# Help and listings.


@pytest.mark.parametrize(
    "words",
    [
        *("['--help']", "[]", "['--version']", "['train', '--help']"),
        *("['list']", "['list', '--hparams', 'big']"),
    ],
)
def test_help_and_list_do_not_import_tensorflow(words):
    code = f"""
import sys
from t2t_keras.cli import main
try:
    main({words})
except SystemExit as exit:
    assert not exit.code
assert not {{"tensorflow", "keras", "sacrebleu", "sentencepiece"}} & sys.modules.keys()
"""
    python(code)


def test_list(capfd):
    listed = run_json(capfd, "list")
    assert set(listed) == {"problems", "models", "hparams_sets"}
    assert listed["problems"] == registry.list_problems()
    assert {"translate_ende", "translate_text"} <= listed["problems"].keys()
    assert {"base", "big", "parsing", "tiny"} <= listed["hparams_sets"].keys()
    for line in (*listed["problems"].values(), *listed["hparams_sets"].values()):
        assert line and "\n" not in line
    run("list")
    text = capfd.readouterr().out
    for name, line in listed["problems"].items():
        assert any(row.split(maxsplit=1) == [name, line] for row in text.splitlines())


def test_list_prints_every_field_of_an_hparam_set(capfd):
    fields = run_json(capfd, "list", "--hparams", "big")
    base, big = registry.hparams("base"), registry.hparams("big")
    assert {name: it["value"] for name, it in fields.items()} == vars(big)
    assert {name: it["base"] for name, it in fields.items()} == vars(base)
    values = {"value": 16, "base": 8, "meaning": "attention heads (H)"}
    assert fields["num_heads"] == values
    assert run("list", "--hparams", "big") == 0
    rows = capfd.readouterr().out.splitlines()[1:]
    assert len(rows) == len(fields)
    marked = {row.split()[1] for row in rows if row.startswith("*")}
    assert marked == base.difference(big).keys()
    (heads,) = (row.split() for row in rows if " num_heads " in row)
    assert heads == ["*", "num_heads", "16", "8", "attention", "heads", "(H)"]


def test_list_with_usr_dir(capfd):
    folder = Path(__file__).parents[1] / "examples" / "my_problem"
    problems = run_json(capfd, "list", "--usr_dir", folder)["problems"]
    assert problems["captions_ende"] == "Multi30k image captions, English to German"


# Mistakes: one sentence, exit code 2.

TRAIN = ("train", "--problem", "translate_text", "--hparams_set", "tiny")
TRAIN = (*TRAIN, "--data_dir", "d", "--output_dir", "o")
DATAGEN = ("datagen", "--data_dir", "d", "--problem")
FILES = ("evaluate", "--hypotheses", "x", "--references", "y")
ALL = ("evaluate", "--output_dir", "o", "--checkpoint", "all")
MISTAKES = {
    ("--json",): "t2t: error: there is no flag --json before the verb",
    ("--verison",): "--verison before the verb; did you mean --version?",
    ("evalute",): "t2t: error: there is no verb 'evalute'; did you mean evaluate?",
    ("list", "--jsno"): "t2t list: error: there is no flag --jsno; did you mean --json",
    ("train",): "t2t train: error: the following arguments are required",
    (*TRAIN, "--train_steps", "0"): "--train_steps: must be at least 1, not 0",
    ("attention", "--output_dir", "x", "--source", "caf\udce9"): (
        "argument --source: 'caf\\udce9' is not valid UTF-8"
    ),
    (*DATAGEN, "translate_text"): "give --train_source and --train_target",
    (*DATAGEN, "translate_text", "--dev_trees", "a"): "there is no flag --dev_trees",
    (*DATAGEN, "translate_text", "--data_dir", "gs://bucket/data"): (
        "--data_dir: gs://bucket/data is not a path of this machine; copy"
    ),
    (*DATAGEN, "translate_text", "--vocab", "s3://bucket/vocab.spm"): (
        "--vocab: s3://bucket/vocab.spm is not a path of this machine"
    ),
    ("list", "--usr_dir", "absent"): "--usr_dir: there is no directory absent",
    ("list", "--hparams", "bigg"): "hparams: there is no 'bigg'; did you mean",
    ("translate", "--output_dir", "a", "--export_dir", "b"): (
        "--export_dir: not allowed with argument --output_dir"
    ),
    ("average", "--output_dir", "."): "the following arguments are required: --last",
    ("evaluate",): "give either --output_dir or --hypotheses and --references",
    ("evaluate", "--hypotheses", "x"): "need each other",
    FILES: "cannot read x",
    (*FILES, "--output_dir", "o"): "give either --output_dir or --hypotheses",
    (*FILES, "--checkpoint", "all"): "--checkpoint has no effect with --hyp",
    (*FILES, "--beam_size", "7"): "--beam_size has no effect with --hypotheses",
    (*ALL, "--output", "z"): "--output does not go with --checkpoint all",
    (*ALL, "--language", "fr"): "--language does not go with --checkpoint all",
    (*ALL[:3], "--wait_minutes", "1"): "--wait_minutes needs --checkpoint all",
    (*ALL[:3], "--output", "z", "--eval_sentences", "0"): "there is nothing to write",
}


@pytest.mark.parametrize(("argv", "message"), MISTAKES.items())
def test_mistakes(argv, message, capfd, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert run(*argv) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert len(captured.err.splitlines()) == 1
    assert not list(tmp_path.iterdir())  # and nothing is left behind


def test_another_backend_is_refused(capfd, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    assert run("translate", "--output_dir", "run") == 2
    assert "KERAS_BACKEND is 'jax'" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (FileNotFoundError(2, "No such file", "a/b"), 2, "error: a/b: No such file"),
        (KeyboardInterrupt(), 130, "t2t list: interrupted"),
    ],
)
def test_exit_codes(error, code, message, capfd, monkeypatch):
    def fail(args):
        raise error

    verb = Verb("", lambda parser: None, fail, str)
    monkeypatch.setitem(program.verbs(), "list", verb)
    assert run("list") == code
    assert message in capfd.readouterr().err


def test_a_defect_of_ours_keeps_its_traceback(monkeypatch):
    verb = Verb("", lambda parser: None, lambda args: 1 / 0, str)
    monkeypatch.setitem(program.verbs(), "list", verb)
    with pytest.raises(ZeroDivisionError):
        run("list")


def test_reader_of_standard_output_has_gone():
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", PROGRAM, "list"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_what_libraries_print_is_not_on_standard_output(capfd, monkeypatch):
    def chatty(args):
        print("chatter")
        return {"answer": 42}

    verb = Verb("", lambda parser: None, chatty, str)
    monkeypatch.setitem(program.verbs(), "list", verb)
    assert run("list", "--json") == 0
    captured = capfd.readouterr()
    assert captured.out == '{"answer": 42}\n'
    assert captured.err == "chatter\n"


# Verbs over text files.


def test_datagen_of_the_reversed_problem_takes_files_in_its_direction(capfd, tmp_path):
    train = [f"{word} {number}" for word in ("one", "two") for number in range(50)]
    source = write(tmp_path / "a", *train, "")
    target = write(tmp_path / "b", *(line.upper() for line in train), "empty")
    argv = ("datagen", "--problem", "translate_text_rev", "--data_dir", tmp_path / "d")
    files = ("--train_source", source, "--train_target", target)
    result = run_json(capfd, *argv, *files, "--vocab_size", 300, "--workers", 1)
    assert result["examples"] == {"train": 100}
    assert result["dropped"]["empty"] == 1

    index = RecordIndex.open(tmp_path / "d", "translate_text", "train")
    tokenizer = load_tokenizer(tmp_path / "d" / "vocab.translate_text.300.spm")
    for source_ids, target_ids in read_pairs(index, range(100)):
        assert tokenizer.decode(source_ids) == tokenizer.decode(target_ids).upper()


def test_evaluate_files(capfd, tmp_path):
    lines = ("The cat sat on the mat today .", "A well-known dog barks loudly at me .")
    references = write(tmp_path / "ref.de", *lines)
    worse = write(tmp_path / "hyp", lines[0].upper(), lines[1])
    argv = ("evaluate", "--references", references, "--hypotheses")
    assert run_json(capfd, *argv, references)["bleu"]["sacrebleu_13a"] > 99.9
    bleu = run_json(capfd, *argv, worse)["bleu"]
    assert bleu["sacrebleu_13a_lc"] > 99.9 > bleu["sacrebleu_13a"]
    assert "tok:13a" in bleu["signature"]
    assert {"sacrebleu_intl", "tokenized_compound_split"} <= bleu.keys()
    run(*argv, worse)
    assert "sacrebleu_13a_lc" in capfd.readouterr().out


@pytest.mark.parametrize("path", ["gs://bucket/run", Path("hdfs://host/run")])
def test_addresses_of_remote_storage_are_refused_in_python(path):
    for call in (
        lambda: t2t_keras.load(path),
        lambda: t2t_keras.train(
            "translate_text", "tiny", data_dir="d", output_dir=path
        ),
        lambda: generate(registry.problem("translate_text"), path),
    ):
        refused("is not a path of this machine; copy", call)


# What `t2t` does at a terminal: versions, completion, colours.


ROOT = Path(__file__).parents[1]
BAR = """
import time
from t2t_keras.data.files import progress
with progress("counting", "lines", 4) as advance:
    for _ in range(4):
        advance(1)
"""
COLOUR = re.compile(r"\x1b\[[0-9;]*\b(3[0-9]|38;[0-9;]+|9[0-7])m")


def test_version(capfd):
    assert run("--version") == 0
    version = importlib.metadata.version
    assert capfd.readouterr().out == (
        f"t2t_keras {version('t2t_keras')} (tensorflow {version('tensorflow')}, "
        f"keras {version('keras')})\n"
    )


def test_without_a_verb_there_is_the_help(capfd):
    assert run("--help") == 0
    expected = capfd.readouterr()
    assert run() == 0
    assert capfd.readouterr() == expected
    assert expected.err == ""


def progress_bar(in_terminal, **environ):
    """Returns what a progress bar writes to standard error."""
    names = ("NO_COLOR", "FORCE_COLOR", "TERM")
    env = {k: v for k, v in os.environ.items() if k not in names}
    env |= {"TERM": "xterm-256color", **environ}
    command = [sys.executable, "-c", BAR]
    if not in_terminal:
        done = subprocess.run(command, env=env, stderr=subprocess.PIPE, check=True)
        return done.stderr.decode()
    terminal, end = pty.openpty()
    with subprocess.Popen(command, env=env, stderr=end) as process:
        os.close(end)
        text = b""
        try:
            while part := os.read(terminal, 65536):
                text += part
        except OSError:  # the process has closed it
            pass
    os.close(terminal)
    assert process.returncode == 0
    return text.decode()


def test_colours_are_for_terminals():
    shown = progress_bar(True)
    assert COLOUR.search(shown) and "counting: 4 lines" in shown
    shown = progress_bar(True, NO_COLOR="1")
    assert not COLOUR.search(shown) and "\x1b[" in shown and "counting" in shown


@pytest.mark.parametrize(
    ("in_terminal", "environ"),
    [(False, {}), (False, {"FORCE_COLOR": "1"}), (True, {"TERM": "dumb"})],
)
def test_nothing_but_text_goes_elsewhere(in_terminal, environ):
    shown = progress_bar(in_terminal, **environ)
    assert "\x1b" not in shown
    assert re.fullmatch(r"counting: 4 lines in [\d.]+ s \(.*\)\r?\n", shown)


COMPLETE = """
eval "$(register-python-argcomplete t2t)"
complete_line() {
    COMP_LINE="$1" COMP_POINT=${#1} COMP_TYPE=9
    COMP_WORDS=($1)
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    COMPREPLY=()
    _python_argcomplete t2t
    echo "${COMPREPLY[@]}"
}
complete_line "t2t tra"
complete_line "t2t train --hparams_s"
complete_line "t2t train --problem translate_ende_toy_"
complete_line "t2t train --usr_dir $1 --problem capt"
"""


def test_completion_in_bash_does_without_tensorflow(tmp_path):
    """Verbs, flags, and registered names, also those of --usr_dir."""
    imported = tmp_path / "imported"
    (tmp_path / "tensorflow.py").write_text(f"open({str(imported)!r}, 'w')\n")
    folders = [str(Path(sys.executable).parent), os.environ["PATH"]]
    env = os.environ | {"PATH": os.pathsep.join(folders), "PYTHONPATH": str(tmp_path)}
    usr_dir = str(ROOT / "examples" / "my_problem")
    command = ["bash", "-c", COMPLETE, "bash", usr_dir]
    printed = subprocess.check_output(command, env=env, text=True)
    found = [line.split() for line in printed.splitlines()]
    names = [["translate_ende_toy_rev"], ["captions_ende"]]
    assert found == [["train", "translate"], ["--hparams_set"], *names]
    assert not imported.exists()

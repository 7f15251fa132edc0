"""The command line: flags, JSON objects, text files, errors, exit codes."""

import importlib.metadata
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.command_line import parsed, python, run, run_json, write
from helpers.errors import refused

import t2t_keras
from t2t_keras import registry
from t2t_keras.cli import program
from t2t_keras.cli.command import Command
from t2t_keras.console import progress, table
from t2t_keras.data.datagen import generate
from t2t_keras.data.pipeline import read_pairs
from t2t_keras.data.record_index import RecordIndex
from t2t_keras.text.tokenizer import load_tokenizer

PROGRAM = "import sys; from t2t_keras.cli import main; sys.exit(main(sys.argv[1:]))"


# Help and listings.


def test_help_and_list_do_not_import_tensorflow():
    python("""
import sys
from t2t_keras.cli import main
for words in ("--help", "", "--version", "train --help", "list", "list big"):
    try:
        main(words.split())
    except SystemExit as exit:
        assert not exit.code
assert not {"tensorflow", "keras", "sacrebleu", "sentencepiece"} & sys.modules.keys()
""")


def test_the_list_of_commands_is_light():
    """Checks of numbers that definitions give do without pydantic."""
    python("""
import sys
from t2t_keras.cli import main
try:
    main(["--help"])
except SystemExit:
    pass
assert "t2t_keras.problems.translate" in sys.modules
assert not {"numpy", "pydantic", "cyclopts"} & sys.modules.keys()
""")


def test_every_command_has_help_without_the_extras():
    """And says what to install where it needs one."""
    shown = python("""
import contextlib, io, sys
extras = "uvicorn starlette prometheus_client optuna ray pyarrow ctranslate2"
for library in f"{extras} huggingface_hub safetensors py3langid ai_edge_litert".split():
    sys.modules[library] = None
from t2t_keras.cli import main, program
commands = program.commands()
for name in commands:
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        assert not main([name, "--help"])
sys.stderr = sys.stdout
assert main(["serve", "a"]) == 2
print(sorted(commands))
""")
    refusal, commands = shown.splitlines()
    assert refusal.startswith("t2t serve: error: t2t serve needs ")
    assert "'serve'" in commands and "'sweep'" in commands and "'import'" in commands


def test_the_engine_is_auto_by_default():
    """Which it is not in the process of the tests, see conftest.py."""
    shown = python("from t2t_keras.cli import main; main(['translate', '--help'])")
    assert "suits model and options (default: auto)" in " ".join(shown.split())


def test_list(capfd):
    folder = Path(__file__).parents[2] / "examples" / "my_problem"
    listed = run_json(capfd, "list", "--usr_dir", folder)
    assert listed.keys() == {"problems", "models", "hparams_sets", "ranges"}
    problems = listed["problems"]
    assert problems == registry.list_problems()
    assert problems["captions_ende"] == "Multi30k image captions, English to German"
    assert {"base", "big", "parsing", "tiny"} <= listed["hparams_sets"].keys()
    for line in (*problems.values(), *listed["hparams_sets"].values()):
        assert line and "\n" not in line
    run("list", "--all")
    rows = capfd.readouterr().out.splitlines()
    assert problems.items() <= {(*row.split(maxsplit=1), "")[:2] for row in rows}


def test_list_prints_every_field_of_an_hparam_set(capfd):
    fields = run_json(capfd, "list", "big")["fields"]
    base = registry.hparams("base")
    big = registry.hparams("big")
    assert {name: field["value"] for name, field in fields.items()} == vars(big)
    assert {name: field["base"] for name, field in fields.items()} == vars(base)
    assert run("list", "big") == 0
    rows = [row.split() for row in capfd.readouterr().out.splitlines()[1:]]
    assert len(rows) == len(fields)
    marked = {row[1] for row in rows if row[0] == "*"}
    assert marked == base.difference(big).keys()
    assert ["*", "num_heads", "16", "8", "attention", "heads", "(H)"] in rows


# Mistakes: one sentence, exit code 2.

TRAIN = ("train", "--problem", "translate_text", "--hparams_set", "tiny")
TRAIN = (*TRAIN, "--data_dir", "d", "--output_dir", "o")
DATAGEN = ("datagen", "--data_dir", "d", "--problem")
FILES = ("evaluate", "--hypotheses", "x", "--references", "y")
ALL = ("evaluate", "--output_dir", "o", "--checkpoint", "all")
MISTAKES = {
    ("--json",): "t2t: error: there is no flag --json before the command",
    ("--verison",): "--verison before the command; did you mean --version?",
    ("evalute",): "t2t: error: there is no command 'evalute'; did you mean evaluate?",
    ("train", "-problem", "x"): "no flag -problem; did you mean --problem?",
    ("list", "--jsno"): "t2t list: error: there is no flag --jsno; did you mean --json",
    ("compare", "a", "b", "--seed", "1"): "there is no flag --seed; set the env",
    ("translate", "--gpu", "0"): "t2t translate: error: there is no flag --gpu\n",
    ("train",): "give --problem, --hparams_set, --data_dir and --output_dir; to resume",
    (*TRAIN, "--train_steps", "0"): "--train_steps must be at least 1, not 0\n",
    (*TRAIN, "--train_steps", "2e9"): "be at least 1 and at most 1000000000, not 2000",
    (*TRAIN, "--best_by", "x"): "--best_by must be one of nll, metric, not 'x'\n",
    (*TRAIN, "--best_by="): "--best_by is empty; give a value, or leave it out",
    (*TRAIN, "--h"): "there is no flag --h\n",
    (*TRAIN, "--hparams", "d_ff=8", "--hparams=dropout=0.1"): (
        "--hparams is given twice; join its values: --hparams K=V,K=V\n"
    ),
    ("train", "--config", "--problem", "x"): "--config needs a value\n",
    ("launch", "--processes", "2", "train", "--config", "f.toml"): (
        "t2t train: error: cannot read f.toml"
    ),
    ("launch", "--processes", "2", "--", "train", "--kep", "2"): (
        "t2t train: error: there is no flag --kep; did you mean --keep?"
    ),
    ("attention", "--output_dir", "x", "--source", "caf\udce9"): (
        "--source: 'caf\\udce9' is not valid UTF-8"
    ),
    (*DATAGEN, "translate_text"): "give --train_source and --train_target",
    (*DATAGEN, "translate_text", "--dev_trees", "a"): "there is no flag --dev_trees",
    (*DATAGEN, "translate_text", "--data_dir", "gs://bucket/data"): (
        "--data_dir: gs://bucket/data is not a path of this machine; copy"
    ),
    (*DATAGEN, "translate_text", "--vocab", "s3://bucket/vocab.spm"): (
        "--vocab: s3://bucket/vocab.spm is not a path of this machine"
    ),
    ("list", "--usr_dir", ""): "--usr_dir is empty; give a value, or leave it out",
    (*TRAIN, "--output_dir", "a\udcff"): "--output_dir: the name a",
    ("export", "x", "a\udcff"): "is not UTF-8, and TensorFlow cannot write such a path",
    ("list", "translate_ende"): "is a problem; its flags: t2t datagen --problem tran",
    ("list", "--usr_dir", "absent"): "--usr_dir: there is no directory absent",
    ("list", "bigg"): "hparams: there is no 'bigg'; did you mean",
    ("translate",): "t2t translate: error: give MODEL; `t2t translate --help` says",
    ("translate", "a", "b", "c"): (
        'unrecognized arguments: c; to translate a text: echo "..." | t2t translate MO'
    ),
    ("list", "a", "b"): "unrecognized arguments: b\n",
    ("list", "--json=x"): "--json takes no value; write it alone, or leave it out",
    ("evaluate", "a", "--output_dir", "b"): (
        "unrecognized arguments: a; RUN is already given by --output_dir"
    ),
    ("translate", ""): "t2t translate: error: MODEL is empty; give a value",
    ("datagen",): "give --problem and --data_dir; `t2t datagen --help` says what they",
    ("--completion", "ksh"): "t2t: error: --completion takes one of bash, zsh, fish",
    ("list", "--name"): "--name needs a value\n",
    ("serve", "a", "--port", "x"): "--port must be",
    ("average", "."): "give --last; `t2t average --help` says what it is",
    ("evaluate",): "give either RUN or --hypotheses and --references",
    ("evaluate", "--hypotheses", "x"): "need each other",
    FILES: "cannot read x",
    (*FILES, "--output_dir", "o"): "give either RUN or --hypotheses",
    (*FILES, "--checkpoint", "all"): "--checkpoint has no effect with --hyp",
    (*FILES, "--beam_size", "7"): "--beam_size has no effect with --hypotheses",
    (*ALL, "--output", "z"): "--output does not go with --checkpoint=all",
    (*ALL, "--language", "fr"): "--language does not go with --checkpoint=all",
    (*ALL[:3], "--wait_minutes", "1"): "--wait_minutes needs --checkpoint=all",
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
        (KeyboardInterrupt(), 130, "t2t list: interrupted\n"),
        (ZeroDivisionError, None, ""),  # a defect of ours keeps its traceback
    ],
)
def test_exit_codes(error, code, message, capfd, monkeypatch):
    class Failing(Command):
        def run(self):
            print("chatter of a library")  # not on standard output
            raise error

    monkeypatch.setitem(program.CORE, "list", Failing)
    if code:
        assert run("list") == code
    else:
        with pytest.raises(error):
            run("list")
    captured = capfd.readouterr()
    assert message in captured.err and "chatter" in captured.err
    assert captured.out == ""


def test_evaluate_prints_two_scores_or_all(capfd, tmp_path):
    file = write(tmp_path / "out.de", "Das ist ein Haus .")
    words = ("evaluate", "--hypotheses", file, "--references", file)
    assert run(*words) == 0
    shown = capfd.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown if line] == ["sacrebleu_13a", "chrf", "5"]
    assert shown[0].split()[1] == "100.00" and "|tok:13a|" in shown[0]
    assert run(*words, "--all") == 0
    assert len(capfd.readouterr().out.splitlines()) == 8
    assert len(run_json(capfd, *words)["bleu"]["signatures"]) == 7


def test_long_texts_of_a_table_are_wrapped_on_a_terminal(monkeypatch):
    rows = {"a": "some words of a text in a row", "long_name": 3.0}
    expected = "a          some words of a text in a row\nlong_name  3"
    assert table(rows) == expected
    stdout = io.StringIO()
    stdout.isatty = lambda: True
    monkeypatch.setattr(sys, "stdout", stdout)
    monkeypatch.setenv("COLUMNS", "34")
    assert table(rows) == expected.replace("in a row", "in\n           a row")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_shows_the_next_command(is_terminal, monkeypatch):
    stderr = io.StringIO()
    stderr.isatty = lambda: is_terminal
    monkeypatch.setattr(sys, "stderr", stderr)

    class Naming(Command):
        def run(self):
            return {}

        def next_command(self):
            return "t2t train"

    monkeypatch.setitem(program.CORE, "list", Naming)
    for words in (["list"], ["list", "--json"]):
        assert run(*words) == 0
    assert stderr.getvalue().count("next: t2t train") == is_terminal


def test_commands_of_plugins_name_the_next_one():
    """What they name can be parsed."""
    for words in ("compare a b --references r", "f1 gold test"):
        next_words = program.parse(words.split()).next_command().split()[1:]
        assert parsed(*next_words) and next_words[0] == "compare"


NEXT = {
    "datagen": "--problem translate_text --data_dir DIR --train_source a "
    "--train_target b",
    "train": "--problem p --hparams_set s --data_dir d --output_dir DIR",
    "average": "DIR --last 2",
    "evaluate": "DIR",
    "export": "RUN DIR",
    "score": "DIR --input a --target b",
    "import": "DIR --output_dir DIR",
    "attention": "DIR --source x --page p",
    "card": "DIR",
    "page": "DIR",
    "inspect": "--data_dir DIR",
}


@pytest.mark.parametrize("name", NEXT)
def test_the_next_command_may_be_copied(name):
    """Its paths are quoted for a shell."""
    words = [name, *NEXT[name].split()]
    words = [word.replace("DIR", "my 'first' run") for word in words]
    command = program.parse(words)
    assert "my 'first' run" in shlex.split(command.next_command())


@pytest.mark.parametrize(
    ("checkpoint", "flags"), [("best", " --checkpoint best"), ("all", "")]
)
def test_the_next_command_exports_the_checkpoint_that_was_evaluated(checkpoint, flags):
    words = ["evaluate", "runs/a", "--checkpoint", checkpoint]
    command = program.parse(words)
    assert command.next_command() == f"t2t export runs/a DIR{flags}"


def test_reader_of_standard_output_has_gone():
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", PROGRAM, "list"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


# Commands over text files.


def test_datagen_of_the_reversed_problem_takes_files_in_its_direction(capfd, tmp_path):
    train = [f"{word} {count}" for word in ("one", "two") for count in range(50)]
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


@pytest.mark.parametrize("path", ["gs://bucket/run", Path("hdfs://host/run")])
def test_addresses_of_remote_storage_are_refused_in_python(path):
    message = "is not a path of this machine; copy"
    refused(message, t2t_keras.load, path)
    folders = {"data_dir": "d", "output_dir": path}
    refused(message, t2t_keras.train, "translate_text", "tiny", **folders)
    refused(message, generate, registry.problem("translate_text"), path)


# What `t2t` does at a terminal: colours, versions, completion.


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_has_a_bar_in_terminals_only(is_terminal, monkeypatch):
    """Other outputs get plain text, even with FORCE_COLOR; rich handles NO_COLOR."""
    stderr = io.StringIO()
    stderr.isatty = lambda: is_terminal
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with progress("counting", "lines", 4) as advance:
        advance(4)
    shown = stderr.getvalue()
    assert re.search(r"(^|\n|\x1b\[2K)counting: 4 lines\n$", shown)
    assert ("\x1b[" in shown) == (shown.count("counting") > 1) == is_terminal


ROOT = Path(__file__).parents[2]


def test_version(capfd):
    assert run("--version") == 0
    version = importlib.metadata.version
    assert capfd.readouterr().out == (
        f"t2t_keras {version('t2t_keras')} (tensorflow {version('tensorflow')}, "
        f"keras {version('keras')})\n"
    )


COMPLETE = """
eval "$(t2t --completion bash)"
complete_line() {
    COMP_WORDS=($1)
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    COMPREPLY=()
    _t2t
    echo "${COMPREPLY[@]}"
}
complete_line "t2t tra"
complete_line "t2t train --hparams_s"
complete_line "t2t train --problem translate_ende_toy_"
complete_line "t2t train --usr_dir $1 --problem capt"
complete_line "t2t translate run --engine ct"
"""


def test_completion_in_bash_does_without_tensorflow(tmp_path):
    """Commands, flags, and registered names, also those of --usr_dir."""
    imported = tmp_path / "imported"
    (tmp_path / "tensorflow.py").write_text(f"open({str(imported)!r}, 'w')\n")
    folders = [str(Path(sys.executable).parent), os.environ["PATH"]]
    env = os.environ | {"PATH": os.pathsep.join(folders), "PYTHONPATH": str(tmp_path)}
    usr_dir = str(ROOT / "examples" / "my_problem")
    command = ["bash", "-c", COMPLETE, "bash", usr_dir]
    printed = subprocess.check_output(command, env=env, text=True)
    completions = [line.split() for line in printed.splitlines()]
    names = [["translate_ende_toy_rev"], ["captions_ende"]]
    first = [["train", "translate"], ["--hparams_set"]]
    assert completions == [*first, *names, ["ctranslate2"]]
    assert not imported.exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script_for_completion(shell, capfd):
    assert run("--completion", shell) == 0
    script = capfd.readouterr().out
    assert "translate" in script and "__complete" in script
    if shutil.which(shell):  # its syntax
        subprocess.run([shell, "-n"], input=script, text=True, check=True)

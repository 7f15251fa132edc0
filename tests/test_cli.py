"""The command line: flags, JSON objects, text files, errors, exit codes."""

import contextlib
import io
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from t2t_keras import registry
from t2t_keras.cli import main, program
from t2t_keras.cli.verb import Verb

PROGRAM = "import sys; from t2t_keras.cli import main; sys.exit(main(sys.argv[1:]))"


def run(*argv: str | Path) -> int:
    """Runs the program in this process; returns its exit code."""
    try:
        return main([str(word) for word in argv])
    except SystemExit as exit:
        return int(exit.code or 0)


def run_json(capfd: pytest.CaptureFixture, *argv: str | Path) -> dict:
    """Runs a verb that must succeed; returns the last line of standard output."""
    capfd.readouterr()
    code = run(*argv, "--json")
    captured = capfd.readouterr()
    assert code == 0, captured.err
    return json.loads(captured.out.splitlines()[-1])


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@contextlib.contextmanager
def standard_input(path: Path):
    """Makes a file the standard input of this process."""
    saved = os.dup(0)
    with path.open("rb") as file:
        os.dup2(file.fileno(), 0)
    try:
        yield
    finally:
        os.dup2(saved, 0)
        os.close(saved)


# Help and listings.


@pytest.mark.parametrize("words", ["['--help']", "['list']", "['train', '--help']"])
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
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_help_names_every_verb(capfd):
    assert run("--help") == 0
    text = capfd.readouterr().out
    for verb in (
        *("list", "datagen", "train", "translate", "score", "evaluate", "f1"),
        *("average", "export"),
    ):
        assert f"    {verb} " in text or f"    {verb}\n" in text


def test_list(capfd):
    listed = run_json(capfd, "list")
    assert set(listed) == {"problems", "hparams_sets"}
    assert listed["problems"] == registry.list_problems()
    assert {"translate_ende", "translate_text"} <= listed["problems"].keys()
    assert {"base", "big", "parsing", "tiny"} <= listed["hparams_sets"].keys()
    for line in (*listed["problems"].values(), *listed["hparams_sets"].values()):
        assert line and "\n" not in line
    run("list")
    text = capfd.readouterr().out
    for name, line in listed["problems"].items():
        assert any(row.split(maxsplit=1) == [name, line] for row in text.splitlines())


def test_list_with_usr_dir(capfd):
    folder = Path(__file__).parents[1] / "examples" / "my_problem"
    problems = run_json(capfd, "list", "--usr_dir", folder)["problems"]
    assert problems["captions_ende"] == "Multi30k image captions, English to German"


# Mistakes: one sentence, exit code 2.

TRAIN = ("train", "--problem", "translate_text", "--hparams_set", "tiny")
DATAGEN = ("datagen", "--data_dir", "d", "--problem")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ((), "t2t: error: the following arguments are required: VERB"),
        (
            ("evalute",),
            "t2t: error: there is no verb 'evalute'; did you mean evaluate?",
        ),
        (("list", "--jsno"), "t2t list: error: there is no flag --jsno; did you mean"),
        (("train",), "t2t train: error: the following arguments are required"),
        (
            (*DATAGEN, "translate_txt"),
            "there is no 'translate_txt'; did you mean 'translate_text'?",
        ),
        (
            (*TRAIN[:-1], "tiyn", "--data_dir", "d", "--output_dir", "o"),
            "there is no 'tiyn'; did you mean 'tiny'?",
        ),
        (
            (*TRAIN, "--data_dir", "d", "--output_dir", "o", "--hparams", "dropuot=1"),
            "there is no 'dropuot'; did you mean 'dropout'?",
        ),
        (
            (*TRAIN, "--data_dir", "absent", "--output_dir", "o"),
            "t2t train: error: there is no absent/translate_text.manifest.json",
        ),
        (
            (*TRAIN, "--data_dir", "d", "--output_dir", "o", "--train_steps", "0"),
            "t2t train: error: argument --train_steps: must be at least 1, not 0",
        ),
        (
            (*TRAIN, "--data_dir", "d", "--output_dir", "o", "--save_every", "x"),
            "--save_every: invalid positive integer value: 'x'",
        ),
        (
            (*TRAIN, "--data_dir", "d", "--output_dir", "o", "--save_minutes", "0"),
            "argument --save_minutes: must be above 0, not 0",
        ),
        (
            (*TRAIN, "--data_dir", "d", "--output_dir", "o", "--batch_tokens", "max"),
            "--batch_tokens: invalid positive integer value: 'max'",
        ),
        (
            (*TRAIN, "--data_dir", "d", "--output_dir", "o", "--memory_gb", "4"),
            "--memory_gb needs --batch_tokens auto beside it",
        ),
        ((*DATAGEN, "translate_text"), "give --train_source and --train_target"),
        (
            (*DATAGEN, "translate_text", "--train_source", "a"),
            "--train_source needs --train_target beside it",
        ),
        (
            (*DATAGEN, "translate_text", "--dev_trees", "a"),
            "--dev_trees: problem 'translate_text' does not yield trees",
        ),
        (
            (*DATAGEN, "parsing_wsj", "--dev_source", "a", "--dev_target", "b"),
            "yields trees; give --dev_trees",
        ),
        (("list", "--usr_dir", "absent"), "--usr_dir: there is no directory absent"),
        (
            ("translate", "--output_dir", "."),
            "t2t translate: error: . is not a run directory",
        ),
        (
            ("translate", "--output_dir", "a", "--export_dir", "b"),
            "--export_dir: not allowed with argument --output_dir",
        ),
        (("translate", "--export_dir", "a"), "a has no saved_model.pb"),
        (
            ("translate", "--export_dir", "a", "--min_length", "2"),
            "--min_length needs --output_dir",
        ),
        (
            ("translate", "--output_dir", "a", "--top_k", "2"),
            "--top_k needs --sample beside it",
        ),
        (
            ("average", "--output_dir", "."),
            "one of the arguments --last --minutes is required",
        ),
        (("evaluate",), "give either --output_dir or --hypotheses and --references"),
        (("evaluate", "--hypotheses", "x"), "need each other"),
        (("evaluate", "--hypotheses", "x", "--references", "y"), "cannot read x"),
        (("f1", "gold", "test"), "gold"),
    ],
)
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
    monkeypatch.setitem(program._VERBS, "list", verb)
    assert run("list") == code
    assert message in capfd.readouterr().err


def test_a_defect_of_ours_keeps_its_traceback(monkeypatch):
    verb = Verb("", lambda parser: None, lambda args: 1 / 0, str)
    monkeypatch.setitem(program._VERBS, "list", verb)
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
    monkeypatch.setitem(program._VERBS, "list", verb)
    assert run("list", "--json") == 0
    captured = capfd.readouterr()
    assert captured.out == '{"answer": 42}\n'
    assert captured.err == "chatter\n"


# Verbs over text files.


def test_datagen_takes_files_for_each_split(capfd, tmp_path):
    train = [f"{word} {number}" for word in ("one", "two") for number in range(50)]
    source = write(tmp_path / "a", *train, "")
    target = write(tmp_path / "b", *(line.upper() for line in train), "empty")
    argv = ("datagen", "--problem", "translate_text_rev", "--data_dir", tmp_path / "d")
    files = ("--train_source", source, "--train_target", target)
    result = run_json(capfd, *argv, *files, "--vocab_size", 300, "--workers", 1)
    assert result["examples"] == {"train": 100}
    assert result["dropped"] == {"empty": 1, "over_length": 0}
    assert result["vocab_size"] == 300
    assert result["seconds"] > 0

    # The reversed problem reads the files of the other direction.
    from t2t_keras.data.pipeline import read_pairs
    from t2t_keras.data.records import RecordIndex
    from t2t_keras.text.load import load_tokenizer

    index = RecordIndex.open(tmp_path / "d", "translate_text", "train")
    tokenizer = load_tokenizer(tmp_path / "d" / "vocab.translate_text.300.spm")
    for source_ids, target_ids in read_pairs(index, range(100)):
        assert tokenizer.decode(source_ids) == tokenizer.decode(target_ids).upper()


def test_evaluate_files(capfd, tmp_path):
    lines = ("The cat sat on the mat today .", "A well-known dog barks loudly at me .")
    references = write(tmp_path / "ref", *lines)
    worse = write(tmp_path / "hyp", lines[0].upper(), lines[1])
    argv = ("evaluate", "--references", references, "--hypotheses")
    assert run_json(capfd, *argv, references)["bleu"]["sacrebleu_13a"] > 99.9
    bleu = run_json(capfd, *argv, worse)["bleu"]
    assert bleu["sacrebleu_13a_lc"] > 99.9 > bleu["sacrebleu_13a"]
    assert "tok:13a" in bleu["signature"]
    assert {"sacrebleu_intl", "tokenized_compound_split"} <= bleu.keys()
    run(*argv, worse)
    assert "sacrebleu_13a_lc" in capfd.readouterr().out


def test_f1(capfd, tmp_path):
    gold = write(tmp_path / "gold", "(S (NP (D the) (N dog)) (VP (V barks)))")
    test = write(tmp_path / "test", "(S (NP (D the) (N dog)) (X (V barks)))")
    result = run_json(capfd, "f1", gold, test)
    assert result["all"]["f1"] == pytest.approx(100 * 2 / 3, abs=0.01)
    assert result["len_le_40"]["sentences"] == 1
    assert len(result["per_sentence"]) == 1
    parameters = write(tmp_path / "x.prm", "LABELED 0")
    assert run_json(capfd, "f1", gold, test, "--prm", parameters)["all"]["f1"] == 100


# From text to an exported model, with a model that has learnt next to nothing.

SOURCES = ["ein Hund", "", "zwei Hunde  bellen", "🙂 Katze", "die Katze schläft lange"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A folder with data, a run directory and an export."""
    folder = tmp_path_factory.mktemp("trained")
    words = ("Hund", "Katze", "Maus", "Haus", "Baum")
    lines = [f"{a} {b} {c}" for a in words for b in words for c in words]
    source = write(folder / "source", *lines)
    target = write(folder / "target", *(line[::-1] for line in lines))
    files = [
        word
        for split in ("train", "dev", "test")
        for word in (f"--{split}_source", source, f"--{split}_target", target)
    ]
    problem = ("--problem", "translate_text", "--data_dir", folder / "data")
    hparams = "num_layers=2,d_model=16,d_ff=32,num_heads=2,batch_tokens=256"
    assert run("datagen", *problem, *files, "--vocab_size", 320, "--workers", 1) == 0
    train = ("train", *problem, "--hparams_set", "tiny", "--hparams", hparams)
    often = ("--save_every", 2, "--eval_every", 4, "--eval_sentences", 3)
    run_dir = ("--output_dir", folder / "run")
    with open(folder / "train.json", "w") as file, contextlib.redirect_stdout(file):
        assert run(*train, *run_dir, *often, "--train_steps", 4, "--json") == 0
    assert run("average", *run_dir, "--last", 2) == 0
    assert run("export", *run_dir, "--export_dir", folder / "export") == 0
    return folder


@pytest.fixture(scope="module")
def translator(trained):
    from t2t_keras.training.run_dir import RunDirectory

    return RunDirectory(trained / "run").translator()


def test_train_result(trained):
    result = json.loads((trained / "train.json").read_text())
    assert result["step"] == 4
    assert result["loss"] > 0 and result["dev_loss"] > 0
    assert set(result["dev_metrics"]) == {"bleu"}
    assert result["stopped_by"] == "train_steps"
    assert result["dev_best"]["step"] == 4
    assert result["dev_average"]["checkpoints"] == 2
    assert set(result["dev_average"]) >= {"loss", "bleu"}
    assert result["target_tokens_per_s"] > 0


def test_batch_tokens_auto_is_recorded_and_not_sought_again(
    trained, capfd, monkeypatch, tmp_path
):
    from t2t_keras.training import fit_memory

    found = iter([384])
    monkeypatch.setattr(
        fit_memory, "fit_batch_tokens", lambda *args, **options: next(found)
    )
    problem = ("--problem", "translate_text", "--data_dir", trained / "data")
    hparams = "num_layers=1,d_model=16,d_ff=32,num_heads=2"
    argv = (
        *("train", *problem, "--hparams_set", "tiny", "--hparams", hparams),
        *("--batch_tokens", "auto", "--output_dir", tmp_path, "--eval_sentences", 0),
    )
    for _ in range(2):  # the second time there is nothing left to do
        assert run_json(capfd, *argv, "--train_steps", 1)["step"] == 1
        recorded = json.loads((tmp_path / "hparams.json").read_text())
        assert recorded["batch_tokens"] == 384


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_training_that_a_signal_ended_has_its_exit_code(
    name, trained, capfd, monkeypatch, tmp_path
):
    from t2t_keras.training.trainer import Trainer

    figures = {"step": 3, "stopped_by": name}
    monkeypatch.setattr(Trainer, "__init__", lambda self, *args: None)
    monkeypatch.setattr(Trainer, "train", lambda self: figures)
    problem = ("--problem", "translate_text", "--data_dir", trained / "data")
    argv = ("train", *problem, "--hparams_set", "tiny", "--output_dir", tmp_path)
    assert run(*argv) == {"SIGTERM": 143, "SIGINT": 130}[name]
    assert f"t2t train: {name}: saved step 3" in capfd.readouterr().err


def test_train_refuses_other_settings(trained, capfd):
    problem = ("--problem", "translate_text", "--data_dir", trained / "data")
    argv = ("train", *problem, "--hparams_set", "base", "--output_dir", trained / "run")
    assert run(*argv) == 2
    assert "d_model was 16, is now 512" in capfd.readouterr().err


def test_average_and_export_results(trained, capfd):
    run_dir = ("--output_dir", trained / "run")
    checkpoint = run_json(capfd, "average", *run_dir, "--minutes", 60)["checkpoint"]
    assert Path(f"{checkpoint}.index").exists()
    files = [path for path in (trained / "export").rglob("*") if path.is_file()]
    assert (trained / "export" / "saved_model.pb") in files


def test_translate_files(trained, translator, capfd, tmp_path):
    source, output = write(tmp_path / "in", *SOURCES), tmp_path / "out"
    argv = ("translate", "--output_dir", trained / "run", "--input", source)
    result = run_json(capfd, *argv, "--output", output)
    assert result["sentences"] == len(SOURCES)
    lines = output.read_text().split("\n")
    assert lines == [*translator.translate(SOURCES), ""]
    assert not list(tmp_path.glob("*incomplete*"))


def test_translate_standard_streams(trained, translator, capfd, tmp_path):
    text = "\n".join(SOURCES)  # the last line lacks its end
    (tmp_path / "in").write_text(text)
    with standard_input(tmp_path / "in"):
        result = run_json(capfd, "translate", "--output_dir", trained / "run")
    assert result["sentences"] == len(SOURCES)
    with standard_input(tmp_path / "in"):
        assert run("translate", "--output_dir", trained / "run") == 0
    lines = capfd.readouterr().out.split("\n")
    assert lines == [*translator.translate(SOURCES), ""]


def test_translate_says_which_line_is_not_utf8(trained, capfd, tmp_path):
    (tmp_path / "in").write_bytes("gut\nKöln\n".encode("latin-1"))
    argv = ("translate", "--output_dir", trained / "run")
    with standard_input(tmp_path / "in"):
        assert run(*argv) == 2
    assert "standard input, line 2" in capfd.readouterr().err
    assert run(*argv, "--input", tmp_path / "in", "--output", tmp_path / "out") == 2
    assert "in, line 2" in capfd.readouterr().err
    assert not (tmp_path / "out").exists()


def test_translate_interactively(trained, translator, capfd, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal("ein Hund\nzwei Hunde\n"))
    assert run("translate", "--output_dir", trained / "run") == 0
    captured = capfd.readouterr()
    expected = translator.translate(["ein Hund", "zwei Hunde"])
    assert captured.out.split("\n") == [*expected, ""]
    assert captured.err.count("> ") == 3


@pytest.mark.parametrize("model", ["run", "export"])
def test_n_best_lists(trained, translator, model, capfd, tmp_path):
    source, output = write(tmp_path / "in", *SOURCES), tmp_path / "out"
    flag = {"run": "--output_dir", "export": "--export_dir"}[model]
    argv = ("translate", flag, trained / model, "--input", source, "--output", output)
    assert run(*argv, "--n_best", 9) == 2
    assert "n_best 9 is more than" in capfd.readouterr().err
    beam = ("--n_best", 3, "--beam_size", 3)
    assert run(*argv, *beam) == 0
    rows = [line.split("\t") for line in output.read_text().splitlines()]
    expected = translator.n_best(SOURCES, 3, beam_size=3)
    outputs = [
        (number, rank, hypothesis)
        for number, hypotheses in enumerate(expected, 1)
        for rank, hypothesis in enumerate(hypotheses, 1)
    ]
    assert len(rows) == len(outputs) == 3 * (len(SOURCES) - 1) + 1
    for row, (number, rank, hypothesis) in zip(rows, outputs, strict=True):
        assert row[:2] == [str(number), str(rank)]
        assert float(row[2]) == pytest.approx(hypothesis.score, abs=1e-3)
        assert row[3] == hypothesis.text


def test_scores_of_one_best(trained, translator, capfd, tmp_path):
    source, output = write(tmp_path / "in", *SOURCES), tmp_path / "out"
    argv = ("translate", "--export_dir", trained / "export", "--input", source)
    assert run(*argv, "--output", output, "--scores") == 0
    best = [line.split("\t") for line in output.read_text().splitlines()]
    assert [row[0] for row in best] == ["1", "2", "3", "4", "5"]
    assert [row[3] for row in best] == translator.translate(SOURCES)


def test_sampling_follows_the_seed(trained, tmp_path):
    source = write(tmp_path / "in", *SOURCES)
    argv = ("translate", "--output_dir", trained / "run", "--input", source)
    sample = ("--sample", "--top_k", 50, "--extra_length", 5)
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert run(*argv, *sample, "--seed", seed, "--output", tmp_path / name) == 0
    a, b, c = ((tmp_path / name).read_text() for name in "abc")
    assert a == b != c


def test_long_input_is_translated_in_parts(trained, monkeypatch, tmp_path):
    from t2t_keras.cli import translation

    monkeypatch.setattr(translation, "_LINES_AT_ONCE", 2)
    test_n_best = ("--scores", "--beam_size", 1, "--extra_length", 3)
    source, output = write(tmp_path / "in", *SOURCES), tmp_path / "out"
    argv = ("translate", "--output_dir", trained / "run", "--input", source)
    assert run(*argv, *test_n_best, "--output", output) == 0
    rows = [line.split("\t")[:2] for line in output.read_text().splitlines()]
    assert rows == [[str(number), "1"] for number in range(1, 6)]


def test_score(trained, translator, capfd, tmp_path):
    source = write(tmp_path / "a", "Hund Maus", "Haus")
    target = write(tmp_path / "b", "suaM dnuH", "suaH")
    argv = ("score", "--output_dir", trained / "run", "--source", source)
    result = run_json(capfd, *argv, "--target", target, "--output", tmp_path / "s")
    scores = translator.score(["Hund Maus", "Haus"], ["suaM dnuH", "suaH"])
    assert result["log_prob"] == pytest.approx(sum(s.log_prob for s in scores))
    assert result["tokens"] == sum(s.tokens for s in scores)
    nats = -result["log_prob"] / result["tokens"]
    assert nats == pytest.approx(math.log(result["perplexity"]))
    rows = [line.split("\t") for line in (tmp_path / "s").read_text().splitlines()]
    assert [int(row[1]) for row in rows] == [s.tokens for s in scores]
    assert run(*argv, "--target", write(tmp_path / "c", "suaH")) == 2
    assert "has 2 lines" in capfd.readouterr().err


def test_evaluate_a_split(trained, translator, capfd, tmp_path):
    argv = ("evaluate", "--output_dir", trained / "run", "--beam_size", 1)
    fast = ("--extra_length", 1, "--write", tmp_path / "test")
    result = run_json(capfd, *argv, *fast)
    assert result["sentences"] == 125
    assert {"loss", "perplexity", "accuracy"} <= result.keys()
    sources = (trained / "source").read_text()
    assert (tmp_path / "test.source").read_text() == sources
    references = (trained / "target").read_text()
    assert (tmp_path / "test.reference").read_text() == references
    # The same figures from the files that it wrote.
    files = [tmp_path / f"test.{name}" for name in ("hypothesis", "reference")]
    again = ("evaluate", "--hypotheses", files[0], "--references", files[1])
    assert run_json(capfd, *again) == {"bleu": result["bleu"]}

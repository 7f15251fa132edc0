"""What a terminal shows while a user waits, drawn by a pseudo-terminal's rules."""

import contextlib
import io
import json
import os
import re
import signal
import sys
import types

import pytest
import rich.progress
from helpers.command_line import run
from helpers.json_edits import edit_json
from helpers.waiting import wait_until

from t2t_keras import console
from t2t_keras.cli.lines import open_output
from t2t_keras.console import progress
from t2t_keras.errors import printable
from t2t_keras.progress_bar import ProgressBar
from t2t_keras.training.interval import TimeLeft
from t2t_keras.training.reporting import Screen
from t2t_keras.training.settings import TrainOptions
from t2t_keras.training.stopping import Stopping


def make_terminal(monkeypatch):
    """Standard error that says it is a terminal; a fixture's would not stay."""
    stderr = io.StringIO()
    stderr.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    return stderr


def plain(text):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def final_rows(text):
    """The rows that stay: a line is erased, and the cursor goes up, as rich does."""
    rows = [""]
    column = 0
    for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", text):
        if part == "\n":
            column += 1
            rows += [""] * (column == len(rows))
        elif part == "\x1b[2K":
            rows[column] = ""
        elif part == "\x1b[1A":
            column -= 1
        elif not part.startswith(("\x1b", "\r")):
            rows[column] += part
    return [row for row in rows if row]


def test_a_spinner_has_words_and_leaves_nothing(monkeypatch):
    terminal = make_terminal(monkeypatch)

    def is_last(words, other):
        shown = plain(terminal.getvalue())
        return shown.rfind(words) > shown.rfind(other)

    with console.busy("loading"):
        with console.busy("building"):
            wait_until(lambda: is_last("building", "loading"))
        console.say("a message")
        wait_until(lambda: is_last("loading", "building"))
    assert final_rows(terminal.getvalue()) == ["a message"]
    assert sys.stderr is terminal


def test_a_failure_and_a_bar_end_the_spinner(monkeypatch):
    terminal = make_terminal(monkeypatch)
    with contextlib.suppress(KeyError), console.busy("loading"):
        raise KeyError
    assert final_rows(terminal.getvalue()) == []
    with console.busy("loading"), progress("counting", "lines", 4) as advance:
        wait_until(lambda: plain(terminal.getvalue()).count("counting") > 3)
        advance(4)
    (row,) = final_rows(terminal.getvalue())
    assert row.startswith("counting: 4 lines")
    _, *rows = plain(terminal.getvalue()).split("counting")
    assert not any("loading" in row for row in rows)


def test_only_a_terminal_has_a_spinner(capfd):
    with console.busy("loading"):
        pass
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("width", [80, 160])
def test_a_bar_is_as_wide_as_the_terminal_and_never_wraps(width, monkeypatch):
    terminal = make_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", str(width))
    bar = ProgressBar(console.screen(), rich.progress.TimeElapsedColumn())
    text = "nll 0.1676 | ETA 53 min + evaluations | 123456 tokens/s"
    bar.add_task("training", total=250_000, completed=100_000, text=text)
    bar.add_task("loss on dev", total=4, text="sentences")
    with bar:
        bar.refresh()
        with console.busy("building the graph"):
            bar.refresh()
    rows = plain(terminal.getvalue()).replace("\r", "\n").splitlines()
    training_row = [row for row in rows if "training" in row][-1]
    busy_row = [row for row in rows if "building the graph" in row][-1]
    # The terminal shows "^C" in the last columns.
    assert max(map(len, rows)) == width - 3
    assert (text in training_row) == (width == 160)
    assert "100000/250000" in training_row and "nll 0.1676 | ETA" in training_row
    assert len(re.findall("[━╸╺]", training_row)) >= (8 if width == 80 else 40)
    assert busy_row.startswith("loss on dev ━━━━━━━━")


def test_a_signal_leaves_no_bar(monkeypatch):
    """The note is in the bar, which is removed at the end."""
    terminal = make_terminal(monkeypatch)
    bar = ProgressBar(console.screen())
    bar.add_task("training", total=4, text="")
    with bar, Stopping() as stopping:
        signal.raise_signal(signal.SIGTERM)
        assert stopping.reason == "SIGTERM"
        bar.refresh()
    assert "SIGTERM: saving; once more ends at once" in terminal.getvalue()
    assert final_rows(terminal.getvalue()) == []


def test_a_signal_does_not_repeat_the_line_that_it_interrupts(monkeypatch):
    """The evaluation ends as soon as the line has been printed."""
    terminal = make_terminal(monkeypatch)
    write = terminal.write
    steps = []

    def interrupted_write(text):
        count = write(text)
        if "bleu 20.1" in text and not steps:
            steps.append("signal")
            signal.raise_signal(signal.SIGTERM)
        return count

    terminal.write = interrupted_write
    screen = Screen(TimeLeft(range(4), TrainOptions()))
    with Stopping() as stopping, stopping.interruptible():
        screen.say("bleu 20.1")
        steps.append("the evaluation continues")
    screen.say("saved")
    screen.close()
    assert steps == ["signal"]
    assert final_rows(terminal.getvalue()) == ["bleu 20.1", "saved"]
    assert terminal.getvalue().count("bleu 20.1") == 1


def test_the_next_command_is_broken_before_its_flags(monkeypatch):
    terminal = make_terminal(monkeypatch)
    monkeypatch.setenv("COLUMNS", "40")
    console.say_next("curl http://127.0.0.1:1/v1 -d '{}' --silent")
    console.say_next("")
    console.say_next("t2t list problems --json")
    console.say_next("t2t evaluate 'runs of -m' --data_dir data/of/the/training")
    assert terminal.getvalue() == (
        "next: curl http://127.0.0.1:1/v1 \\\n    -d '{}' --silent\n"
        "next: t2t list problems --json\n"
        "next: t2t evaluate 'runs of -m' \\\n    --data_dir data/of/the/training\n"
    )


def test_a_page_is_named_by_an_address(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    console.say_page("my page.html")
    assert capfd.readouterr().err == f"page: {tmp_path.as_uri()}/my%20page.html\n"


@pytest.mark.parametrize(
    ("units", "text"),
    [
        (0.0421, "0.042 steps/s"),
        (0.4, "0.4 steps/s"),
        (2.4, "2.4 steps/s"),
        (365513.0, "365,513 steps/s"),
    ],
)
def test_a_speed_below_one_is_not_zero(units, text):
    assert console.speed(units, "steps") == text


@pytest.mark.parametrize(
    ("seconds", "line"),
    [
        (0.4, "counting: 1,000 pairs"),
        (4.0, "counting: 1,000 pairs in 4.0 s (250 pairs/s)"),
        (7200.0, "counting: 1,000 pairs in 2 h 0 min (0.14 pairs/s)"),
    ],
)
def test_only_a_task_of_a_second_has_a_speed(seconds, line, monkeypatch, capfd):
    times = iter([0.0, 0.0, 0.0, seconds])
    clock = types.SimpleNamespace(monotonic=lambda: next(times))
    monkeypatch.setattr(console, "time", clock)
    with progress("counting", "pairs") as advance:
        advance(1000)
    assert capfd.readouterr().err == f"{line}\n"


def test_numbers_of_a_table_have_no_needless_digits():
    rows = {"pairs": 365513, "tokens/s": 19720.4, "seconds": 0.17, "step": "1200"}
    assert console.table(rows).splitlines() == [
        "pairs     365,513",
        "tokens/s  19,720",
        "seconds   0.17",
        "step      1200",
    ]
    assert console.columns([{"n": 1000, "p": 0.17, "x": 12.0}]).splitlines() == [
        "    n       p      x",
        "1,000  0.1700  12.00",
    ]


# What others wrote, which may have sequences for the terminal.

ESCAPES = "\x1b]0;title\x07\x1b[2J\x9b31m"


def test_what_others_wrote_cannot_act_on_a_terminal(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.yaml").write_text(f'{json.dumps(ESCAPES)}: "[31m"\n')
    (tmp_path / ESCAPES).write_text(f"{ESCAPES}\n" * 3)
    (tmp_path / "some").write_text("".join(f"a dog {n}\n" for n in range(60)))
    pairs = ("--problem", "translate_text", "--train_source", ESCAPES)
    data = ("--problem", "translate_text", "--data_dir", "data")
    texts = ("--train_source", "some", "--train_target", "some", "--workers", "1")
    assert run("datagen", *data, *texts, "--vocab_size", "280") == 0
    edit_json(tmp_path / "data/translate_text.manifest.json", **{ESCAPES: 1})
    capfd.readouterr()
    for words in (
        ("translate", ESCAPES),
        (ESCAPES,),
        ("list", ESCAPES),
        ("list", "--config", "f.yaml"),
        ("train", *data, "--output_dir", "run", "--hparams_set", "base"),
        ("inspect", *data),
        ("datagen", *pairs, "--train_target", "some", "--data_dir", "new"),
        ("evaluate", "--hypotheses", ESCAPES, "--references", "absent"),
    ):
        assert run(*words) == 2
        shown = capfd.readouterr()
        assert shown.out == "" and re.search(r"\\x1b|absent", shown.err)
        assert not re.search(r"[^\n\t -~]", shown.err)
    inspect = ("inspect", *pairs, "--train_target", "some")
    assert run(*inspect) == 2  # one file is longer
    shown = capfd.readouterr()
    assert r"\x1b]0;title" in shown.err and "\x1b" not in shown.out + shown.err


def test_tables_and_bars_have_no_control_characters(monkeypatch, capfd):
    console.say(console.table({ESCAPES: ESCAPES}), sys.stdout)
    assert capfd.readouterr().out.count(r"\x1b[2J\x9b31m") == 2
    terminal = make_terminal(monkeypatch)
    with progress(f"counting {ESCAPES} [red]", "pairs") as advance:
        advance(1)
        with console.busy(ESCAPES):
            wait_until(lambda: r"\x1b]0;title" in terminal.getvalue())
    assert "[red]" in terminal.getvalue()
    assert not re.search("[\x07\x9b]", terminal.getvalue())


def test_translations_have_none_on_a_terminal_only(monkeypatch, capfd, tmp_path):
    def written(path):
        with open_output(path, {}) as output:
            output.file.writelines([f"{ESCAPES}\n"])
            output.save()

    written(None)
    assert capfd.readouterr().out == f"{ESCAPES}\n"
    written(str(tmp_path / "file"))
    assert (tmp_path / "file").read_text() == f"{ESCAPES}\n"
    monkeypatch.setattr(os, "isatty", lambda descriptor: True)
    written(None)
    assert capfd.readouterr().out == f"{printable(ESCAPES)}\n"

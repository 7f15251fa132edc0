"""Names to problems and hparam sets, and the three ways to find definitions."""

import sys
from pathlib import Path

import pytest
from helpers.command_line import python
from helpers.errors import refused

from t2t_keras import HParams, Problem, register_hparams, register_problem, registry
from t2t_keras.usr_dir import load_usr_dir


@pytest.fixture(autouse=True)
def fresh_registry(registrations):
    """Every test registers into empty registries; modules and paths are undone."""
    registrations.clear("problems", "hparams")


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def problem_file(name: str, summary: str = "x") -> str:
    return f"""
from t2t_keras import Problem, register_problem

@register_problem
def {name}():
    return Problem(summary="{summary}")
"""


def test_function_is_registered_under_its_own_name():
    @register_problem
    def captions() -> Problem:
        return Problem(summary="Image captions", vocab_size=8000)

    assert registry.problem("captions").vocab_size == 8000
    assert registry.problem("captions").name == "captions"
    assert registry.list_problems() == {"captions": "Image captions"}
    assert isinstance(captions(), Problem)  # the decorator leaves it as it is


def test_class_is_registered_in_snake_case_with_its_attributes_as_fields():
    @register_problem
    class MyWMTCaptions(Problem):
        summary = "Captions"
        vocab_size = 123
        sources = {"dev": lambda: [("a", "b")]}  # noqa: RUF012

        @staticmethod
        def constraint(problem, tokenizer):
            return f"{problem.name}: {tokenizer}"

    problem = registry.problem("my_wmt_captions")
    assert (problem.summary, problem.vocab_size) == ("Captions", 123)
    assert problem.source("dev")() == [("a", "b")]
    assert problem.constraint(problem, "y") == "my_wmt_captions: y"
    assert problem.beam_size == Problem(summary="").beam_size


def test_an_impossible_definition_of_a_script_is_refused_at_once():
    refused("cannot be named", register_problem, Problem(name="", summary="x"))


def test_rev_swaps_the_direction_and_keeps_the_files():
    register_problem(Problem(name="captions", summary="Captions"))
    problem = registry.problem("captions_rev")
    assert problem.reverse
    assert problem.name == "captions_rev"
    assert problem.data_name == "captions"
    assert "captions_rev" not in registry.list_problems()


def test_unknown_name_suggests_the_nearest():
    register_problem(Problem(name="captions", summary="x"))

    @register_hparams
    def captions() -> HParams:
        """A narrow model.

        More words.
        """
        return HParams()

    assert registry.list_hparams() == {"captions": "A narrow model."}
    for find in (registry.problem, registry.hparams):
        refused(r"'capitons'.*did you mean 'captions'", find, "capitons")
        refused("there is no 'zzz' ", find, "zzz")


def test_a_set_that_cannot_be_made_is_listed_with_its_error():
    """Only its summary makes a set, not a look at the names."""
    made = []

    @register_hparams
    def narrow() -> HParams:
        """A narrow model."""
        made.append("narrow")
        return HParams(d_model=64, num_heads=2)

    @register_hparams
    def uneven() -> HParams:
        """An uneven model."""
        made.append("uneven")
        return HParams(d_model=64, num_heads=3)

    listed = registry.list_hparams()
    assert list(listed) == ["narrow", "uneven"] and "uneven" in listed
    assert not made
    assert listed["narrow"] == "A narrow model."
    assert made == ["narrow"]
    message = refused("not divisible by num_heads", registry.hparams, "uneven")
    assert listed["uneven"] == f"cannot be used: {message}"
    (family,) = registry.hparams_families()
    assert family.sets == listed == dict(listed)
    assert repr(listed) == repr(dict(listed))


def test_duplicate_says_where_both_are(tmp_path):
    first_file = write(tmp_path / "a" / "first.py", problem_file("captions"))
    second = write(tmp_path / "b" / "second.py", problem_file("captions"))
    load_usr_dir(first_file.parent)
    load_usr_dir(second.parent)
    message = refused("", registry.problem, "captions")
    assert f"{first_file}:4" in message and f"{second}:4" in message
    assert registry.list_problems() == {"captions": f"cannot be used: {message}"}


def test_a_definition_that_was_typed_in():
    """It has no file, and may be typed in once more."""

    for summary in ("first", "second"):
        code = compile(problem_file("typed_in", summary), "<stdin>", "exec")
        exec(code, {"__name__": "__main__"})
        assert registry.problem("typed_in").summary == summary


def test_usr_dir_of_modules(tmp_path):
    write(tmp_path / "words.py", "SUMMARY = 'from a neighbour'")
    text = problem_file("captions").replace('"x"', "SUMMARY")
    write(tmp_path / "captions_problem.py", "from words import SUMMARY\n" + text)
    for path in (tmp_path, str(tmp_path)):  # twice is as good as once
        load_usr_dir(path)
    assert registry.list_problems() == {"captions": "from a neighbour"}


def test_usr_dir_that_is_a_package(tmp_path):
    package = tmp_path / "my_package"
    write(package / "__init__.py", "from . import captions")
    write(package / "captions.py", problem_file("captions"))
    write(package / "unused.py", "raise SystemExit('is not imported')")
    load_usr_dir(package)
    assert list(registry.list_problems()) == ["captions"]
    assert "my_package.captions" in sys.modules


def test_usr_dir_hides_no_other_module(tmp_path):
    write(tmp_path / "json.py", "")
    refused(r"json\.py.*another module", load_usr_dir, tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\nx = = 2\n", r"faulty\.py:2: invalid syntax"),
        ("x = 1\n\ny = 1 / 0\n", r"faulty\.py:3: ZeroDivisionError"),
        ("import no_such_module\n", r"faulty\.py:1: ModuleNotFoundError"),
    ],
)
def test_a_faulty_user_file_is_reported_with_its_line(tmp_path, text, message):
    file = write(tmp_path / "faulty.py", text)
    refused(message, load_usr_dir, tmp_path)
    # Corrected, it can be loaded by the same process.
    write(file, problem_file("captions") + "# longer than before\n" * 9)
    load_usr_dir(tmp_path)
    assert list(registry.list_problems()) == ["captions"]


@pytest.mark.parametrize(
    ("body", "line", "message"),
    [
        ("return Problem(sumary='x')", 6, "TypeError: .*sumary"),
        ("x = 1\n    return x / 0", 7, "ZeroDivisionError"),
        ("return None", 4, "must return Problem, not NoneType"),
        ("return Problem(summary='x', vocab_size=0)", 6, "vocab_size must be at le"),
    ],
)
def test_a_definition_that_raises_is_reported_with_its_line(
    tmp_path, body, line, message
):
    text = problem_file("captions")
    head, _, _ = text.partition("    return")
    file = write(tmp_path / "faulty.py", f"{head}    {body}\n")
    load_usr_dir(tmp_path)
    told = refused(message, registry.problem, "captions_rev")
    assert told.startswith(f"{file}:{line}: 'captions': ")
    assert registry.list_problems() == {"captions": f"cannot be used: {told}"}


UNUSABLE = """
from t2t_keras import HParams, Problem, register_hparams, register_problem

@register_problem
class NoProblem:
    pass

@register_problem
def captions_rev():
    return Problem(summary="x")

@register_hparams
def base():
    return HParams()
"""


def test_unusable_definitions_of_a_usr_dir_are_listed_with_their_errors(tmp_path):
    @register_hparams
    def base() -> HParams:
        return HParams()

    write(tmp_path / "many.py", UNUSABLE + problem_file("captions"))
    load_usr_dir(tmp_path)
    listed = registry.list_problems()
    assert listed["captions"] == "x" and "captions_rev" in listed
    assert "cannot be used" in listed["no_problem"]
    assert registry.problem("captions").name == "captions"
    refused("must derive from Problem", registry.problem, "no_problem")
    refused("cannot be named 'captions_rev'", registry.problem, "captions_rev")
    refused("is already registered", registry.hparams, "base")
    assert "cannot be used" in registry.list_hparams()["base"]


def test_a_file_that_cannot_be_imported_is_left_out(tmp_path, capsys):
    write(tmp_path / "captions_problem.py", problem_file("captions"))
    faulty = write(tmp_path / "faulty.py", "import no_such_module\n")
    for _ in range(2):  # said once
        load_usr_dir(tmp_path)
    assert list(registry.list_problems()) == ["captions"]
    warning = capsys.readouterr().err
    assert warning.count("this file is left out") == 1 and f"{faulty}:1" in warning
    refused("'of_faulty'.*no_such_module", registry.problem, "of_faulty")


@pytest.mark.parametrize(
    ("name", "t2t_name"),
    [
        # By tensor2tensor's rule, worked out by hand: "_" before a capital letter that
        # a small letter or digit follows, and between those and a capital letter.
        ("TranslateEndeWmt32k", "translate_ende_wmt32k"),
        ("TRANSLATION32k", "translatio_n32k"),
        ("TranslateEnviIWSLT32k", "translate_envi_iwsl_t32k"),
        ("Translate_EnVi", "translate__en_vi"),
        ("SummarizeCNN64k", "summarize_cn_n64k"),
    ],
)
def test_names_of_classes_match_tensor2tensor(name, t2t_name):
    register_problem(type(name, (Problem,), {"summary": "x"}))
    assert registry.list_problems() == {t2t_name: "x"}
    for registered_name in (t2t_name, f"{t2t_name}_rev"):
        assert registry.problem(registered_name).name == registered_name


def test_tensorflow_1_assignments_and_names_are_refused_with_advice(tmp_path):
    text = """
import tensorflow as tf
from t2t_keras import registry, register_hparams

@register_hparams
def assigned():
    hparams = registry.hparams("base")
    hparams.num_layers = 2
    return hparams

@register_hparams
def reads_a_file():
    return tf.gfile.Open("x")
"""

    @register_hparams
    def base() -> HParams:
        return HParams()

    write(tmp_path / "sets.py", text)
    load_usr_dir(tmp_path)
    refused(r"`\.override\(num_layers=\.\.\.\)`", registry.hparams, "assigned")
    refused("import tensorflow.compat.v1 as tf", registry.hparams, "reads_a_file")


def test_entry_points_of_another_package(tmp_path):
    """What pip leaves behind of a third-party package: metadata and a module."""
    write(tmp_path / "plug.py", problem_file("plugged", "of another package"))
    info = tmp_path / "plug-1.0.dist-info"
    write(info / "METADATA", "Metadata-Version: 2.1\nName: plug\nVersion: 1.0\n")
    write(info / "entry_points.txt", "[t2t_keras.problems]\nany = plug\n")
    code = "from t2t_keras import registry; print(registry.problem('plugged').summary)"
    assert python(code, PYTHONPATH=str(tmp_path)) == "of another package\n"

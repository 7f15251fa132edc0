"""Wrong arguments of public functions: one sentence each, and never another error."""

import dataclasses
import decimal
import fractions
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from helpers.errors import refused

import t2t_keras
from t2t_keras import HParams, Problem, UserError, registry
from t2t_keras.checking import NonNegative, Positive, Rule, Seed, checked, require_type
from t2t_keras.data.datagen import generate
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.decoding.translator import Translator
from t2t_keras.exporting.saved_model import export_saved_model
from t2t_keras.problem import Cleaning, TextProcessor
from t2t_keras.run.checkpoint import average_run
from t2t_keras.training.settings import TrainOptions
from t2t_keras.usr_dir import load_usr_dir


class Unprintable:
    """An object that cannot be shown, as a user's own may be."""

    def __repr__(self):
        raise RuntimeError

    __str__ = __repr__


NAN = float("nan")
HUGE = 10**400
ODD = [
    *(None, 5, -1, 1.5, True, "", "x", b"x", [], {}, (), NAN, float("inf"), 10**30),
    *(HUGE, 1 + 2j, object(), Unprintable(), np.int64(3), np.float32(0.5)),
    *(np.array([1, 2]), np.eye(30), decimal.Decimal("1.5"), fractions.Fraction(1, 3)),
    *("\ud800", "a\nb", "\0", "a" * 5000, "1e5", [None], {"a": 1}, {1: 1}, {1}),
    *(Path("x"), range(3), iter(["a"]), lambda: 1, lambda a, b: 1, int),
]

SOME = Annotated[list[int], Rule(any, "a list with a number")]

# Each hint with the places in ODD of the values that it allows.
ALLOWED: list[tuple[Any, Callable[[Any], bool]]] = [
    (int, lambda x: type(x) in (int, np.int64)),
    (NonNegative, lambda x: type(x) in (int, np.int64) and 0 <= x <= 10**9),
    (Positive | None, lambda x: x is None or x is ODD[1] or isinstance(x, np.int64)),
    (bool, lambda x: x is True),
    (str, lambda x: isinstance(x, str)),
    (Literal["x", "y"], lambda x: isinstance(x, str) and x == "x"),
    (Mapping[str, Any], lambda x: isinstance(x, dict) and all(k == "a" for k in x)),
    (Callable[[int], None], lambda x: x is int or x is type),
    (Iterable[str], lambda x: True),
    (tuple[()], lambda x: isinstance(x, list | tuple) and not x),
    (typing.List, lambda x: isinstance(x, list)),  # noqa: UP006
    (typing.Dict, lambda x: isinstance(x, dict)),  # noqa: UP006
    (typing.Tuple | None, lambda x: x is None or isinstance(x, tuple)),  # noqa: UP006
    (Any, lambda x: True),
]


@pytest.mark.parametrize(
    ("hint", "is_allowed"), ALLOWED, ids=[str(hint)[:30] for hint, _ in ALLOWED]
)
def test_what_a_hint_allows(hint, is_allowed):
    for value in ODD:
        if is_allowed(value):
            require_type("x", hint, value)
        else:
            refused("^x must be ", require_type, "x", hint, value)


@pytest.mark.parametrize(
    ("hint", "value", "message"),
    [
        (float, NAN, "x must be a finite number, not nan"),
        (float, HUGE, "x must be a finite number, not 1000"),
        (float, True, "x must be a finite number, not True"),
        (Positive, 0, "x must be at least 1 and at most 1000000000, not 0"),
        (Positive, True, "x must be an integer, at least 1 and at most "),
        (Seed, 2**31, f"x must be at least 0 and at most {2**31 - 1}, not {2**31}"),
        (str | Path | None, 5, "x must be a path or None, not 5"),
        (str | Path, b"x", "x must be a path, not b'x'"),
        (str | Path, "a\0b", r"x: 'a\\x00b' has a NUL, which no file name has"),
        (str | Path, "\ud800", "has a lone surrogate, which no file name has"),
        (str | Path, "a" * 5000, "x: 'aaa.* is too long"),
        (Sequence[str], "abc", "x must be a list, each item of which is text, not 'a"),
        (Sequence[str], ["a", 5], r"x\[1\] must be text, not 5"),
        (tuple[()], ["a"], r"x must be \(\), not \['a'\]"),
        (typing.List, 5, "x must be list, not 5"),  # noqa: UP006
        (tuple[str, str], ("a",), r"x must be \(text, text\), not \('a',\)"),
        (Callable[[], None], lambda a: 1, "x must be a function without arguments"),
        (Callable[[int], None], 5, "x must be a function of one argument, not 5"),
        (Callable[[int, int], None], int.bit_count, "a function of 2 arguments"),
        (Callable[..., None], 5, "x must be a function, not 5"),
        (Literal["a", "b"], ["a"], r"x must be one of a, b, not \['a'\]"),
        (Mapping[str, Any], {5: 1}, "x must be a mapping of text to anything"),
        (Mapping[str, Positive], {"a": 0}, "x.a must be at least 1 and at most 10"),
        (
            dict[str, list[int]],
            {"a": [1, "2"]},
            r"x.a\[1\] must be an integer, not '2'",
        ),
        (tuple[int, ...] | None, [1, "2"], r"x\[1\] must be an integer, not '2'"),
        (list[Positive | None], [None, 0], r"x\[1\] must be at least 1 .* or None, "),
        (SOME, [0], "a list with a number"),
        (SOME, ["a"], r"x\[0\] must"),
        (TrainOptions, 5, "x must be TrainOptions, not 5"),
        (int, np.eye(9), r"x must be an integer, not array\(\[\[1., 0., 0."),
        (int, Unprintable(), "x must be an integer, not a Unprintable"),
    ],
)
def test_the_sentence(hint, value, message):
    sentence = refused(message, require_type, "x", hint, value)
    assert len(sentence) < 160


def test_a_checked_function_is_itself():
    @checked
    def area(width: int, height: "int" = 2, *extents: int, **options: int) -> int:
        """Returns the area."""
        return width * height

    assert area(3) == 6 and area(height=np.int64(4), width=1) == 4
    assert area.__doc__ == "Returns the area." and area.__name__ == "area"
    assert area(1, 2, "any", other="any") == 2
    refused("height must be an integer, not '2'", area, 1, "2")
    with pytest.raises(TypeError, match="missing 1 required"):
        area()


def never_foreign(call):
    """Asserts that a call ends, or is refused in one line."""
    try:
        call()
    except UserError as error:
        assert "\n" not in str(error)


# For each function the arguments that it needs, and those that are tried. The files are
# absent, and "x" is neither a problem nor a run.
X = {"output_dir": "x"}
CALLS = {
    "average": (X | {"last": 1}, ("output_dir", "last")),
    "compare": ({}, ("metric", "references", "bootstrap_samples", "tokenize")),
    "datagen": (
        {"problem": "x", "data_dir": "y"},
        ("problem", "data_dir", "train_source", "vocab", "seed", "workers"),
    ),
    "evaluate": (X, ("output_dir", "split", "checkpoint", "eval_sentences", "engine")),
    "export": (
        X | {"export_dir": "y"},
        ("output_dir", "export_dir", "format", "verify", "ensemble", "alpha"),
    ),
    "import_model": (
        X | {"source": "x"},
        ("source", "output_dir", "program", "verify", "last"),
    ),
    "inspect": ({}, ("problem", "train_source", "languages", "page", "usr_dir")),
    "load": (X, ("output_dir", "checkpoint", "ensemble")),
    "train": (
        X | {"problem": "x", "data_dir": "y"},
        (
            *("problem", "hparams_set", "data_dir", "output_dir", "hparams"),
            *("train_steps", "seed", "init_from", "accumulate", "simulate_devices"),
            *("usr_dir", "change_settings", "callbacks", "save_every", "best_by"),
        ),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_functions_refuse_wrong_arguments(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    function = getattr(t2t_keras, name)
    needed, arguments = CALLS[name]
    for argument in arguments:
        for value in ODD:
            changed = needed | {argument: value}
            never_foreign(lambda changed=changed: function(**changed))


@pytest.mark.parametrize(
    ("name", "argument", "value", "message"),
    [
        ("load", "output_dir", None, "output_dir must be a path, not None"),
        ("load", "ensemble", "run", "ensemble must be a list, each"),
        ("load", "checkpoint", True, "checkpoint must be an integer, a path or None"),
        ("train", "simulate_devices", -1, "devices must be at least 0 and at most 256"),
        ("train", "simulate_devices", NAN, "simulate_devices must be an integer, "),
    ],
)
def test_what_functions_say(name, argument, value, message):
    changed = CALLS[name][0] | {argument: value}
    refused(message, getattr(t2t_keras, name), **changed)


def test_the_arguments_of_n_best():
    translator = object.__new__(Translator)  # it is not needed for the checks
    for name, allowed in (("start_index", (5, np.int64(3))), ("advance", (int, None))):
        for value in ODD:
            if any(value is x or type(value) is np.int64 for x in allowed):
                continue
            call = translator.n_best
            refused(f"^{name} must be ", call, ["a"], **{name: value})


def test_other_public_functions(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    problem = Problem(summary="s")
    for value in ODD:
        for call in (
            lambda value=value: registry.problem(value),
            lambda value=value: registry.hparams(value),
            lambda value=value: load_usr_dir(value),
            lambda value=value: generate(value, tmp_path),
            lambda value=value: generate(problem, tmp_path, value),
            lambda value=value: average_run(value, 1),
            lambda value=value: average_run(tmp_path, value),
            lambda value=value: export_saved_model(value, tmp_path),
            lambda value=value: HParams().parse(value),
            lambda value=value: HParams.from_dict(value),
        ):
            never_foreign(call)


@pytest.mark.parametrize(
    "cls", [HParams, TrainOptions, DecodingOptions, Problem, Cleaning, TextProcessor]
)
def test_fields_of_records(cls):
    needed = {"summary": "s"} if cls is Problem else {}
    for name in (field.name for field in dataclasses.fields(cls)):
        for value in ODD:
            never_foreign(lambda field={name: value}: cls(**needed | field))
            if cls is HParams:
                never_foreign(lambda field={name: value}: HParams().override(**field))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_length": -1}, "problem 'p': max_length must be at least 1"),
        ({"sources": {"train": 5}}, "sources.train must be a function without argu"),
        ({"name": 5}, "problem 5: name must be text, not 5"),
    ],
)
def test_a_problem_of_wrong_fields(fields, message):
    refused(message, Problem, **{"name": "p", "summary": "s"} | fields)
    Problem(name="p", summary="s", languages=["en", "de"], beam_size=np.int64(2))


def test_integers_are_small_enough_for_a_graph():
    for cls, name in ((HParams, "train_steps"), (TrainOptions, "save_every")):
        message = f"{name} must be at least 1 and at most 1000000000"
        refused(message, cls, **{name: 10**30})


def test_the_text_of_a_user_is_shown_in_one_line():
    assert refused("is not key=value", HParams().parse, "a\nb") == (
        r"--hparams: 'a\nb' is not key=value"
    )

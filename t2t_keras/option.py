"""Options: dataclass fields with a meaning and limits; and the error of a wrong value.

`HParams`, `TrainOptions` and `DecodingOptions` consist of options.
"""

import contextlib
import dataclasses
import difflib
import importlib.util
import math
import numbers
import operator
import os
import re
import sys
import tempfile
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, BinaryIO, Literal, get_args, get_origin


class UserError(Exception):
    """A user's mistake, described in one sentence.

    The sentence names the file, line, field or option and says what to do. The command
    line prints it without a traceback and ends with exit code 2. It is always one line:
    line breaks, which the user's text may have, are shown as in code.
    """

    def __str__(self) -> str:
        text = super().__str__()
        return text.replace("\r", "\\r").replace("\n", "\\n")


def require_unicode(name: str, text: str) -> None:
    """Refuses lone surrogates, which no encoding of Unicode has.

    Raises:
        UserError: the text has one.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"{name}: character {error.start + 1} is a lone surrogate, which is not "
            "text; remove it"
        ) from None


_ADDRESS = re.compile(r"[A-Za-z][\w+.-]+:/")  # a `Path` has one slash


def require_local(name: str, path: object) -> None:
    """Refuses the address of remote storage, such as `gs://bucket/data`.

    Args:
        name: the flag or argument, for the message.
        path: its value; anything but a path or a string is accepted.

    Raises:
        UserError: it is an address.
    """
    if isinstance(path, str | Path) and _ADDRESS.match(str(path)):
        raise UserError(
            f"{name}: {path} is not a path of this machine; copy the files to a local "
            "disk, or mount the storage (gcsfuse, s3fs), and give that path"
        )


_LONGEST_POINTER = 4096  # bytes
# What Git LFS and git-annex have in place of a file that was not downloaded.
_LFS_POINTER = re.compile(
    rb"version https?://[\w./-]+/spec/v\d\r?\n(?:ext-[^\n]*\n)*oid \w+:[0-9a-f]+\r?\n"
    rb"size \d+\s*"
)
_ANNEX_POINTER = re.compile(rb"(?:\.\./)*/?(?:\.git/)?annex/objects/[^\n]*\s*")


def require_fetched(name: str, head: bytes) -> None:
    """Refuses a small file that stands for a large one in a clone of a repository.

    Args:
        name: the file, for the message.
        head: its beginning, or all of it.

    Raises:
        UserError: it is a pointer of Git LFS or git-annex.
    """
    if _LFS_POINTER.fullmatch(head):
        raise UserError(
            f"{name} is a pointer of Git LFS, not the file itself; run `git lfs pull` "
            "in its repository"
        )
    if _ANNEX_POINTER.fullmatch(head):
        raise UserError(
            f"{name} is a pointer of git-annex, not the file itself; run `git annex "
            "get` in its repository"
        )


def require_fetched_file(path: str | Path) -> None:
    """Refuses a file as `require_fetched` does; one that cannot be read is accepted.

    Raises:
        UserError: it is a pointer.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(_LONGEST_POINTER)
    except OSError:
        return
    require_fetched(str(path), head)


def require_extra(extra: str, purpose: str, *modules: str) -> None:
    """Refuses to go on without the optional packages of an extra.

    Args:
        extra: the name of the extra in `pyproject.toml`.
        purpose: the file or feature that needs it, for the message.
        *modules: the modules that are imported from its packages.

    Raises:
        UserError: one of them is not installed.
    """
    for module in modules:
        try:
            absent = importlib.util.find_spec(module) is None
        except ModuleNotFoundError:  # the package in which the module would be
            absent = True
        if absent:
            raise UserError(
                f"{purpose} needs {module}, which is not installed: "
                f'pip install "t2t_keras[{extra}]"'
            )


def shown(value: object) -> str:
    """Returns a value as code, in one line of at most 80 characters, for a message."""
    try:
        text = repr(value)
    except Exception:  # of a class of the user
        text = f"a {type(value).__name__}"
    return " ".join(text.split())[:80]


def is_finite(number: Any) -> bool:
    """Returns whether a number is finite as a `float`."""
    try:
        return math.isfinite(number)
    except OverflowError:  # an integer of hundreds of digits
        return False


def first_line(error: Exception) -> str:
    """Returns the first line of an error's message, for a message of one sentence."""
    return str(error).strip().partition("\n")[0]


@contextlib.contextmanager
def diverted_stderr() -> Iterator[BinaryIO]:
    """Diverts standard error to a file, including what C++ code prints.

    Yields:
        The file.
    """
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield file
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)


def plugins(kind: str) -> dict[str, Any]:
    """Returns what installed packages add to t2t_keras, by name.

    Entry points of these groups are loaded when they are first needed:

    - `t2t_keras.problems`, `.models`, `.hparams`, `.scorers`: modules that register
      definitions;
    - `t2t_keras.verbs`: a `cli.verb.Verb` for each verb of `t2t`;
    - `t2t_keras.formats`: a `data.pair_files.Format` for each suffix of files of pairs;
    - `t2t_keras.archives`: a `data.sources.ArchiveFormat`;
    - `t2t_keras.tokenizers`: a `text.tokenizer.Tokenizer` class for each
      `Problem.tokenizer`;
    - `t2t_keras.exports`: an `export.formats.ExportFormat` for each `--format`;
    - `t2t_keras.counterparts`: a function that `counterpart` calls;
    - `t2t_keras.remarks`: a function that `remarks` calls;
    - `t2t_keras.optimizers`: a `training.optimizer.Optimizer` for each value of the
      hyper-parameter `optimizer`, made of the weights by name and the `HParams`.

    A plugin that cannot be imported is left out with a warning.

    Args:
        kind: the group, without `t2t_keras.`.
    """
    found = {}
    for entry in entry_points(group=f"t2t_keras.{kind}"):
        try:
            found[entry.name] = entry.load()
        except UserError:
            raise
        except Exception as error:
            if _is_absent(error, entry.module):
                continue
            print(
                f"t2t_keras: the plugin {entry.value} cannot be imported: "
                f"{type(error).__name__}: {first_line(error)}",
                file=sys.stderr,
            )
    return found


def plugin_names(kind: str) -> list[str]:
    """Returns the names of `plugins` without importing them."""
    return sorted(entry.name for entry in entry_points(group=f"t2t_keras.{kind}"))


def _is_absent(error: Exception, module: str) -> bool:
    """Returns whether the plugin's own module is missing, as after its deletion."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    return name is not None and f"{module}.".startswith(f"{name}.")


def nearest(name: str, names: Iterable[str], form: str = "'{}'") -> str:
    """Returns "; did you mean 'x'?", or "" if no name is near the one that is wrong.

    Args:
        name: the name that the user gave.
        names: the names that there are.
        form: how the nearest one is written.
    """
    near = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {form.format(*near)}?" if near else ""


def counterpart(place: str, name: str, value: str = "") -> str:
    """Returns what plugins say of a name that is not ours but another toolkit's.

    Args:
        place: where the user has given it: a verb of `t2t` for a flag, "t2t" for a
            verb; "hparams", "decode_hparams" or "train_options" for a key.
        name: the name, of a flag with its hyphens.
        value: the value that the user has given, if there is one.

    Returns:
        A sentence that says what to use here; "" if no plugin knows the name.
    """
    explained = (explain(place, name, value) for explain in _functions("counterparts"))
    return next(filter(None, explained), "")


def remarks(hparams_set: str, changes: Iterable[str]) -> list[str]:
    """Returns what plugins say of changes to an hparam set, before a training.

    Args:
        hparams_set: the name of the set.
        changes: the names of the hyper-parameters that the user changes.
    """
    names = list(changes)
    return [
        sentence
        for remark in _functions("remarks")
        for sentence in remark(hparams_set, names)
    ]


def _functions(kind: str) -> list[Callable[..., Any]]:
    return list(plugins(kind).values())


def unknown(
    place: str, name: str, names: Iterable[str], value: str = "", noun: str = ""
) -> str:
    """Returns the message for an unknown option: its counterpart or the nearest name.

    Args:
        place: see `counterpart`.
        name: the option that the user gave.
        names: the options that there are.
        value: the value that the user gave.
        noun: what the name is, with a space after it, for the message.
    """
    explained = counterpart(place, name, value)
    return explained or f"there is no {noun}'{name}'{nearest(name, names)}"


# The largest integer for a graph, whose integers have 32 bits; some are doubled there.
_LARGEST = 10**9

_LIMITS = {
    "least": (operator.ge, "at least"),
    "above": (operator.gt, "above"),
    "most": (operator.le, "at most"),
    "below": (operator.lt, "below"),
}
_KINDS: dict[Any, tuple[Any, str]] = {
    bool: (bool, "true or false"),
    int: (numbers.Integral, "an integer"),
    float: (numbers.Real, "a number"),
    str: (str, "text"),
}


def option(
    default: Any,
    meaning: str,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    **uses: Any,
) -> Any:
    """Returns the dataclass field for an option.

    An integer without an upper limit is at most 10^9, so that graphs can have it.

    Args:
        default: the default value.
        meaning: what the option does, for `t2t list` or the flag's help.
        least: the smallest possible value.
        above: a number below all possible values.
        most: the largest possible value.
        below: a number above all possible values.
        **uses: further metadata, see `names`.
    """
    limits = {"least": least, "above": above, "most": most, "below": below}
    about = {"meaning": meaning, **limits, **uses}
    return dataclasses.field(default=default, metadata=about)


def names(options: type, use: str) -> list[str]:
    """Returns the names of the options whose metadata `use` is true."""
    return [f.name for f in dataclasses.fields(options) if f.metadata.get(use)]


def conditions(options: type, values: Mapping[str, Any]) -> Iterator[tuple[Any, str]]:
    """Yields what must hold for the values of options, and the message if not.

    Args:
        options: the dataclass.
        values: some options by name, as numbers or as scalar tensors. None is not
            checked.
    """
    for field in dataclasses.fields(options):
        if (value := values.get(field.name)) is None:
            continue
        if field.type is float:  # the comparison is false for NaN as well
            yield abs(value) < math.inf, f"{field.name} must be a finite number"
        limits = {k: v for k in _LIMITS if (v := field.metadata[k]) is not None}
        text = " and ".join(f"{_LIMITS[k][1]} {v}" for k, v in limits.items())
        for kind, limit in limits.items():
            yield _LIMITS[kind][0](value, limit), f"{field.name} must be {text}"
        if field.type in (int, int | None) and not limits.keys() & {"most", "below"}:
            yield value <= _LARGEST, f"{field.name} must be at most {_LARGEST}"


def split_pairs(text: str, prefix: str = "") -> dict[str, str]:
    """Returns the values in `"a=1,b=[2,3]"` by name; [...] may have commas.

    Args:
        text: the value of a flag.
        prefix: begins the message.

    Raises:
        UserError: a part is not `key=value`, or a key is given twice.
    """
    pairs: dict[str, str] = {}
    for item in filter(None, map(str.strip, re.split(r",(?![^\[]*\])", text))):
        name, equals, value = map(str.strip, item.partition("="))
        if not equals:
            raise UserError(f"{prefix}'{item}' is not key=value")
        if name in pairs:
            raise UserError(f"{prefix}'{name}' is given twice")
        pairs[name] = value
    return pairs


def typed(
    options: type, name: str, value: Any, prefix: str = "", place: str = ""
) -> Any:
    """Returns a value, which may be given as text, in the type of an option.

    Args:
        options: the dataclass.
        name: the option.
        value: its value; other types than bool, int and float are returned as given.
        prefix: begins the message.
        place: see `counterpart`.

    Raises:
        UserError: there is no such option, or the value has another type.
    """
    kinds = {field.name: field.type for field in dataclasses.fields(options)}
    if name not in kinds:
        raise UserError(f"{prefix}{unknown(place, name, kinds, str(value))}")
    kind = kinds[name]
    if isinstance(kind, types.UnionType) and isinstance(value, str):
        kind = get_args(kind)[0]  # of `int | None`
    try:
        if kind is bool:
            values = {"true": True, "1": True, "false": False, "0": False}
            text = value if isinstance(value, str) else shown(value)
            return values[text.lower()]
        if kind is float or kind is int:
            if isinstance(value, bool):
                raise ValueError
            number = float(value)
            if not math.isfinite(number) or (kind is int and not number.is_integer()):
                raise ValueError
            return int(number) if kind is int else number
    except (KeyError, OverflowError, TypeError, ValueError):
        expected = _KINDS[kind][1]
        raise UserError(
            f"{prefix}{name} must be {expected}, not {shown(value)}"
        ) from None
    return value


def parse_options(options: type, text: str, place: str = "") -> dict[str, Any]:
    """Returns the options of a text such as `"truncate=true,protect=[url,email]"`.

    Args:
        options: the dataclass.
        text: the text.
        place: see `counterpart`.

    Raises:
        UserError: there is no such option, or a value has another type.
    """
    parsers = {f.name: f.metadata.get("parse") for f in dataclasses.fields(options)}
    found = {}
    for name, value in split_pairs(text).items():
        parse = parsers.get(name)
        found[name] = parse(value) if parse else typed(options, name, value, "", place)
    return found


def check(options: type, values: Mapping[str, Any], prefix: str = "") -> None:
    """Checks the types and limits of options.

    Args:
        options: the dataclass.
        values: some options by name.
        prefix: begins the message.

    Raises:
        UserError: a value is impossible.
    """
    for field in dataclasses.fields(options):
        if field.name not in values:
            continue
        value, kind = values[field.name], field.type
        if get_origin(kind) is Literal:
            choice = get_args(kind)
            if not isinstance(value, str) or value not in choice:
                raise UserError(
                    f"{prefix}{field.name} must be one of {', '.join(choice)}, not "
                    f"{shown(value)}"
                )
        if isinstance(kind, types.UnionType):  # such as int | None
            kind = get_args(kind)[0] if value is not None else None
        if kind in _KINDS:
            expected, name = _KINDS[kind]
            is_bool = isinstance(value, bool)
            if not isinstance(value, expected) or is_bool != (kind is bool):
                raise UserError(
                    f"{prefix}{field.name} must be {name}, not {shown(value)}"
                )
            if kind is float and not is_finite(value):
                raise UserError(f"{prefix}{field.name} must be a finite number")
    for holds, message in conditions(options, values):
        if not holds:
            raise UserError(f"{prefix}{message}")

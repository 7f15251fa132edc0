"""JSON files, which are written atomically and may carry a checksum.

`from_fields` reads one into a dataclass and checks its types. A log has a JSON object
in each line and no checksum; its damaged lines are skipped with a warning.
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING
from pathlib import Path
from typing import Annotated, Any, TextIO, TypeVar, cast

from t2t_keras.checking import Rule, TypeMismatchError, resolved_hints, validated
from t2t_keras.console import say
from t2t_keras.errors import UserError, did_you_mean
from t2t_keras.files.atomic import atomic

CHECKSUM = "sha256"  # the field with the digest of all other fields


def write_json(path: Path, value: object, with_checksum: bool = False) -> None:
    """Writes a value as JSON, atomically.

    Args:
        path: the file.
        value: the value.
        with_checksum: whether to add the `digest` of the value, an object, as a field,
            which `read_json` compares.
    """
    if with_checksum:
        fields = json.loads(json.dumps(value))  # as it is read later
        fields.pop(CHECKSUM, None)
        value = fields | {CHECKSUM: digest(fields)}
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    try:
        content = text.encode()
    except UnicodeEncodeError:  # a lone surrogate, as in a path that is not UTF-8
        content = f"{json.dumps(value, indent=2)}\n".encode()
    with atomic(path) as incomplete:
        incomplete.write_bytes(content)


def digest(fields: Mapping[str, object]) -> str:
    """Returns a SHA-256 of fields, which does not depend on their order."""
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def read_json(
    path: Path, otherwise: str = "remove it and run the same command again"
) -> dict[str, Any] | None:
    """Reads an object that `write_json` wrote; returns None if there is no such file.

    The content is compared with the checksum, unless the user has removed that field.

    Args:
        path: the file.
        otherwise: what the user should do if the file is damaged and has no copy.

    Raises:
        UserError: the file is damaged, or it has been changed.
    """
    if not path.exists():
        return None
    restore = f"restore it from a copy, or {otherwise}"
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; {restore}") from None
    except (ValueError, RecursionError):
        raise UserError(f"{path} is damaged: it is not valid JSON; {restore}") from None
    if not isinstance(fields, dict):
        raise UserError(f"{path} is damaged: it is not a JSON object; {restore}")
    if CHECKSUM in fields and fields.pop(CHECKSUM) != digest(fields):
        raise UserError(
            f"{path} has been damaged or edited: its content does not have the "
            f"checksum in its field '{CHECKSUM}'; {restore} (remove that field if you "
            "have edited the file yourself)"
        )
    return fields


def sha256(path: Path) -> str:
    """Returns the SHA-256 of a file's bytes, as `sha256sum` prints it.

    Raises:
        UserError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None


def hash_64(content: bytes) -> int:
    """Returns a hash of 64 bits."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def open_log(path: Path) -> TextIO:
    """Opens a log for appending.

    A last line that a kill or a full disk left unfinished gets a line break.
    """
    file = open(path, "a+", encoding="utf-8")  # noqa: SIM115  (it is returned)
    size = os.fstat(file.fileno()).st_size
    is_unfinished = size and os.pread(file.fileno(), 1, size - 1) != b"\n"
    if is_unfinished:
        file.write("\n")
    return file


def read_log(
    path: Path,
    is_valid: Callable[[dict[str, Any]], bool] = bool,
    warns: bool = True,
) -> list[dict[str, Any]]:
    """Returns the objects in a log, and warns of lines that are damaged.

    Args:
        path: the file; if it is absent, there are no objects.
        is_valid: returns whether an object is one that a program has written.
        warns: whether to warn; a log that is read again and again warns once.
    """
    lines = path.read_bytes().splitlines() if path.exists() else []
    objects = []
    damaged: list[int] = []
    for line_number, line in enumerate(lines, 1):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):  # it is not JSON or not UTF-8
            value = None
        if isinstance(value, dict) and is_valid(value):
            objects.append(value)
        else:
            damaged.append(line_number)
    if damaged and warns:
        say(
            f"warning: {path}: damaged lines are passed over: {len(damaged)} of "
            f"{len(lines)}, the first is line {damaged[0]}"
        )
    return objects


def without_repeated_steps(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the records of a training in the order of their steps.

    A training that was killed may have recorded steps which it repeats when it is
    resumed; the later records count.

    Args:
        records: objects of a log in its order; each has an integer "step".
    """
    latest: list[dict[str, Any]] = []
    for record in records:
        while latest and latest[-1]["step"] >= record["step"]:
            latest.pop()
        latest.append(record)
    return latest


T = TypeVar("T")

TWO = Rule(lambda items: len(items) == 2, "a list of 2")
FileName = Annotated[
    str,
    Rule(
        lambda name: Path(name).name == name != "",
        "the name of a file in its directory",
    ),
]


def _is_path(text: str) -> bool:
    """Returns whether the system takes a text as a path."""
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return "\0" not in text


_TEXT = Rule(_is_path, "text without U+0000 and lone surrogates")


def from_fields(cls: type[T], fields: Mapping[str, object], path: Path) -> T:
    """Returns the dataclass that the fields of a JSON file stand for.

    Lists become tuples where the dataclass has tuples. A field with a default may be
    absent.

    Args:
        cls: the dataclass.
        fields: the fields by name.
        path: the file, for the messages.

    Raises:
        UserError: a field is missing, unknown or of another type.
    """
    assert dataclasses.is_dataclass(cls)
    hints = resolved_hints(cls)
    names = [field.name for field in dataclasses.fields(cls)]
    values: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        if field.name in fields:
            hint: Any = hints[field.name]
            values[field.name] = typed_value(hint, fields[field.name], field.name, path)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise UserError(
                f"{path}: the field '{field.name}' is missing; restore the file from a "
                "copy"
            )
    for name in fields:
        if name not in names:
            raise UserError(
                f"{path}: there is no field '{name}'{did_you_mean(name, names)}; "
                "restore the file from a copy, or use the version of this program "
                "that wrote it"
            )
    return cls(**values)


def typed_value(hint: type[T], value: object, name: str, path: Path) -> T:
    """Returns a value of a JSON file, which must have the type of its field.

    Args:
        hint: the type.
        value: the value.
        name: the name of the field.
        path: the file, for the message.

    Raises:
        UserError: the value has another type.
    """
    try:
        return cast(T, validated(hint, value, name, _TEXT))
    except TypeMismatchError as error:
        expected = error.expected.replace(" or None", " or null")
        raise UserError(
            f"{path}: the field '{error.name}' must be {expected}, not "
            f"{error.value!r:.80}; restore the file from a copy"
        ) from None

"""UserError, and functions that make or raise its one sentence."""

import contextlib
import difflib
import importlib.util
import os
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path


class UserError(Exception):
    r"""A user's mistake, described in one sentence.

    The sentence names the file, line, field or option and says what to do. The command
    line prints it without a traceback and ends with exit code 2. Control characters
    and line breaks in it are shown as in code, so that it is always one line.
    """

    def __str__(self) -> str:
        return printable(super().__str__()).replace("\n", "\\n")

    def _render_traceback_(self) -> list[str]:
        """Returns what a notebook shows: the sentence. It is a hook of IPython."""
        return [f"{type(self).__name__}: {self}"]


# All of C0 but tab and line feed, DEL, C1, and bytes of file names that are not UTF-8.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\udc80-\udcff]")


def printable(text: str) -> str:
    r"""Returns a text without control characters, which would act on a terminal.

    They are shown as in code, such as `\x1b`; tabs and line feeds stay.
    """
    return _CONTROLS.sub(lambda match: ascii(match[0])[1:-1], text)


def short_repr(value: object) -> str:
    """Returns a value as code, in one line of at most 80 characters, for a message."""
    try:
        text = repr(value)
    except Exception:  # a user's class may raise any error
        text = f"a {type(value).__name__}"
    text = " ".join(text.split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def first_line(error: Exception) -> str:
    """Returns the first line of an error's message, for a message of one sentence.

    Keras first names the layer that was called, and then gives the reason in bold.
    """
    message = re.sub(r"\x1b\[\d*m", "", str(error)).strip()
    if message.startswith("Exception encountered when calling "):
        message = message.partition("\n")[2].strip() or message
    return message.partition("\n")[0]


# A flag, or an option of decoding, and its value or the word that stands for it.
_FLAG = re.compile(
    r"(?<![\w/.-])--(decode_hparams )?([a-z]\w*)"
    r"(?:=([\w.,=*-]*\w)| (\w+=[\w.,=*]*\w)| ([B-Z]|[A-Z]{2,}|\d+)\b)?"
)


def flags_as_arguments(
    text: str, names: Mapping[str, str] | None = None, switches: Collection[str] = ()
) -> str:
    """Returns a message with arguments of Python's functions in place of flags.

    Commands in backticks keep their flags.

    Args:
        text: the message.
        names: the names of arguments by the words of their flags, where they differ.
        switches: the words of the flags that take no value.
    """

    def argument(match: re.Match[str]) -> str:
        is_option, word, value, pair, placeholder = match.groups()
        name = (names or {}).get(word, word)
        if word in switches:
            return f"{name}=True"
        if is_option and value:
            pairs = f"{word}={value}".replace(",", ", ")
            return re.sub(r"(?<==)[^,]+", lambda match: _literal(match[0]), pairs)
        if text := value or pair:
            return f"{name}={_literal(text)}"
        return f"{name}={placeholder}" if placeholder else name

    parts = text.split("`")
    for i, part in enumerate(parts):
        if i % 2:  # it was in backticks
            if not part.startswith("--"):
                continue  # a command
            part = re.sub(r"(--(?!decode_hparams)\w+) (?=\w)", r"\1=", part)
            part = part.replace(" --", ", --")
        parts[i] = _FLAG.sub(argument, part)
    return "`".join(parts)


def _literal(text: str) -> str:
    """Returns the value of a flag as Python has it; `N` or `NAME` stands for one."""
    if text in ("true", "false"):
        return text.capitalize()
    is_bare = re.fullmatch(r"-?\d+(\.\d+)?|[A-Z]+", text)
    return text if is_bare else f'"{text}"'


def did_you_mean(name: str, names: Iterable[str], template: str = "'{}'") -> str:
    """Returns "; did you mean 'x'?", or "" if no name is similar.

    Args:
        name: the name that the user gave.
        names: the valid names.
        template: the format of the suggested name.
    """
    names = list(names)
    if misspelt := misspelt_names(name, names):
        matches = difflib.get_close_matches(name, misspelt, n=1, cutoff=0)
    else:
        matches = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {template.format(*matches)}?" if matches else ""


def misspelt_names(name: str, names: Iterable[str]) -> list[str]:
    """Returns the names that differ by one letter, or by two swapped letters.

    Hyphens equal underscores, and upper case equals lower case.
    """
    return [right for right in names if _is_misspelling(name, right)]


def _is_misspelling(name: str, right: str) -> bool:
    """Returns whether a name is misspelt from the right one, see `misspelt_names`."""
    name, right = (text.replace("-", "_").lower() for text in (name, right))
    letters = enumerate(zip(name, right, strict=False))
    shorter = min(len(name), len(right))
    start = next((i for i, (x, y) in letters if x != y), shorter)
    name = name[start:]
    right = right[start:]
    swapped = name[1:2] + name[:1] + name[2:]
    return right in (name[1:], swapped) or right[1:] in (name, name[1:])


def require_unicode(name: str, text: str) -> None:
    """Refuses lone surrogates, which cannot be encoded.

    Raises:
        UserError: the text has a lone surrogate.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"{name}: character {error.start + 1} is a lone surrogate, which is not "
            "text; remove it"
        ) from None


_ADDRESS = re.compile(r"[A-Za-z][\w+.-]+:/")  # `Path` joins two slashes to one


_UNREADABLE_NAME = re.compile("[*?\\[\\\\\udc80-\udcff]")


def require_local(name: str, path: object) -> None:
    """Refuses the address of remote storage, such as `gs://bucket/data`.

    Args:
        name: the flag or argument, for the message.
        path: its value; values other than paths and strings are accepted.

    Raises:
        UserError: it is an address.
    """
    if isinstance(path, str | Path) and _ADDRESS.match(str(path)):
        raise UserError(
            f"{name}: {path} is not a path of this machine; copy the files to a local "
            "disk, or mount the storage (gcsfuse, s3fs), and give that path"
        )


def require_readable_name(name: str, path: object) -> None:
    """Refuses a directory in which TensorFlow would not find what it wrote.

    Args:
        name: the flag or argument, for the message.
        path: the directory.

    Raises:
        UserError: TensorFlow takes its path for a pattern, or it is not UTF-8.
    """
    absolute = os.path.abspath(str(path))
    if _UNREADABLE_NAME.search(absolute):
        raise UserError(
            f"{name}: TensorFlow cannot read files in {absolute!r}, because it takes "
            "*, ?, [ and \\ in paths for wildcards, and no path that is not UTF-8; "
            "name another directory"
        )


def require_extra(extra: str, purpose: str, *modules: str) -> None:
    """Refuses a feature whose optional packages are not installed.

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
        except ModuleNotFoundError:  # the package of the module is missing
            absent = True
        if absent:
            raise UserError(
                f"{purpose} needs {module}, which is not installed: "
                f"{install_command(extra)}"
            )


def install_command(extra: str) -> str:
    """Returns the command that installs an extra, as the package was installed.

    That is from the clone, from the address that pip has recorded, or by the name.

    Args:
        extra: the name of the extra in `pyproject.toml`.
    """
    import importlib.metadata
    import json

    clone = Path(__file__).resolve().parents[1]
    if (clone / "pyproject.toml").exists():
        return f'pip install -e "{clone}[{extra}]"'
    origin = {}
    # A package that was only copied has no metadata.
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        distribution = importlib.metadata.distribution("t2t_keras")
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    url = origin.get("url")
    if vcs := origin.get("vcs_info"):
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    address = f" @ {url}" if url else ""
    return f'pip install "t2t_keras[{extra}]{address}"'


def quantity(count: int, plural: str, singular: str | None = None) -> str:
    """Formats a number with its noun, such as "1 sentence" or "1,014 sentences".

    Args:
        count: the number.
        plural: the noun.
        singular: the noun for 1; None: the plural without its last "s".
    """
    noun = plural if count != 1 else singular or plural.removesuffix("s")
    return f"{count:,} {noun}"

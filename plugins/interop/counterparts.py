"""Says what replaces a flag, hyper-parameter or key of another toolkit.

The files of `toolkits/` have a table for each command or section of a toolkit, with the
names of each sentence. They are read when an unknown name is typed.

A sentence completes "here, ...". Code is in backticks; messages of the command line
omit the backticks around single words. Names have no leading hyphens, except for short
ones (`-m`); `name=value` is for one value only.
"""

import dataclasses
import functools
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

_FILES = ("t2t_flags", "t2t_hparams", "fairseq", "opennmt_tf", "marian")

# The contexts of keys that are typed in a flag, with the command that has the flag.
_KEY_COMMANDS = {
    "hparams": "train",
    "decode_hparams": "translate",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """The names of one command, or one section of settings, of another toolkit.

    Attributes:
        toolkit: the toolkit.
        command: the command or section that has the names, for messages.
        noun: what a name is: "flag", "hyper-parameter", "key" or "program".
        contexts: the contexts in which users type the names here (see
            `t2t_keras.entry_points.counterpart`); a sentence mentions flags of the
            first command without the command's name.
        rows: each sentence with its names.
    """

    toolkit: str
    command: str
    noun: str
    contexts: tuple[str, ...]
    rows: Sequence[tuple[str, Sequence[str]]]

    def entries(self) -> Iterator[tuple[str, str]]:
        """Yields each name, or `name=value`, with its sentence."""
        for sentence, names in self.rows:
            for name in names:
                yield name, sentence

    @functools.cached_property
    def _sentences(self) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """The sentences by name, and by what `_normalize` returns for it."""
        sentences = dict(self.entries())
        return sentences, {_normalize(name): sentences[name] for name in sentences}

    def find(self, name: str, value: str, exact: bool) -> str:
        """Returns the sentence for a name; "" if the table does not have it.

        Args:
            name: the name, without leading hyphens.
            value: the value in a row for one value; "": the row for all values.
            exact: whether hyphens and underscores, and upper and lower case, differ.
        """
        key = f"{name}={value}" if value else name
        sentences, normalized = self._sentences
        return sentences.get(key, "") if exact else normalized.get(_normalize(key), "")


def _normalize(entry: str) -> str:
    """Returns a name, or `name=value`, with a name in lower case and underscores."""
    name, equals, value = entry.partition("=")
    stem = name.lstrip("-")
    hyphens = name[: len(name) - len(stem)]
    return hyphens + stem.replace("-", "_").lower() + equals + value


@functools.cache
def read_toolkit(name: str) -> Mapping[str, Any]:
    """Returns the content of a file of `toolkits/`, by its name without suffix."""
    path = Path(__file__).parent / "toolkits" / f"{name}.toml"
    return tomllib.loads(path.read_text("utf-8"))


def toolkit_tables(name: str) -> list[Table]:
    """Returns the tables of a file of `toolkits/`, by its name without suffix."""
    content = read_toolkit(name)
    toolkit = []
    for table in content["tables"]:
        rows = list(table["rows"].items())
        if table.get("shared"):
            rows += content["shared"].items()
        if table.get("own_names"):
            names = content["names"]
            rows.append(("the same", names["same"]))
            for alias, ours in names["aliases"].items():
                rows.append((f"the same as `{ours}`", [alias]))
        toolkit.append(
            Table(
                toolkit=content["toolkit"],
                command=table["command"],
                noun=table["noun"],
                contexts=tuple(table["contexts"]),
                rows=rows,
            )
        )
    return toolkit


@functools.cache
def tables() -> tuple[Table, ...]:
    """Returns the tables of all files."""
    return tuple(table for name in _FILES for table in toolkit_tables(name))


class Match(NamedTuple):
    """A table that has a name, and its sentence about the name."""

    table: Table
    sentence: str


class Scope(NamedTuple):
    """The tables in which a name is looked up.

    Attributes:
        tables: the tables that may have it.
        contexts: the contexts whose tables are preferred.
    """

    tables: Sequence[Table]
    contexts: Sequence[str]

    def has(self, table: Table) -> bool:
        """Returns whether a table is one of the contexts."""
        return any(context in table.contexts for context in self.contexts)


def explain(context: str, name: str, value: str = "") -> str:
    """Returns a sentence about a name of another toolkit; "" if none has it.

    Args: see `t2t_keras.entry_points.counterpart`.
    """
    is_short = re.fullmatch("-[A-Za-z]", name)
    stem = name if is_short else name.lstrip("-")
    scope = _program_flags(context) or Scope(tables(), [context])
    if matches := _find_matches(scope, stem, value):
        return _message(context, name, matches)
    if stem.startswith("hp_"):
        return _explain_override(name, stem.removeprefix("hp_"), value)
    if stem.startswith("no"):
        # absl negates a flag this way: --nogenerate_data.
        matches = _find_matches(scope, stem.removeprefix("no"), value)
        matches = [match for match in matches if match.table.toolkit == "tensor2tensor"]
        return _message(context, name, matches) if matches else ""
    return ""


def _explain_override(flag: str, name: str, value: str) -> str:
    """Returns a sentence about tensor2tensor's flag --hp_NAME."""
    override = f"{flag} is an override of t2t-trainer; here, use --hparams"
    if matches := _find_matches(Scope(tables(), ["hparams"]), name, value):
        return f"{override}: {_message('hparams', name, matches)}"
    return f"{override} {name}=VALUE"


def _program_flags(name: str) -> Scope | None:
    """Returns where to find the flags of another toolkit's program.

    Returns:
        The flags of its toolkit, with the commands of `t2t` that replace it; no flags
        if nothing replaces it; None: it is not such a program.
    """
    programs = [table for table in tables() if table.noun == "program"]
    sentences = {}
    for table in programs:
        if sentence := table.find(name, "", exact=False):
            sentences[table.toolkit] = sentence
    if not sentences:
        return None
    flags = []
    for table in tables():
        sentence = sentences.get(table.toolkit, "leave it out")
        if table.noun == "flag" and not sentence.startswith("leave it out"):
            flags.append(table)
    return Scope(flags, re.findall("`t2t ([a-z]+)", " ".join(sentences.values())))


def _find_matches(scope: Scope, name: str, value: str) -> list[Match]:
    """Returns the best matches for a name.

    An exactly equal name is better than one that differs in hyphens. A row for the
    value is better than a row for all values. A table of the context is better than
    another one, of which each toolkit has one at most. A flag of another command here
    is not taken for one of another toolkit.
    """
    for exact in (True, False):
        for row_value in (value, ""):
            matches = []
            for table in scope.tables:
                if sentence := table.find(name, row_value, exact):
                    matches.append(Match(table, sentence))
            in_context = [match for match in matches if scope.has(match.table)]
            if in_context:
                return in_context
            if any(match.sentence == "the same" for match in matches):
                return []
            elsewhere = _one_per_toolkit(matches)
            if elsewhere and scope.contexts != ["t2t"]:
                return elsewhere
    return []


def _one_per_toolkit(matches: list[Match]) -> list[Match]:
    """Returns the first match of each toolkit, except for names of programs."""
    first_matches: dict[str, Match] = {}
    for match in matches:
        if match.table.noun != "program":
            first_matches.setdefault(match.table.toolkit, match)
    return list(first_matches.values())


def _message(context: str, name: str, matches: list[Match]) -> str:
    """Returns the message about a name, which joins equal sentences."""
    descriptions: dict[str, list[str]] = {}
    for table, sentence in matches:
        advice = in_message(sentence, context)
        if context not in table.contexts:
            advice = _other_context(context, table.contexts[0], advice) + advice
        description = f"a {table.noun} of {table.command}"
        owners = descriptions.setdefault(advice, [])
        if description not in owners:  # two tables may be of one program
            owners.append(description)
    parts = []
    for advice, owners in descriptions.items():
        parts.append(f"{' and '.join(owners)}; here, {advice}")
    return f"{name} is {'; or '.join(parts)}"


def _other_context(context: str, table_context: str, sentence: str) -> str:
    """Returns the words that say that a sentence is for another context."""
    is_complete = sentence.startswith("leave it out") or "`t2t " in sentence
    if is_complete or _KEY_COMMANDS.get(context) == table_context:
        return ""
    if table_context in _KEY_COMMANDS:
        return f"in --{table_context}, "
    return f"for `t2t {table_context}`, "


def in_message(sentence: str, context: str) -> str:
    """Returns a sentence for a message in a context.

    It omits a command or flag that is the context, and the backticks around single
    words.
    """
    for prefix in (f"`t2t {context} ", f"`--{context} "):
        sentence = sentence.replace(prefix, "`")
    return re.sub(r"`([^` ]+)`", r"\1", sentence)

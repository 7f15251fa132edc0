"""The flags of a command: the fields of its dataclass, as they are written and read."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from t2t_keras.checking import alternatives, resolved_hints
from t2t_keras.cli.command import Command, FlagGroup, FlagsOf, UsrDirFlags
from t2t_keras.errors import UserError, require_local
from t2t_keras.options import check_options, parse_value

if TYPE_CHECKING:
    from cyclopts import Token

ARGUMENTS = FlagGroup("arguments")
OPTIONS = FlagGroup("options")
_MANY_CHOICES = 6  # a line of the help has 80 characters


@dataclasses.dataclass(frozen=True)
class Flag:
    """A flag of a command.

    Attributes:
        name: its name, without hyphens.
        options: the dataclass whose field it is.
        hint: the type of its value, without None.
        field: that field.
        group: the heading of the help below which it stands.
        holder: the field of the command that collects it with others, a dict; "": it
            is a field of the command itself.
    """

    name: str
    options: type
    hint: Any
    field: "dataclasses.Field[Any]"
    group: FlagGroup
    holder: str = ""

    @property
    def names(self) -> list[str]:
        """The ways to write it, with hyphens."""
        metadata = self.field.metadata
        names = metadata.get("names", (f"--{self.name}",))
        return [*names, *metadata.get("aliases", ())]

    @property
    def word(self) -> str:
        """What messages call it after the hyphens."""
        return self.names[0].lstrip("-")

    @property
    def is_positional(self) -> bool:
        """Whether its value may stand on the command line without the flag."""
        return bool(self.field.metadata.get("positional"))

    @property
    def is_list(self) -> bool:
        """Whether it takes several values."""
        return get_origin(self.hint) is tuple

    @property
    def takes_pairs(self) -> bool:
        """Whether its value is `K=V,K=V`."""
        return self.metavar == "K=V,K=V"

    @property
    def is_required(self) -> bool:
        """Whether it must be given."""
        field = self.field
        missing = dataclasses.MISSING
        return field.default is missing and field.default_factory is missing

    @property
    def metavar(self) -> str:
        """The word for its value in the help; "": it has none."""
        if self.hint is bool:
            return ""
        metavar: str = self.field.metadata.get("metavar", "")
        if metavar:
            return metavar
        if choices := self.choices:
            few = len(choices) <= _MANY_CHOICES
            return f"{{{','.join(choices)}}}" if few else "NAME"
        return {int: "N", float: "X"}.get(self.hint, "TEXT")

    @property
    def choices(self) -> tuple[str, ...]:
        """Its possible values, if these are a few words."""
        return get_args(self.hint) if get_origin(self.hint) is Literal else ()

    @property
    def title(self) -> str:
        """How the help writes it, with the word for its value."""
        if self.is_positional:
            return self.metavar
        short = [name for name in self.names if not name.startswith("--")]
        long = next(name for name in self.names if name.startswith("--"))
        return " ".join(filter(None, [", ".join([*short, long]), self.metavar]))

    @property
    def label(self) -> str:
        """What errors call it."""
        return self.metavar if self.is_positional else f"--{self.word}"

    def help(self) -> str:
        """Returns the help, with the default."""
        field = self.field
        default = field.default
        if field.metadata.get("from_problem"):
            default = "the problem's"
        text: str = field.metadata["help"]
        if further := field.metadata.get("further_help"):
            text += further()
        unsaid = (None, False, (), "", 0, dataclasses.MISSING)
        if default in unsaid or "(default" in text:
            return text
        return f"{text} (default: {default})"

    def convert(self, tokens: "Sequence[Token]") -> Any:
        """Returns the value that words give; of several scalars, the last one counts.

        Raises:
            UserError: a word is not a value of the flag.
        """
        values = [self._value(token) for token in tokens]
        return tuple(values) if self.is_list else values[-1]

    def _value(self, token: "Token") -> Any:
        """Returns the value of one word."""
        text = token.value
        in_file = token.source not in ("", "cli")
        prefix = f"{token.source}: " if in_file else "--"
        is_by_place = self.is_positional and not in_file and token.keyword is None
        label = self.label if is_by_place else f"{prefix}{self.word}"
        metadata = self.field.metadata
        if parse := metadata.get("parse"):
            try:
                return parse(_utf8(text, label))
            except UserError as error:
                raise UserError(f"{label}: {error}") from None
        if metadata.get("is_text"):  # it may be empty, or look like an address
            return _utf8(text, label)
        if not text:
            raise UserError(f"{label} is empty; give a value, or leave it out")
        require_local(label, text)
        if self.is_list:
            return text
        value = parse_value(self.options, self.field.name, text, prefix)
        check_options(self.options, {self.field.name: value}, prefix)
        return value


def _utf8(text: str, label: str) -> str:
    """Returns the text of a word; Python escapes bytes that are not UTF-8."""
    if any("\udc80" <= character <= "\udcff" for character in text):
        raise UserError(f"{label}: {text!r} is not valid UTF-8")
    return text


def flags_of(command: type) -> list[Flag]:
    """Returns the flags of a command's dataclass; those of many commands come last."""
    shared = [
        field.name
        for part in (UsrDirFlags, Command)
        for field in dataclasses.fields(part)
    ]
    fields = sorted(
        dataclasses.fields(command),
        key=lambda field: shared.index(field.name) if field.name in shared else -1,
    )
    flags: list[Flag] = []
    for field in fields:
        if isinstance(part := field.metadata.get("flags_of"), FlagsOf):
            flags += _collected(field.name, part)
        elif "help" in field.metadata:
            positional = field.metadata.get("positional")
            group = ARGUMENTS if positional else OPTIONS
            group = field.metadata.get("group") or group
            flags.append(flag_of(command, field, group))
    return flags


def flag_of(
    options: type,
    field: "dataclasses.Field[Any]",
    group: FlagGroup,
    holder: str = "",
) -> Flag:
    """Returns the flag for a field of a dataclass."""
    hint = alternatives(resolved_hints(options)[field.name])[0]
    return Flag(field.name, options, hint, field, group, holder)


def _collected(holder: str, part: FlagsOf) -> Iterator[Flag]:
    """Yields the flags that one field of a command collects."""
    fields = {field.name: field for field in dataclasses.fields(part.options)}
    for group, names in part.groups.items():
        for name, field in fields.items():
            if name in names:
                yield flag_of(part.options, field, group, holder)
    if part.keys:
        metadata = {
            "help": f'further options, such as "{part.example}": see --help-all',
            "metavar": "K=V,K=V",
            "parse": part.parse_keys,
            "is_keys": True,
        }
        keys: dataclasses.Field[Any] = dataclasses.field(metadata=metadata)
        keys.name, keys.default = part.keys, None
        yield Flag(part.keys, part.options, str, keys, [*part.groups][-1], holder)

"""Says what replaces an unknown name, if another toolkit has it."""

import re

from .fairseq import FAIRSEQ
from .marian import MARIAN
from .opennmt_tf import OPENNMT_TF
from .t2t_flags import T2T_FLAGS
from .t2t_hparams import T2T_HPARAMS
from .table import Table

TABLES: tuple[Table, ...] = (*T2T_FLAGS, *T2T_HPARAMS, *FAIRSEQ, *OPENNMT_TF, *MARIAN)

# The keys that are typed in a flag, and the command that has the flag.
_COMMAND_OF_KEYS = {
    "hparams": "train",
    "train_options": "train",
    "decode_hparams": "translate",
}

Match = tuple[Table, str]  # a table that has a name, and its sentence


def explain(place: str, name: str, value: str = "") -> str:
    """Returns a sentence about a name of another toolkit; "" if none has it.

    Args: see `t2t_keras.entry_points.counterpart`.
    """
    bare = name if re.fullmatch("-[A-Za-z]", name) else name.lstrip("-")
    if found := _matches(place, bare, value):
        return _message(place, name, found)
    if bare.startswith("hp_"):  # tensor2tensor's form of an override
        own = bare.removeprefix("hp_")
        override = f"{name} is an override of t2t-trainer; here, use --hparams"
        if found := _matches("hparams", own, value):
            return f"{override}: {_message('hparams', own, found)}"
        return f"{override} {own}=VALUE"
    if bare.startswith("no"):  # absl's form of a flag that is false: --nogenerate_data
        negated = _matches(place, bare.removeprefix("no"), value)
        found = [match for match in negated if match[0].toolkit == "tensor2tensor"]
        return _message(place, name, found) if found else ""
    return ""


def _matches(place: str, name: str, value: str) -> list[Match]:
    """Returns the tables that have a name.

    A row for the value comes before one for all values, a name that is spelt alike
    before one that differs in hyphens, and the tables of the place before others, of
    which each toolkit has one.
    """
    for exact in (True, False):
        for given in (value, ""):
            every = [
                (table, sentence)
                for table in TABLES
                if (sentence := table.find(name, given, exact))
            ]
            if here := [match for match in every if place in match[0].places]:
                return here
            if place != "t2t" and (elsewhere := _flags_of_each_toolkit(every)):
                return elsewhere
    return []


def _flags_of_each_toolkit(matches: list[Match]) -> list[Match]:
    """Returns the first match of each toolkit that is not a program's name."""
    first: dict[str, Match] = {}
    for table, sentence in matches:
        if table.noun != "program":
            first.setdefault(table.toolkit, (table, sentence))
    return list(first.values())


def _message(place: str, name: str, found: list[Match]) -> str:
    """Returns the sentence for the tables that have a name."""
    owners: dict[str, list[str]] = {}  # what is said -> "a flag of t2t-trainer"
    for table, sentence in found:
        said = in_message(sentence, place)
        if place not in table.places:
            said = _elsewhere(place, table.places[0], said) + said
        owners.setdefault(said, []).append(f"a {table.noun} of {table.command}")
    parts = [f"{' and '.join(of)}; here, {said}" for said, of in owners.items()]
    return f"{name} is {'; or '.join(parts)}"


def _elsewhere(place: str, other: str, sentence: str) -> str:
    """Returns the words before a sentence that is about another place."""
    is_complete = sentence.startswith("leave it out") or "`t2t " in sentence
    if is_complete or _COMMAND_OF_KEYS.get(place) == other:
        return ""
    return f"in --{other}, " if other in _COMMAND_OF_KEYS else f"for `t2t {other}`, "


def in_message(sentence: str, place: str) -> str:
    """Returns a sentence for the place where the name was typed.

    A command or flag before what it takes is left out if that is the place, and the
    backticks are left out around single words.
    """
    for beginning in (f"`t2t {place} ", f"`--{place} "):
        sentence = sentence.replace(beginning, "`")
    return re.sub(r"`([^` ]+)`", r"\1", sentence)

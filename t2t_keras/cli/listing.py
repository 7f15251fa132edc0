"""The command that prints what is registered: `list`."""

import contextlib
import dataclasses
import io
from collections.abc import Sequence
from typing import Any

from t2t_keras import registry
from t2t_keras.cli.command import Command, CommandResult, UsrDirFlags
from t2t_keras.console import columns, table
from t2t_keras.errors import UserError, quantity
from t2t_keras.options import option

# A family with more sets than this is one line of the list.
_SHOWN_SETS = 5

# Characters of a value; a longer one, such as a product, goes before its meaning.
_MAX_VALUE = 20


@dataclasses.dataclass(kw_only=True)
class List(UsrDirFlags, Command):
    """Prints what is registered."""

    summary = "print problems, models and hparam sets, or the fields of one set"
    heading = "data and training"

    name: str | None = option(
        None,
        "an hparam set, of which every field is printed: its value, base's value, its "
        "meaning; a family of sets, such as paper; or ranges of hparams",
        metavar="NAME",
        positional=True,
    )
    all: bool = option(False, "print the sets of every family")

    def run(self) -> CommandResult:
        """Returns the names and their summaries, or the fields of `name`."""
        return _listed(self.name)

    def show(self, result: CommandResult) -> str:
        """Formats the lists; large families of sets are one line unless `all`."""
        return _shown(_by_family(result, self.all))

    def next_command(self) -> str:
        """Returns the command that writes data."""
        return "t2t datagen --problem NAME --data_dir DIR"


def _listed(name: str | None) -> dict[str, Any]:
    if name is None:
        listed = {
            "problems": registry.list_problems(),
            "models": registry.list_models(),
            "hparams_sets": registry.list_hparams(),
            "ranges": registry.list_ranged_hparams(),
        }
        # What a definition prints is for those who use it.
        ignored = io.StringIO()
        with contextlib.redirect_stdout(ignored), contextlib.redirect_stderr(ignored):
            return {title: dict(summaries) for title, summaries in listed.items()}
    # A user's file or ranges may have the name of a set, or of another file.
    if name not in registry.list_hparams():
        sets: dict[str, str] = {}
        for family in registry.hparams_families():
            if family.name == name:
                sets |= family.sets
        if sets:
            return {"family": sets}
        if name in registry.list_ranged_hparams():
            return {"ranges_of_fields": _ranges(name)}
        if name in registry.list_problems():
            raise UserError(
                f"{name} is a problem; its flags: t2t datagen --problem {name} --help"
            )
    return {"fields": _fields(name)}


def _ranges(name: str) -> dict[str, dict[str, str]]:
    """Returns the range and the meaning of each hyper-parameter that has a range."""
    descriptions = registry.hparams("base").descriptions()
    return {
        field: {"range": str(values), "meaning": descriptions.get(field, "")}
        for field, values in registry.ranged_hparams(name).ranges.items()
    }


def _fields(name: str) -> dict[str, dict[str, Any]]:
    """Returns value, base's value and meaning of each field of an hparam set."""
    hparams = registry.hparams(name)
    base = dataclasses.asdict(registry.hparams("base"))
    descriptions = hparams.descriptions()
    return {
        field: {"value": value, "base": base.get(field), "meaning": descriptions[field]}
        for field, value in dataclasses.asdict(hparams).items()
    }


def _by_family(result: dict[str, Any], with_all: bool) -> dict[str, Any]:
    """Groups the hparam sets by family, and leaves out those of large families."""
    if "hparams_sets" not in result:
        return result
    shown: list[registry.Family] = []
    further: list[registry.Family] = []
    for family in registry.hparams_families():
        sets = {name: result["hparams_sets"][name] for name in family.sets}
        is_small = len(sets) <= _SHOWN_SETS
        (shown if is_small or with_all else further).append(family._replace(sets=sets))
    return result | {"hparams_sets": shown, "further_families": further}


def _shown(result: dict[str, Any]) -> str:
    if "fields" in result:
        return _fields_table(result["fields"])
    if "ranges_of_fields" in result:
        ranges = result["ranges_of_fields"]
        return columns([{"field": field} | row for field, row in ranges.items()])
    if "family" in result:
        return table(result["family"])
    return (
        f"Problems (each also as NAME_rev, in the other direction)\n\n"
        f"{table(result['problems'])}\n\n"
        f"Models\n\n{table(result['models'])}\n\n"
        f"{_families(result['hparams_sets'], result['further_families'])}\n\n"
        f"Ranges of hparams\n\n{table(result['ranges'])}"
    )


def _families(
    shown: Sequence[registry.Family], further: Sequence[registry.Family]
) -> str:
    """Formats families of hparam sets: those with all sets, and the others."""
    sections = [f"{family.title}\n\n{table(family.sets)}" for family in shown]
    # Two files of the same name are one list of `t2t list FAMILY`.
    rows: dict[str, list[str]] = {}
    for family in further:
        row = f"{quantity(len(family.sets), 'sets')}: {family.title}"
        rows.setdefault(family.name, []).append(row)
    if rows:
        title = "Further hparam sets: `t2t list FAMILY`, or --all for every set"
        lines = {name: "; ".join(titles) for name, titles in rows.items()}
        sections.append(f"{title}\n\n{table(lines)}")
    return "\n\n".join(sections)


def _fields_table(fields: dict[str, dict[str, Any]]) -> str:
    """Formats the fields of a set; an asterisk marks those that differ from base's."""
    rows = []
    for name, field in fields.items():
        value, base, meaning = map(str, field.values())
        is_changed = value != base
        if len(value) > _MAX_VALUE:
            meaning = f"{value.replace('*', ' * ')}: {meaning}"
            value = "..."
        rows.append(
            {
                "": "*" if is_changed else "",
                "field": name,
                "value": value,
                "base": base if is_changed else "",
                "meaning": meaning,
            }
        )
    return columns(rows)


COMMANDS = {"list": List}

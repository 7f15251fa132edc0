"""The command that prints what is registered: `list`."""

import argparse
import dataclasses
from typing import Any

from t2t_keras import registry
from t2t_keras.cli.command import Command, add_usr_dir, columns, table

# A family with more sets than this is one line of the list.
_SHOWN_SETS = 5


def _list_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="an hparam set, of which every field is printed: its value, base's value, "
        "its meaning; or a family of sets, such as table3",
    )
    parser.add_argument(
        "--all", action="store_true", help="print the sets of every family"
    )
    add_usr_dir(parser)


def _list(args: argparse.Namespace) -> dict[str, Any]:
    families = registry.hparams_families()
    if args.name in families:
        return {"family": families[args.name].sets}
    if args.name is not None:
        return {"fields": _fields(args.name)}
    return {
        "problems": registry.list_problems(),
        "models": registry.list_models(),
        "hparams_sets": registry.list_hparams(),
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


def _show_list(result: dict[str, Any]) -> str:
    if "fields" in result:
        return _fields_table(result["fields"])
    if "family" in result:
        return table(result["family"])
    return (
        f"Problems (each also as NAME_rev, in the other direction)\n\n"
        f"{table(result['problems'])}\n\n"
        f"Models\n\n{table(result['models'])}\n\n"
        f"{_families(with_all=result['all'])}"
    )


def _families(with_all: bool) -> str:
    """Formats the hparam sets: those of small families, and the other families."""
    sections = []
    further = {}
    for name, family in registry.hparams_families().items():
        if with_all or len(family.sets) <= _SHOWN_SETS:
            sections.append(f"{family.title}\n\n{table(family.sets)}")
        else:
            further[name] = f"{len(family.sets)} sets: {family.title}"
    if further:
        title = "Further hparam sets: `t2t list FAMILY`, or --all for every set"
        sections.append(f"{title}\n\n{table(further)}")
    return "\n\n".join(sections)


def _fields_table(fields: dict[str, dict[str, Any]]) -> str:
    """Formats the fields of a set; an asterisk marks those that differ from base's."""
    rows = []
    for name, field in fields.items():
        value, base, meaning = map(str, field.values())
        is_changed = value != base
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


COMMANDS = {
    "list": Command(
        "print problems, models and hparam sets, or the fields of one set",
        _list_flags,
        _list,
        _show_list,
        abridge=lambda result, args: result | {"all": args.all},
        group="data and training",
    ),
}

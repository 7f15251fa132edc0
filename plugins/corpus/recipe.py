"""Recipes: what `t2t inspect --apply` does with the pairs that have faults."""

import dataclasses
import html
import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from t2t_keras.errors import UserError, did_you_mean
from t2t_keras.files.config_files import parse_toml
from t2t_keras.files.text_files import read_text
from t2t_keras.problem import Pair

from .findings import FAULTS

DROP = "drop"
KEEP = "keep"
# What may be done about a fault, besides dropping or keeping the pair.
REPAIRS = {"swapped": "exchange", "entities": "unescape"}

# The first lines of each recipe.
HEADER = """\
# What `t2t inspect --recipe THIS_FILE --apply DIR` does with pairs that have faults:
# "drop" leaves them out, "keep" copies them, "exchange" swaps source and target,
# "unescape" undoes HTML entities. The lines of `keep_lines` are copied as they are.
"""

_HYPHEN = re.compile(r"(?:^| )@-@(?: |$)")


@dataclasses.dataclass(frozen=True)
class SplitRecipe:
    """What is done with the faulty pairs of a split.

    Attributes:
        actions: the action for each fault.
        keep_lines: the numbers of lines, from 1, that are copied as they are.
    """

    actions: Mapping[str, str]
    keep_lines: frozenset[int] = frozenset()

    def apply(self, line: int, pair: Pair, faults: Collection[str]) -> Pair | None:
        """Returns what becomes of a pair; None: it is dropped.

        Args:
            line: its number, from 1.
            pair: the pair.
            faults: the names of its faults.
        """
        source, target = pair
        if line in self.keep_lines:
            return source, target
        actions = {self.actions.get(fault, KEEP) for fault in faults}
        if DROP in actions:
            return None
        if "unescape" in actions:
            source = _unescaped(source)
            target = _unescaped(target)
        return (target, source) if "exchange" in actions else (source, target)


def actions_of(fault: str) -> tuple[str, ...]:
    """Returns the actions that are possible for a fault, the best one first."""
    repair = REPAIRS.get(fault)
    return (repair, DROP, KEEP) if repair else (DROP, KEEP)


def keep_all() -> SplitRecipe:
    """Returns the recipe that changes nothing."""
    return SplitRecipe(dict.fromkeys(FAULTS, KEEP))


def default_recipe(is_train: bool) -> SplitRecipe:
    """Returns the recipe of a split: held-out data stay as they are."""
    if not is_train:
        return keep_all()
    return SplitRecipe({fault: actions_of(fault)[0] for fault in FAULTS})


def read_recipes(path: str | Path) -> dict[str, SplitRecipe]:
    """Reads a recipe for each split.

    Raises:
        UserError: the file cannot be read, or is not a recipe.
    """
    tables = parse_toml(read_text(path), f"--recipe: {path}")
    recipes = {}
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise UserError(f"--recipe: {path}: '{name}' is not the table of a split")
        actions = dict(table)
        lines = actions.pop("keep_lines", [])
        if not isinstance(lines, list) or not all(type(x) is int for x in lines):
            raise UserError(
                f"--recipe: {path}: keep_lines of [{name}] must be a list of numbers"
            )
        for fault, action in actions.items():
            if fault not in FAULTS:
                raise UserError(
                    f"--recipe: {path}: there is no fault '{fault}'"
                    f"{did_you_mean(fault, FAULTS)}"
                )
            if action not in actions_of(fault):
                raise UserError(
                    f"--recipe: {path}: {fault} must be one of "
                    f"{', '.join(actions_of(fault))}, not {action!r}"
                )
        recipes[name] = SplitRecipe(actions, frozenset(lines))
    return recipes


def format_recipes(recipes: Mapping[str, SplitRecipe]) -> str:
    """Returns recipes as TOML, which `read_recipes` reads."""
    lines = [HEADER]
    for name, recipe in recipes.items():
        # A TOML string is written as JSON's.
        key = name if re.fullmatch(r"[\w-]+", name, re.ASCII) else json.dumps(name)
        lines.append(f"[{key}]")
        for fault, action in recipe.actions.items():
            lines.append(f'{fault} = "{action}"')
        if recipe.keep_lines:
            lines.append(f"keep_lines = {sorted(recipe.keep_lines)}")
        lines.append("")
    return "\n".join(lines)


def _unescaped(text: str) -> str:
    """Returns a text without HTML entities and escapes of Moses' tokenizer."""
    return _HYPHEN.sub("-", html.unescape(text))

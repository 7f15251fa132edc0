"""TOML and YAML that users write."""

import tomllib
from typing import Any

import yaml

from t2t_keras.errors import UserError, first_line


def parse_toml(text: str, path: str) -> dict[str, object]:
    """Returns the table of a text in TOML.

    Args:
        text: the text.
        path: its file, for messages.

    Raises:
        UserError: it is not TOML, or is nested too deeply.
    """
    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise UserError(f"{path} is not TOML: {error}") from None
    except RecursionError:
        raise UserError(f"{path}: its lists or tables are nested too deeply") from None


class _Loader(yaml.SafeLoader):
    """Refuses aliases, which can expand to more than the memory holds.

    It also refuses a duplicate key in a mapping, of which YAML would keep the last.
    """

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            alias = self.peek_event()
            raise yaml.MarkedYAMLError(
                problem=f"the alias '*{alias.anchor}' is refused; write its value",
                problem_mark=alias.start_mark,
            )
        return super().compose_node(parent, index)

    def construct_mapping(
        self, node: yaml.MappingNode, deep: bool = False
    ) -> dict[object, object]:
        keys: set[tuple[str, object]] = set()
        for key, _ in node.value:
            if (key.tag, str(key.value)) in keys:
                raise yaml.MarkedYAMLError(
                    problem=f"the key '{key.value}' is there twice",
                    problem_mark=key.start_mark,
                )
            keys.add((key.tag, str(key.value)))
        return super().construct_mapping(node, deep)


def parse_yaml(text: str, path: str) -> object:
    """Returns the value of a text in YAML.

    Args:
        text: the text.
        path: its file, for messages.

    Raises:
        UserError: it is not YAML, has an alias or a key twice, or is nested too deeply.
    """
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or first_line(error)
        raise UserError(f"{path}{line} is not YAML: {problem}") from None
    except RecursionError:
        raise UserError(f"{path}: its lists or tables are nested too deeply") from None
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        # The loader's own, of a value such as the date 2020-99-99.
        raise UserError(f"{path} is not YAML: {first_line(error)}") from None

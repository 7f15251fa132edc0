"""The fields of `HParams` and `TrainOptions` with their meanings, in the reference.

A field is declared as `name: type = option(default, meaning)`, or with `_option`.
"""

import ast
from typing import Any

import griffe


class FieldMeanings(griffe.Extension):
    """Makes the meaning of a field its docstring, and its default its value."""

    def on_attribute_instance(
        self,
        *,
        node: ast.AST | griffe.ObjectNode,
        attr: griffe.Attribute,
        **kwargs: Any,
    ) -> None:
        """Is called for each attribute that griffe has found."""
        match node:
            case ast.AnnAssign(
                value=ast.Call(
                    func=ast.Name(id="option" | "_option"), args=[default, meaning, *_]
                )
            ):
                # The help of some flags is computed, for `--help` alone.
                if isinstance(meaning, ast.Constant):
                    attr.docstring = griffe.Docstring(meaning.value, parent=attr)
                attr.value = ast.unparse(default)

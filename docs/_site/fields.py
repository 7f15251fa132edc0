"""The fields of `HParams` and `TrainOptions` with their meanings, in the reference.

A field is declared as `name: type = option(default, meaning)`, or with `_option`. A
meaning that is an f-string is left out: its values are not known here.
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
                    func=ast.Name(id="option" | "_option"),
                    # Flags of commands may have an f-string; the reference lists none.
                    args=[default, ast.Constant(value=str(text)), *_],
                )
            ):
                attr.docstring = griffe.Docstring(text, parent=attr)
                attr.value = ast.unparse(default)

"""The types of a row of a request: its texts, its options and its outputs."""

from typing import Any, TypeAlias

# Values of `DecodingOptions` by name.
Options: TypeAlias = dict[str, Any]
# The signature, and the options with their names: rows with equal keys can be run
# together.
Key: TypeAlias = tuple[str, tuple[tuple[str, Any], ...]]
# The texts of a row, and what a signature returns for it, by name.
Texts: TypeAlias = dict[str, str]
Outputs: TypeAlias = dict[str, object]

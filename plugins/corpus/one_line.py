"""Texts in one line, as data directories have them."""

import re


def one_line(text: str) -> str:
    """Replaces each line break, with the white space around it, by a space."""
    return re.sub(r"\s*\n\s*", " ", text) if "\n" in text else text

"""The words in which two texts differ, marked in HTML."""

import difflib

from markupsafe import Markup


def mark_differences(baseline: str, output: str) -> Markup:
    """Returns an output as HTML, with its differences from the baseline marked.

    Args:
        baseline: the text to compare with; words only in it are marked by `<del>`.
        output: the output; words only in it are marked by `<ins>`.
    """
    old = baseline.split()
    new = output.split()
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    parts = []
    for operation, i, i_stop, j, j_stop in matcher.get_opcodes():
        if operation == "equal":
            parts.append(" ".join(new[j:j_stop]))
            continue
        for template, words in (
            (Markup("<del>{}</del>"), old[i:i_stop]),
            (Markup("<ins>{}</ins>"), new[j:j_stop]),
        ):
            if words:
                parts.append(template.format(" ".join(words)))
    return Markup(" ").join(parts)

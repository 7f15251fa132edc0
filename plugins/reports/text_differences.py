"""The words in which two texts differ, marked in HTML."""

import difflib
import html
from collections.abc import Sequence


def mark_differences(baseline: str, output: str) -> str:
    """Returns an output as HTML, with its differences from the baseline marked.

    Args:
        baseline: the text to compare with; words only in it are marked by `<del>`.
        output: the output; words only in it are marked by `<ins>`.
    """
    baseline_words = baseline.split()
    output_words = output.split()
    matcher = difflib.SequenceMatcher(
        None, baseline_words, output_words, autojunk=False
    )
    parts = []
    for operation, i, i_stop, j, j_stop in matcher.get_opcodes():
        deleted = _join_words(baseline_words[i:i_stop])
        inserted = _join_words(output_words[j:j_stop])
        if operation == "equal":
            parts.append(inserted)
            continue
        if deleted:
            parts.append(f"<del>{deleted}</del>")
        if inserted:
            parts.append(f"<ins>{inserted}</ins>")
    return " ".join(parts)


def _join_words(words: Sequence[str]) -> str:
    return html.escape(" ".join(words))

"""Constituency parsing of the Wall Street Journal (section 6.3 of the paper)."""

from t2t_keras.problem import Problem
from t2t_keras.registry import register_problem
from t2t_keras.text.linearise import CONSTITUENTS, TAGS, restore_text


@register_problem
def parsing_wsj() -> Problem:
    """The Penn Treebank is licensed, so that every split comes from files.

    Training is on sections 02 to 21, development on 22, the test on 23. Source and
    target have a vocabulary each: words on one side, brackets and tags on the other.
    """
    return Problem(
        summary="WSJ constituency parsing, trees from files (paper: F1 91.3)",
        vocab_size=16_000,
        shared_vocab=False,
        symbols=(*CONSTITUENTS, *(f"/{label}" for label in CONSTITUENTS), *TAGS),
        beam_size=21,
        alpha=0.3,
        extra_length=300,
        postprocess=restore_text,
        output="trees",
    )

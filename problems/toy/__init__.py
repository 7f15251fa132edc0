"""The toy problem: English sentences and their German translations.

There are 10,000 training sentences; dev and test have other sentences. A few minutes on
two CPU cores are enough for near-zero error, but only if the model learns reordering,
agreement and generalization. `parsing.wsj` has the trees of the same sentences.
"""

import functools
import itertools
import re
from collections.abc import Iterator

from t2t_keras.problem import Pair, Problem, Split
from t2t_keras.registry import register_problem

from .grammar import sentences

SIZES: dict[Split, int] = {"test": 400, "dev": 200, "train": 10_000}
SEED = 2017
LENGTHS = range(4, 16)  # number of words and commas in a sentence


@functools.cache
def corpus() -> dict[Split, list[tuple[str, str]]]:
    """Draws the English trees and German texts of all splits, without repetitions."""
    pairs = sentences(SEED)
    unique: dict[str, str] = {}
    while len(unique) < sum(SIZES.values()):
        tree, german = next(pairs)
        if len(leaves(tree)) - 1 in LENGTHS:  # less the full stop
            unique[tree] = german
    drawn = iter(unique.items())
    return {split: list(itertools.islice(drawn, n)) for split, n in SIZES.items()}


def leaves(tree: str) -> list[str]:
    """Returns the words of a bracketed tree."""
    return re.findall(r" ([^ ()]+)\)", tree)


def english_text(tree: str) -> str:
    """Returns the sentence as it is written: She cannot see the king's dog."""
    text = re.sub(r" (?=[.?,]|'s)", "", " ".join(leaves(tree)))
    return text.replace("can not", "cannot")


def pairs(split: Split) -> Iterator[Pair]:
    """Yields the English and German texts of a split."""
    for tree, german in corpus()[split]:
        yield english_text(tree), german


@register_problem
def translate_ende_toy() -> Problem:
    """English to German, with separable verbs."""
    return Problem(
        summary="English to German, embedded toy grammar (10,000 sentences)",
        license="Apache-2.0",  # of this package, whose grammar makes them
        sources={split: functools.partial(pairs, split) for split in SIZES},
        languages=("en", "de"),
        vocab_size=1000,
        max_length=64,
    )

"""Parsing of the toy grammar's sentences."""

import functools
from collections.abc import Iterator

from t2t_keras.problem import Pair, Problem, Split
from t2t_keras.registry import register_problem

from ..toy import SIZES, corpus, leaves, translate_ende_toy
from .linearise import SYMBOLS, linearise
from .task import BracketF1, Trees, brackets
from .tree import parse_tree


def pairs(split: Split) -> Iterator[Pair]:
    """Yields the English words and the tree of each sentence of a split."""
    for tree, _ in corpus()[split]:
        yield " ".join(leaves(tree)), " ".join(linearise(parse_tree(tree)))


@register_problem
def parsing_toy() -> Problem:
    """English to Penn Treebank constituency trees."""
    return translate_ende_toy().replace(
        summary="English constituency parsing, embedded toy grammar",
        sources={split: functools.partial(pairs, split) for split in SIZES},
        languages=None,
        vocab_size=800,
        shared_vocab=False,
        max_length=128,
        alpha=0.3,
        extra_length=100,
        text_processor=Trees(symbols=SYMBOLS),
        constraint=brackets,
        metrics=BracketF1(),
    )

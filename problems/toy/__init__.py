"""The embedded toy problems: one synchronous grammar, three tasks.

10,000 sentences to train on, and test sentences that put words together which never
meet in training: learnable to near-zero error in two minutes on two CPU cores, but
only by a model that reorders, agrees and generalises.
"""

import functools
import itertools
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from typing import Literal

from t2t_keras.metrics.bleu import Bleu
from t2t_keras.parsing.linearise import SYMBOLS, linearise
from t2t_keras.parsing.task import BracketF1, Trees, brackets
from t2t_keras.problem import Pair, Problem, Split
from t2t_keras.registry import register_problem

from . import english, french, german
from .grammar import Combination, Sentence, combinations
from .sampler import derivations

SIZES: dict[Split, int] = {"train": 10_000, "dev": 200, "test": 400}
SEED = 2017
LENGTHS = range(4, 16)  # how many words and commas a sentence may have
HELD_OUT: tuple[Split, ...] = ("test", "dev")
FREQUENT = 10  # times that training has every word of the other splits

Target = Literal["german", "french", "tree"]


def held_out(combination: Combination) -> Split:
    """Says which split an (adjective, noun, verb) is kept for, by its checksum.

    One in sixteen is kept for the test set and one in sixteen for the development
    set; training sees the others.
    """
    bucket = zlib.crc32(" ".join(combination).encode()) % 16
    return HELD_OUT[bucket] if bucket < len(HELD_OUT) else "train"


@functools.cache
def corpus() -> dict[Split, list[Sentence]]:
    """Draws the three splits; no sentence is in them twice.

    A test sentence has a combination that is kept for the test set, a development
    sentence has one for development and none for the test; but all their words are
    frequent in training, in each language.
    """
    splits: dict[Split, list[Sentence]] = {"train": [], "dev": [], "test": []}
    seen: set[str] = set()
    for sentence in derivations(SEED):
        words = english.render(sentence).words()
        text = " ".join(words)
        if len(words) - 1 in LENGTHS and text not in seen:  # less the full stop
            seen.add(text)
            kept_for = set(map(held_out, combinations(sentence)))
            split: Split = next((s for s in HELD_OUT if s in kept_for), "train")
            splits[split].append(sentence)
        if len(splits["train"]) == SIZES["train"]:
            break

    counts = Counter(word for s in splits["train"] for word in _words(s))
    for split in HELD_OUT:
        fair = (
            sentence
            for sentence in splits[split]
            if all(counts[word] >= FREQUENT for word in _words(sentence))
        )
        splits[split] = list(itertools.islice(fair, SIZES[split]))
    return splits


def _words(sentence: Sentence) -> list[str]:
    """The words of a sentence in all the languages."""
    texts = (
        english.text(english.render(sentence)),
        german.render(sentence),
        french.render(sentence),
    )
    return re.findall(r"\w+", " ".join(texts))


def pairs(split: Split, target: Target) -> Iterator[Pair]:
    """Yields the (source, target) texts of a split, for one of the tasks."""
    for sentence in corpus()[split]:
        tree = english.render(sentence)
        match target:
            case "german":
                yield english.text(tree), german.render(sentence)
            case "french":
                yield english.text(tree), french.render(sentence)
            case "tree":
                yield " ".join(tree.words()), " ".join(linearise(tree))


def _sources(target: Target) -> dict[Split, functools.partial[Iterator[Pair]]]:
    return {split: functools.partial(pairs, split, target) for split in SIZES}


@register_problem
def translate_ende_toy() -> Problem:
    """English to German, the language of the separated verb."""
    return Problem(
        summary="English to German, embedded toy grammar (10,000 sentences)",
        sources=_sources("german"),
        vocab_size=1000,
        max_length=64,
    )


@register_problem
def translate_enfr_toy() -> Problem:
    """English to French, the language of the agreeing participle."""
    return Problem(
        summary="English to French, embedded toy grammar (10,000 sentences)",
        sources=_sources("french"),
        metrics=Bleu(languages=("en", "fr")),
        vocab_size=1000,
        max_length=64,
    )


@register_problem
def parsing_toy() -> Problem:
    """English to Penn Treebank constituency trees."""
    return Problem(
        summary="English constituency parsing, embedded toy grammar",
        sources=_sources("tree"),
        vocab_size=800,
        shared_vocab=False,
        max_length=128,
        alpha=0.3,
        extra_length=100,
        text_form=Trees(symbols=SYMBOLS),
        constraint=brackets,
        metrics=BracketF1(),
    )

"""The toy problems: one synchronous grammar, three tasks.

There are 10,000 training sentences; test sentences have combinations of words that do
not occur in training. A few minutes on two CPU cores are enough for near-zero error,
but only if the model learns reordering, agreement and generalization.
"""

import functools
import itertools
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from typing import Literal

from t2t_keras.evaluation.bleu import Bleu
from t2t_keras.problem import Alignment, Pair, Problem, Split
from t2t_keras.registry import register_problem

from ..parsing.linearise import SYMBOLS, linearise
from ..parsing.task import BracketF1, Trees, brackets
from . import english, french, german
from .grammar import Combination, Sentence, combinations
from .sampler import derivations

SIZES: dict[Split, int] = {"train": 10_000, "dev": 200, "test": 400}
SEED = 2017
LENGTHS = range(4, 16)  # number of words and commas in a sentence
HELD_OUT: tuple[Split, ...] = ("test", "dev")
FREQUENT = 10  # least count in training of every word in the other splits

Target = Literal["german", "french", "tree"]


def held_out(combination: Combination) -> Split:
    """Returns the split that an (adjective, noun, verb) is reserved for.

    By its checksum, one in sixteen is reserved for test and one in sixteen for dev; the
    others may occur in training.
    """
    bucket = zlib.crc32(" ".join(combination).encode()) % 16
    return HELD_OUT[bucket] if bucket < len(HELD_OUT) else "train"


@functools.cache
def corpus() -> dict[Split, list[Sentence]]:
    """Draws the three splits, without repeated sentences.

    A test sentence has a combination that is reserved for test; a dev sentence has one
    for dev and none for test. All their words are frequent in training, in each
    language.
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
    """Returns the words of a sentence in all languages."""
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


def alignments(split: Split) -> Iterator[Alignment]:
    """Yields the links between the English and the German words of each pair.

    `pairs(split, "german")` yields the pairs; words are what white space separates.
    """
    for sentence in corpus()[split]:
        yield alignment(sentence)


def alignment(sentence: Sentence) -> Alignment:
    """Returns the links of a sentence between its English and its German words."""
    source, target = english.parts(english.render(sentence)), german.parts(sentence)
    return tuple(
        (i, j)
        for i, rendered in enumerate(source)
        for j, part in enumerate(target)
        if part in rendered
    )


def _sources(target: Target) -> dict[Split, functools.partial[Iterator[Pair]]]:
    return {split: functools.partial(pairs, split, target) for split in SIZES}


@register_problem
def translate_ende_toy() -> Problem:
    """English to German, with separable verbs."""
    return Problem(
        summary="English to German, embedded toy grammar (10,000 sentences)",
        license="Apache-2.0",  # of this package, whose grammar makes them
        sources=_sources("german"),
        vocab_size=1000,
        max_length=64,
    )


@register_problem
def translate_enfr_toy() -> Problem:
    """English to French, with agreement of participles."""
    return translate_ende_toy().replace(
        summary="English to French, embedded toy grammar (10,000 sentences)",
        sources=_sources("french"),
        metrics=Bleu(languages=("en", "fr")),
    )


@register_problem
def parsing_toy() -> Problem:
    """English to Penn Treebank constituency trees."""
    return Problem(
        summary="English constituency parsing, embedded toy grammar",
        license="Apache-2.0",  # of this package, whose grammar makes them
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

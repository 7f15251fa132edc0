"""Translation: the paper's two tasks (section 5.1), and users' text files."""

import dataclasses

from t2t_keras.data.sources import TfdsPairs
from t2t_keras.problem import Cleaning, Problem, Source, Split
from t2t_keras.registry import register_problem

# Pairs that are not translations, most of which are in the web crawl.
_NOISE = Cleaning(identical=True, control=True, letters=0.4, word=100)


def _wmt14(language: str) -> dict[Split, Source]:
    """Returns WMT 2014 from English: dev is newstest2013, test newstest2014."""
    splits: dict[Split, str] = {"train": "train", "dev": "validation", "test": "test"}
    return {
        split: TfdsPairs(f"wmt14_translate/{language}-en", name, "en", language)
        for split, name in splits.items()
    }


@register_problem
def translate_ende() -> Problem:
    """WMT 2014 en-de: Europarl v7, News Commentary v9 and Common Crawl.

    The paper trains on "about 4.5 million" pairs, which is all of them; tensor2tensor
    does no cleaning either. Here noise is dropped, and pairs with more than 256 tokens
    on a side; `--clean none` keeps the noise.
    """
    return Problem(
        summary="English to German, WMT 2014 (paper: BLEU 27.3 base, 28.4 big)",
        sources=_wmt14("de"),
        languages=("en", "de"),
        vocab_size=37_000,
        cleaning=_NOISE,
    )


@register_problem
def translate_enfr() -> Problem:
    """WMT 2014 en-fr: Common Crawl, Europarl v7, News Commentary v9, UN, Giga.

    These corpora have 40.8 million pairs; the paper has 36 million and does not say
    how they were selected. fairseq's usual preparation keeps pairs with at most 250
    tokens on a side and a length ratio of at most 1.5, which also leaves about 36
    million. Here the limits are 256 tokens and the same ratio; noise and repeated pairs
    are also dropped. The manifest counts the pairs that each rule dropped.
    """
    return Problem(
        summary="English to French, WMT 2014 (paper: BLEU 38.1 base, 41.8 big)",
        sources=_wmt14("fr"),
        languages=("en", "fr"),
        vocab_size=32_000,
        cleaning=dataclasses.replace(_NOISE, ratio=1.5, duplicates=True),
    )


@register_problem
def translate_text() -> Problem:
    """The user's files, named by flags; the vocabulary size depends on their size."""
    return Problem(
        summary="your own parallel text files (--train_source ...)", vocab_size=None
    )

"""Translation: the paper's two tasks (section 5.1), and the user's own text."""

import dataclasses

from t2t_keras.data.sources import TfdsPairs
from t2t_keras.metrics.bleu import Bleu
from t2t_keras.problem import Cleaning, Problem, Source, Split
from t2t_keras.registry import register_problem

# What no translator wrote. The web crawl among the corpora has most of it.
_NOISE = Cleaning(identical=True, control=True, letters=0.4, word=100)


def _wmt14(language: str) -> dict[Split, Source]:
    """WMT 2014 from English; newstest2013 is for development, newstest2014 the test."""
    splits: dict[Split, str] = {"train": "train", "dev": "validation", "test": "test"}
    return {
        split: TfdsPairs(f"wmt14_translate/{language}-en", name, "en", language)
        for split, name in splits.items()
    }


@register_problem
def translate_ende() -> Problem:
    """4.5 million pairs: Europarl v7, News Commentary v9 and Common Crawl.

    The paper trains on "about 4.5 million", which is all of them; tensor2tensor cleans
    nothing either. Here pairs with a side of more than 256 tokens are dropped, and
    noise; `--clean none` keeps the noise.
    """
    return Problem(
        summary="English to German, WMT 2014 (paper: BLEU 27.3 base, 28.4 big)",
        sources=_wmt14("de"),
        vocab_size=37_000,
        cleaning=_NOISE,
    )


@register_problem
def translate_enfr() -> Problem:
    """The paper has 36 million pairs, the data as published 40.8 million.

    The five corpora (Common Crawl, Europarl v7, News Commentary v9, UN, Giga-French-
    English) have 40.8 million pairs; the paper does not say how it came to 36. The
    usual preparation, fairseq's, keeps pairs of at most 250 tokens a side of which
    neither has more than 1.5 times as many tokens as the other, and arrives at about
    36 million, too: so do we, with 256 tokens, and drop noise and repeated pairs
    besides. The manifest counts what each rule dropped.
    """
    return Problem(
        summary="English to French, WMT 2014 (paper: BLEU 38.1 base, 41.8 big)",
        sources=_wmt14("fr"),
        metrics=Bleu(languages=("en", "fr")),
        vocab_size=32_000,
        cleaning=dataclasses.replace(_NOISE, ratio=1.5, duplicates=True),
    )


@register_problem
def translate_text() -> Problem:
    """The files are named on the command line; the vocabulary's size suits them."""
    return Problem(
        summary="your own parallel text files (--train_source ...)", vocab_size=None
    )

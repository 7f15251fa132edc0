"""Translation: the paper's two tasks (section 5.1), and the user's own text."""

from t2t_keras.data.sources import TfdsPairs
from t2t_keras.problem import Problem, Source, Split
from t2t_keras.registry import register_problem


def _wmt14(language: str) -> dict[Split, Source]:
    """WMT 2014 from English; newstest2013 is for development, newstest2014 the test."""
    splits: dict[Split, str] = {"train": "train", "dev": "validation", "test": "test"}
    return {
        split: TfdsPairs(f"wmt14_translate/{language}-en", name, "en", language)
        for split, name in splits.items()
    }


@register_problem
def translate_ende() -> Problem:
    """4.5 million pairs."""
    return Problem(
        summary="English to German, WMT 2014 (paper: BLEU 27.3 base, 28.4 big)",
        sources=_wmt14("de"),
        vocab_size=37_000,
    )


@register_problem
def translate_enfr() -> Problem:
    """The paper has 36 million pairs, the data as published 41 million."""
    return Problem(
        summary="English to French, WMT 2014 (paper: BLEU 38.1 base, 41.8 big)",
        sources=_wmt14("fr"),
        vocab_size=32_000,
    )


@register_problem
def translate_text() -> Problem:
    """The files are named on the command line."""
    return Problem(summary="your own parallel text files (--train_source ...)")

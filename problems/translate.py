"""Translation: the paper's two tasks (section 5.1), and users' text files."""

import dataclasses
import functools
from pathlib import Path

from t2t_keras.data.archives import ArchivedPairs
from t2t_keras.data.mixture import Corpus, Mixture
from t2t_keras.data.sources import TfdsPairs
from t2t_keras.metrics.bleu import Bleu
from t2t_keras.problem import Cleaning, Problem, Source, Split
from t2t_keras.registry import register_problem

# Pairs that are no translations, most of which are in the web crawl.
_NOISE = Cleaning(identical=True, control=True, letters=0.4, word=100)


def _wmt14(language: str) -> dict[Split, Source]:
    """Returns WMT 2014 from English: dev is newstest2013, test newstest2014."""
    splits: dict[Split, str] = {"train": "train", "dev": "validation", "test": "test"}
    return {
        split: TfdsPairs(f"wmt14_translate/{language}-en", name, "en", language)
        for split, name in splits.items()
    }


@dataclasses.dataclass(frozen=True)
class _Published:
    """A corpus of WMT 2014 in its archive.

    Attributes:
        url: the archive's address.
        members: the members' names; {pair} is such as "de-en", {language} such as "de".
        sha256: the archive's SHA-256; empty where WMT has published several editions.
    """

    url: str
    members: str
    sha256: str = ""


_CORPORA = {
    "europarl_v7": _Published(
        "http://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz",
        "training/europarl-v7.{pair}.{language}",
        "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7",
    ),
    "commoncrawl": _Published(
        "http://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz",
        "commoncrawl.{pair}.{language}",
        "c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5",
    ),
    "newscommentary_v9": _Published(
        "http://www.statmt.org/wmt14/training-parallel-nc-v9.tgz",
        "training/news-commentary-v9.{pair}.{language}",
        "cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485",
    ),
    "multiun": _Published(
        "http://www.statmt.org/wmt13/training-parallel-un.tgz",
        "un/undoc.2000.{pair}.{language}",
        "29141b5c1eba149a94f7a59d3b1a834b2e47fe0f8758d68dcd77a3d3f497ee47",
    ),
    "gigafren": _Published(
        "http://www.statmt.org/wmt10/training-giga-fren.tar",
        "giga-fren.release2.fixed.{language}.gz",
        "3ff8319f6919393520559bfbc7ad6a747ec81b3abc7be9993b338d4b017b4d9a",
    ),
}
_ENDE = ("europarl_v7", "commoncrawl", "newscommentary_v9")
_ENFR = (*_ENDE, "multiun", "gigafren")


def _wmt14_archives(
    language: str, corpora: tuple[str, ...], directory: Path
) -> dict[Split, Source]:
    """Returns WMT 2014 from English, as it is published."""

    def pairs(published: _Published) -> ArchivedPairs:
        source, target = (
            published.members.format(pair=f"{language}-en", language=side)
            for side in ("en", language)
        )
        return ArchivedPairs(directory, published.url, source, target, published.sha256)

    test = f"test-full/newstest2014-{language}en"
    return {
        "train": Mixture(tuple(Corpus(n, pairs(_CORPORA[n])) for n in corpora)),
        "dev": pairs(
            _Published(
                "http://www.statmt.org/wmt14/dev.tgz", "dev/newstest2013.{language}"
            )
        ),
        "test": ArchivedPairs(
            directory,
            "http://www.statmt.org/wmt14/test-full.tgz",
            f"{test}-src.en.sgm",
            f"{test}-ref.{language}.sgm",
        ),
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
        raw_sources=functools.partial(_wmt14_archives, "de", _ENDE),
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
    are dropped, too. The manifest counts what each rule dropped.
    """
    return Problem(
        summary="English to French, WMT 2014 (paper: BLEU 38.1 base, 41.8 big)",
        sources=_wmt14("fr"),
        raw_sources=functools.partial(_wmt14_archives, "fr", _ENFR),
        metrics=Bleu(languages=("en", "fr")),
        vocab_size=32_000,
        cleaning=dataclasses.replace(_NOISE, ratio=1.5, duplicates=True),
    )


@register_problem
def translate_text() -> Problem:
    """The user's files, named by flags; the vocabulary size depends on their size."""
    return Problem(
        summary="your own parallel text files (--train_source ...)", vocab_size=None
    )

"""WMT 2014 from its published archives, instead of tensorflow-datasets.

t2t datagen --problem translate_ende_wmt --data_dir data --raw_dir wmt14 --download
"""

import argparse
import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from t2t_keras import registry
from t2t_keras.data.mixture import Corpus, Mixture, corpora_of
from t2t_keras.errors import UserError
from t2t_keras.problem import Problem, Source, Split
from t2t_keras.registry import register_problem

from .archives import ArchivedPairs, download_archive, require_archives


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArchivedProblem(Problem):
    """A problem whose examples are in published archives; nothing is unpacked.

    Attributes:
        archives: maps the directory with the archives to the sources of the splits.
    """

    archives: Callable[[Path], Mapping[Split, Source]]

    def add_flags(self, parser: argparse._ActionsContainer) -> None:
        """Adds `--raw_dir` and `--download`."""
        parser.add_argument(
            "--raw_dir",
            metavar="DIR",
            help="the directory with the archives that WMT published",
        )
        parser.add_argument(
            "--download",
            action="store_true",
            help="download the archives that --raw_dir lacks",
        )

    def with_flags(self, args: argparse.Namespace) -> Self:
        """Returns the problem with its archives as sources.

        Raises:
            UserError: `--raw_dir` is not given, or lacks an archive.
        """
        if not args.raw_dir:
            raise UserError(f"problem '{self.name}' needs --raw_dir")
        sources = {**self.archives(Path(args.raw_dir)), **self.sources}
        archived = []
        for source in sources.values():
            for corpus in corpora_of(source):
                if isinstance(corpus.source, ArchivedPairs):
                    archived.append(corpus.source)
        require_archives(archived, download_archive if args.download else None)
        return self.replace(sources=sources)


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
    """Returns WMT 2014 from English, as published."""

    def pairs(published: _Published) -> ArchivedPairs:
        pair = f"{language}-en"
        return ArchivedPairs(
            directory,
            published.url,
            published.members.format(pair=pair, language="en"),
            published.members.format(pair=pair, language=language),
            published.sha256,
        )

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


def _archived(name: str, archives: Callable[[Path], Mapping[Split, Source]]) -> Problem:
    """Returns a problem with archives in place of tensorflow-datasets."""
    problem = registry.problem(name)
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(problem):
        fields[field.name] = getattr(problem, field.name)
    fields |= {"sources": {}, "summary": f"{name} from WMT's archives (--raw_dir)"}
    return ArchivedProblem(**fields, archives=archives)


@register_problem
def translate_ende_wmt() -> Problem:
    """`translate_ende`, whose examples are read from the archives of WMT 2014."""
    archives = functools.partial(_wmt14_archives, "de", _ENDE)
    return _archived("translate_ende", archives)


@register_problem
def translate_enfr_wmt() -> Problem:
    """`translate_enfr`, whose examples are read from the archives of WMT 2014."""
    archives = functools.partial(_wmt14_archives, "fr", _ENFR)
    return _archived("translate_enfr", archives)

"""WMT 2014 from its published archives, instead of tensorflow-datasets.

t2t datagen --problem translate_ende_wmt --data_dir data --raw_dir wmt14 --download
"""

import dataclasses
import functools
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from t2t_keras import registry
from t2t_keras.cli.command import FlagGroup
from t2t_keras.data.mixture import Corpus, Mixture, corpora_of
from t2t_keras.errors import UserError
from t2t_keras.options import option
from t2t_keras.problem import Problem, Source, Split
from t2t_keras.registry import register_problem

from .archives import ArchivedPairs, require_archives

_ARCHIVES = FlagGroup("archives")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArchiveFlags:
    """The flags of `t2t datagen` for published archives."""

    raw_dir: str | None = option(
        None,
        "the directory with the archives that WMT published",
        metavar="DIR",
        group=_ARCHIVES,
    )
    download: bool = option(
        False, "download the archives that --raw_dir lacks", group=_ARCHIVES
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArchivedProblem(Problem):
    """A problem whose examples are in published archives; nothing is unpacked.

    Attributes:
        archives: maps the directory with the archives to the sources of the splits.
    """

    flags: ClassVar[type | None] = ArchiveFlags

    archives: Callable[[Path], Mapping[Split, Source]]

    def with_flags(self, flags: ArchiveFlags) -> Self:
        """Returns the problem with its archives as sources.

        Raises:
            UserError: `--raw_dir` is not given, or lacks an archive.
        """
        if not flags.raw_dir:
            raise UserError(f"problem '{self.name}' needs --raw_dir")
        sources = {**self.archives(Path(flags.raw_dir)), **self.sources}
        archived = []
        for source in sources.values():
            for corpus in corpora_of(source):
                if isinstance(corpus.source, ArchivedPairs):
                    archived.append(corpus.source)
        require_archives(archived, flags.download)
        return self.replace(sources=sources)


def _wmt14(language: str, directory: Path) -> dict[Split, Source]:
    """Returns WMT 2014 from English, in the archives of a directory."""
    text = Path(__file__).with_name("wmt14.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)

    def pairs(entry: Mapping[str, str]) -> ArchivedPairs:
        return ArchivedPairs(
            directory,
            entry["url"],
            entry["source"].format(language=language),
            entry["target"].format(language=language),
            entry.get("sha256", ""),
        )

    corpora = []
    for name, entry in table["train"].items():
        if language in entry["languages"]:
            corpora.append(Corpus(name, pairs(entry)))
    train = Mixture(tuple(corpora))
    return {"train": train, "dev": pairs(table["dev"]), "test": pairs(table["test"])}


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
    return _archived("translate_ende", functools.partial(_wmt14, "de"))


@register_problem
def translate_enfr_wmt() -> Problem:
    """`translate_enfr`, whose examples are read from the archives of WMT 2014."""
    return _archived("translate_enfr", functools.partial(_wmt14, "fr"))

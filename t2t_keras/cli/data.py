"""The command that writes data: `datagen`."""

import dataclasses
import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_keras import registry
from t2t_keras.cli.command import (
    FURTHER,
    MAX_SEED,
    REQUIRED,
    Command,
    CommandResult,
    FlagGroup,
    UsrDirFlags,
    quoted,
)
from t2t_keras.console import say, table
from t2t_keras.errors import UserError
from t2t_keras.options import option
from t2t_keras.problem import SIDES, SPLITS, Problem, Source, Split, TextProcessor
from t2t_keras.run.config import RunConfig, require_run
from t2t_keras.usr_dir import load_usr_dir

if TYPE_CHECKING:
    from t2t_keras.data.datagen import Stages
    from t2t_keras.data.manifest import Manifest


# The hparam set for each maximum of training pairs, as `t2t list` describes the sets.
_SETS = {
    150_000: "small_data",
    500_000: "pairs_300k",
    1_500_000: "pairs_1m",
    4_000_000: "pairs_3m",
}
_LARGEST_SET = "base"
# `tiny` is for at most this many pairs, if their mean number of target tokens is low.
_TOY_PAIRS = 10_000
_SHORT = 15  # tokens


_FILES = FlagGroup(
    "files that replace the problem's sources",
    "one sentence per line, UTF-8, plain or compressed (gzip, xz, zstd, bzip2); line i "
    "of the target translates line i of the source; or one file of pairs as both "
    "(.tsv, .tmx, ...; most need --languages)",
)


def _file(texts: str) -> str | None:
    """Returns the field for a file of texts."""
    return option(None, texts, metavar="FILE", group=_FILES)


@dataclasses.dataclass(kw_only=True)
class PairsCommand(UsrDirFlags, Command):
    """A command that reads the pairs of a problem, or of files in place of them."""

    heading = "data and training"
    words_hint = "name the files: --train_source FILE --train_target FILE"

    problem: str = option(REQUIRED, "a name of `t2t list`", metavar="NAME")
    data_dir: str | None = option(None, "a data directory", metavar="DIR")
    languages: str | None = option(
        None,
        "the languages, such as en-de (default: the problem's, or found in the texts)",
        metavar="SOURCE-TARGET",
    )
    train_source: str | None = _file("source texts of train")
    train_target: str | None = _file("target texts of train")
    dev_source: str | None = _file("source texts of dev")
    dev_target: str | None = _file("target texts of dev")
    test_source: str | None = _file("source texts of test")
    test_target: str | None = _file("target texts of test")
    mixture: str | None = option(
        None,
        "a TOML file that names the files of all splits, also files of pairs, several "
        "corpora with weights and tags, word alignments (see docs/data.md)",
        metavar="FILE",
        group=_FILES,
    )

    @classmethod
    def plugin_flags(cls, problem: str | None, usr_dir: str | None) -> type | None:
        """Returns the flags of the problem."""
        if not problem:
            return None
        if usr_dir:
            load_usr_dir(usr_dir)
        return registry.problem(problem).flags

    def read_files(self) -> dict[str, str]:
        """Returns the files with the pairs, by flag."""
        names = [f"{split}_{side}" for split in SPLITS for side in SIDES]
        paths = {name: getattr(self, name) for name in [*names, "mixture"]}
        return {name: path for name, path in paths.items() if path}

    def problem_with_sources(self) -> Problem:
        """Returns the problem with the sources that the flags name."""
        problem = registry.problem(self.problem)
        own_flags = problem.text_processor.source_flags
        if own_flags != TextProcessor.source_flags and (files := self.read_files()):
            flag, *_ = files
            split = flag.split("_")[0] if flag != "mixture" else "train"
            raise UserError(
                f"--{flag}: problem '{problem.name}' reads no files of texts; give "
                f"{own_flags.format(split=split)}"
            )
        problem = problem.replace(sources={**problem.sources, **self._files(problem)})
        flags = self.plugin_values
        return problem if flags is None else problem.with_flags(flags)

    def data_languages(self, problem: Problem) -> tuple[str, str] | None:
        """Returns the languages of flag or problem, in the data's direction."""
        return self._with_languages(problem).data_languages

    def _with_languages(self, problem: Problem) -> Problem:
        """Returns the problem with the languages that the flag names, if any."""
        if not self.languages:
            return problem
        from t2t_keras.data.sources import parse_languages

        return problem.replace(languages=parse_languages(self.languages))

    def _files(self, problem: Problem) -> dict[Split, Source]:
        """Returns the sources that the command line names."""
        from t2t_keras.data.mixture import read_mixture

        sources = read_mixture(self.mixture) if self.mixture else {}
        if sources and problem.reverse:
            raise UserError(
                f"the data of '{problem.name}' are those of '{problem.data_name}'; "
                f"generate them with --problem={problem.data_name} and a mixture in "
                "its direction"
            )
        files = self.read_files()
        for split in SPLITS:
            flags = [f"{split}_{side}" for side in SIDES]
            paths = [files[flag] for flag in flags if flag in files]
            if not paths:
                continue
            if len(paths) == 1:
                flag, missing = flags if flags[0] in files else flags[::-1]
                raise UserError(f"--{flag} needs --{missing}; give both")
            if split in sources:
                raise UserError(
                    f"{self.mixture} has {split} examples; leave out --{flags[0]} and "
                    f"--{flags[1]}, or its [[{split}]]"
                )
            sources[split] = self._pairs(paths[0], paths[1], problem)
        return sources

    def _pairs(self, source: str, target: str, problem: Problem) -> Source:
        """Returns the source that reads two text files, or one file of pairs.

        Args:
            source: the file of source texts.
            target: the file of target texts. If it is the same file, and one of pairs,
                both sides are read from it.
            problem: the problem of the data.
        """
        from t2t_keras.data.sources import PairFile, ParallelFiles, format_of
        from t2t_keras.files.text_files import require_text_file

        exist = os.path.exists(source) and os.path.exists(target)
        is_one_file = exist and os.path.samefile(source, target)
        format = format_of(source) if is_one_file else None
        if format is not None:
            languages = self.data_languages(problem)
            tells_direction = format.needs_languages and languages
            if problem.reverse and not tells_direction:
                raise UserError(
                    f"{source} is {format.title}, in the direction of "
                    f"'{problem.data_name}'; generate the data with --problem "
                    f"{problem.data_name}"
                )
            if languages is None and (languages := format.languages(source)):
                say(
                    f"{source}: the source is {languages[0]} and the target "
                    f"{languages[1]} (--languages changes this)"
                )
            return PairFile(source, languages)
        for path in (source, target):
            require_text_file(path)
        # The data of `x_rev` are those of `x`: in its direction.
        pair = (target, source) if problem.reverse else (source, target)
        return ParallelFiles(*pair)


@dataclasses.dataclass(kw_only=True)
class Datagen(PairsCommand):
    """Writes a problem's vocabulary and examples into a data directory."""

    summary = "write a problem's vocabulary and examples into a data directory"
    waiting = "reading the sources"
    resumes = True

    data_dir: str = option(REQUIRED, "data directory to write", metavar="DIR")
    vocab_size: int | None = option(
        None,
        "tokens in the vocabulary (default: the problem's, or one that suits the "
        "number of pairs)",
        ge=1,
    )
    clean: str | None = option(
        None,
        "rules that drop noisy training pairs: 'none', or some of "
        "identical, control, entities, letters=0.5, word=100, ratio=1.5, duplicates, "
        "separated by commas (default: the problem's)",
        metavar="RULES",
    )
    dev_size: int | None = option(
        None, "take N pairs for dev out of the training pairs", ge=1
    )
    test_size: int | None = option(
        None, "take N pairs for test out of the training pairs", ge=1
    )
    max_length: int | None = option(
        None,
        "drop training pairs with more tokens on a side (default: the problem's)",
        ge=1,
        group=FURTHER,
    )
    workers: int | None = option(
        None,
        "number of processes (default: one per core, on a cluster of all nodes)",
        ge=1,
        group=FURTHER,
    )
    seed: int = option(0, "seed of the shuffle", ge=0, lt=MAX_SEED, group=FURTHER)
    vocab: tuple[str, ...] = option(
        (),
        "use this vocabulary, or one for sources and one for targets, or the "
        "vocabularies of a run, instead of training one",
        metavar="FILE ...",
        group=FURTHER,
    )

    def needs_tensorflow(self) -> bool:
        """Returns whether the data come from tensorflow-datasets."""
        from t2t_keras.data.sources import TfdsPairs

        if self.usr_dir:  # its problems are not yet known
            return False
        sources = registry.problem(self.problem).sources.values()
        return any(isinstance(source, TfdsPairs) for source in sources)

    def check(self) -> None:
        """Refuses vocabularies that cannot be used."""
        if len(self.vocab) > 2:
            raise UserError(f"--vocab takes at most 2, not {len(self.vocab)} files")
        if self.vocab and self.vocab_size:
            raise UserError("--vocab_size has no effect with --vocab; leave it out")
        for path in self.vocab:
            if not Path(path).exists():
                raise UserError(f"--vocab: there is no {path}")

    def stages(self) -> "Stages | None":
        """Returns the `stages` of `data.datagen.generate`."""
        return None

    def run(self) -> CommandResult:
        """Generates the data, and returns the numbers of examples and tokens."""
        from t2t_keras.data.datagen import generate

        start = time.monotonic()
        manifest = generate(
            self._changed_problem(),
            self.data_dir,
            self.workers,
            self.seed,
            self.dev_size or 0,
            self.test_size or 0,
            self.stages(),
        )
        if "dev" not in manifest.examples:
            say(
                "there are no dev data: training will not be evaluated (--dev_size N "
                "takes N of the training pairs for dev)"
            )
        dropped = Counter[str]()
        for reasons in manifest.dropped.values():
            dropped.update(reasons)
        return {
            "examples": dict(manifest.examples),
            "dropped": dict(dropped),
            "vocab_size": manifest.vocab_sizes["target"],
            "vocab_sizes": dict(manifest.vocab_sizes),
            "seconds": round(time.monotonic() - start, 2),
        }

    def _changed_problem(self) -> Problem:
        """Returns the problem with the changes that the flags ask for."""
        from t2t_keras.data.cleaning import parse_cleaning

        problem = self.problem_with_sources()
        if self.vocab_size:
            problem = problem.replace(vocab_size=self.vocab_size)
        if self.max_length:
            problem = problem.replace(max_length=self.max_length)
        if self.clean:
            problem = problem.replace(cleaning=parse_cleaning(self.clean))
        problem = self._with_languages(problem)
        if self.vocab:
            from t2t_keras.data.manifest import use_vocabularies

            files = _vocabularies(self.vocab)
            problem = use_vocabularies(problem, files, Path(self.data_dir))
        return problem

    def show(self, result: CommandResult) -> str:
        """Formats the numbers as a table."""
        rows = {f"{split} examples": n for split, n in result["examples"].items()}
        for reason, count in result["dropped"].items():
            rows[f"dropped, {reason}"] = count
        rows["vocabulary"] = result["vocab_size"]
        rows["seconds"] = result["seconds"]
        return table(rows)

    def next_command(self) -> str:
        """Returns the command that trains on the data."""
        return train_command(self.problem, self.data_dir, self.usr_dir)


def _vocabularies(paths: Sequence[str]) -> tuple[Path, Path]:
    """Returns the files of source and target that --vocab names."""
    source = Path(paths[0])
    if not source.is_dir():
        return source, Path(paths[-1])
    require_run(source)
    config = RunConfig.read(source)
    return source / config.source_vocab, source / config.target_vocab


def train_command(problem_name: str, data_dir: str, usr_dir: str | None) -> str:
    """Returns the command that trains on the data of a directory."""
    from t2t_keras.data.manifest import Manifest

    problem = registry.problem(problem_name)
    manifest = Manifest.load(Manifest.path(Path(data_dir), problem.data_name))
    words = [f"t2t train --problem {problem_name} --data_dir {quoted(data_dir)}"]
    if usr_dir:
        words.append(f"--usr_dir {quoted(usr_dir)}")
    words.append(f"--hparams_set {_fitting_set(problem, manifest)} --output_dir RUN")
    return " ".join(words)


def _fitting_set(problem: Problem, manifest: "Manifest | None") -> str:
    """Returns the problem's set, or the one for the number of pairs, or else "SET".

    The latter are for translation; other tasks have another text processor.
    """
    if problem.hparams_set in registry.list_hparams():  # it may be a plugin's
        return problem.hparams_set
    is_translation = type(problem.text_processor) is TextProcessor
    pairs = manifest.examples.get("train") if manifest else None
    if manifest is None or not pairs or not is_translation:
        return "SET"
    is_short = manifest.tokens["train"]["target"] <= _SHORT * pairs
    if is_short and pairs <= _TOY_PAIRS:
        return "tiny"
    fitting = (name for limit, name in _SETS.items() if pairs <= limit)
    return next(fitting, _LARGEST_SET)


COMMANDS = {"datagen": Datagen}

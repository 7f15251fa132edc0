"""The command that looks for faults in data: `inspect`."""

import dataclasses
import functools
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_keras import registry
from t2t_keras.cli.command import CommandResult
from t2t_keras.cli.data import PairsCommand, train_command
from t2t_keras.cli.lines import require_outputs
from t2t_keras.console import columns, say, say_page, wrapped
from t2t_keras.errors import UserError, quantity
from t2t_keras.files.atomic import open_lines
from t2t_keras.options import option
from t2t_keras.problem import SIDES, SPLITS, Pair, Problem, Source, Split

from .findings import Finding

if TYPE_CHECKING:
    from t2t_keras.text.tokenizer import Tokenizer

    from .cleaned_copy import SplitRecipe
    from .inspection import Inspection


_MAX_FINDINGS = 12  # findings that are printed; the page has them all


def decoded_examples(
    data_dir: Path, problem: Problem
) -> tuple[dict[str, Source], tuple["Tokenizer", "Tokenizer"]]:
    """Returns the texts of all examples of a data directory, and its tokenizers.

    Args:
        data_dir: the directory.
        problem: the problem.

    Returns:
        For each split, or each corpus in it, a function that yields its pairs without
        tags; and the tokenizers of source and target.

    Raises:
        UserError: the directory has no data of the problem, or is damaged.
    """
    import numpy as np

    from t2t_keras.data.manifest import Manifest
    from t2t_keras.data.pipeline import read_pairs
    from t2t_keras.text.tokenizer import load_tokenizer

    manifest = Manifest.open(data_dir, problem.data_name)
    manifest.check_vocabularies(data_dir)
    files = [data_dir / manifest.vocab_files[side] for side in SIDES]
    if problem.reverse:
        files.reverse()
    source_tokenizer = load_tokenizer(files[0])
    target_tokenizer = load_tokenizer(files[1])

    def pairs(split: Split, corpus: int) -> Iterator[Pair]:
        index = manifest.open_index(data_dir, split, problem.reverse)
        records = np.arange(len(index))
        if index.corpus is not None:
            records = np.flatnonzero(index.corpus == corpus)
        for source_ids, target_ids in read_pairs(index, records.tolist()):
            source = source_tokenizer.decode(source_ids)
            tag, _, untagged = source.partition(" ")
            if tag in manifest.tags:
                source = untagged
            yield source, target_tokenizer.decode(target_ids)

    sources: dict[str, Source] = {}
    for split in manifest.examples:
        for corpus, name in enumerate(manifest.corpora.get(split, [""])):
            key = f"{split} {name}".strip()
            sources[key] = functools.partial(pairs, split, corpus)
    return sources, (source_tokenizer, target_tokenizer)


@dataclasses.dataclass(kw_only=True)
class Inspect(PairsCommand):
    """Looks for faults in a corpus or a data directory, and describes it."""

    summary = "look for faults in a corpus or a data directory, and describe it"
    waiting = "reading the pairs"

    problem: str = option("translate_text", "a name of `t2t list`", metavar="NAME")
    data_dir: str | None = option(
        None,
        "inspect the examples in a data directory, and how its vocabularies split "
        "them, instead of the problem's sources",
        metavar="DIR",
    )
    languages: str | None = option(
        None,
        "the languages that the data should have, en-de for example (default: the "
        "problem's)",
        metavar="SOURCE-TARGET",
    )
    page: str | None = option(
        None,
        "also write an HTML page that shows the faulty pairs, to choose what becomes "
        "of them",
        metavar="FILE",
    )
    apply: str | None = option(
        None,
        "write a cleaned copy of the files, and the recipe, to this directory: without "
        "--recipe, faulty training pairs are repaired or left out",
        metavar="DIR",
    )
    recipe: str | None = option(
        None,
        "what --apply does with each fault: a file that the page saves",
        metavar="FILE",
    )

    def needs_tensorflow(self) -> bool:
        """Returns whether a data directory is read."""
        return bool(self.data_dir)

    def check(self) -> None:
        """Refuses outputs that cannot be written, and flags without an effect."""
        require_outputs(self, {"page": [self.page] if self.page else []})
        if self.recipe and not self.apply:
            raise UserError("--recipe has no effect without --apply; give --apply DIR")
        directory = Path(self.apply or "")
        is_empty = directory.is_dir() and not any(directory.iterdir())
        if self.apply and directory.exists() and not is_empty:
            raise UserError(
                f"--apply: {directory} exists already; name a new directory"
            )
        if self.data_dir:
            self.require_only(
                {"problem", "data_dir", "usr_dir", "page", "json", "languages"},
                "--data_dir, whose examples are inspected",
            )

    def run(self) -> CommandResult:
        """Inspects the data; writes the page and the cleaned copy."""
        from .cleaned_copy import read_recipes
        from .inspection import inspect

        recipes = read_recipes(self.recipe) if self.recipe else {}
        problem = registry.problem(self.problem)
        tokenizers: tuple[Tokenizer, Tokenizer] | None = None
        if self.data_dir:
            sources, tokenizers = decoded_examples(Path(self.data_dir), problem)
        else:
            sources = self._sources()
        for name in recipes:
            if name not in sources:
                raise UserError(
                    f"--recipe: {self.recipe} has [{name}], but there are only "
                    f"{', '.join(sources)}"
                )
        inspection = inspect(sources, tokenizers, self.data_languages(problem))
        result: dict[str, Any] = {**inspection.report}
        if self.page:
            self._write_page(self.page, sources, inspection)
        for finding in result["findings"]:
            if finding["kind"] == "unreadable":
                say(self.show(result))
                raise UserError(f"{finding['split']} {finding['message']}")
        if self.apply:
            result["applied"] = self._apply(self.apply, sources, inspection, recipes)
        return result

    def _sources(self) -> dict[str, Source]:
        """Returns what is inspected, by the names of splits and of corpora in them."""
        from t2t_keras.data.mixture import corpora_of

        problem = self.problem_with_sources()
        if not problem.sources:
            raise UserError(
                f"problem '{problem.name}' has no examples; give --data_dir or "
                f"{problem.text_processor.source_flags.format(split='train')}"
            )
        sources = {}
        for split, source in problem.sources.items():
            for corpus in corpora_of(source):
                sources[f"{split} {corpus.name}".strip()] = corpus.source
        return sources

    def _write_page(
        self, path: str, sources: Mapping[str, Source], inspection: "Inspection"
    ) -> None:
        """Writes the page that shows the faulty pairs."""
        from .inspection_page import inspection_page

        page = inspection_page(
            f"The data of {registry.problem(self.problem).name}",
            ["t2t", *self.words],
            sources,
            inspection,
        )
        with open_lines(path) as file:
            file.write(page)
        say_page(path)

    def _apply(
        self,
        directory: str,
        sources: Mapping[str, Source],
        inspection: "Inspection",
        recipes: Mapping[str, "SplitRecipe"],
    ) -> dict[str, Any]:
        """Writes the cleaned copy, and returns what it has by split."""
        from .cleaned_copy import default_recipe, keep_all, write_copies
        from .inspection import is_train

        choices = {}
        for name in sources:
            # A page has no choices for splits without faults.
            default = keep_all() if self.recipe else default_recipe(is_train(name))
            choices[name] = recipes.get(name, default)
        copies = write_copies(Path(directory), sources, inspection.faults, choices)
        return {name: copy._asdict() for name, copy in copies.items()}

    def show(self, result: CommandResult) -> str:
        """Describes each side of each split, and lists the faults and the copies."""
        rows = []
        for name, split in result["splits"].items():
            for side in SIDES:
                row = {"split": name, "pairs": split["pairs"], "side": side}
                rows.append(row | _describe_side(split[side], max(split["pairs"], 1)))
        findings = [str(Finding(**values)) for values in result["findings"]]
        lines = [columns(rows), "", *map(wrapped, findings[:_MAX_FINDINGS])]
        if len(findings) > _MAX_FINDINGS:
            lines.append(f"and {len(findings) - _MAX_FINDINGS} more (--page, --json)")
        if not findings:
            lines.append("no faults were found")
        for name, copy in result.get("applied", {}).items():
            lines.append(
                f"{name}: {copy['source']} and {copy['target']} have "
                f"{quantity(copy['pairs'], 'pairs')}; {copy['dropped']:,} left out, "
                f"{copy['repaired']:,} repaired"
            )
        return "\n".join(lines)

    def next_command(self) -> str:
        """Returns the command that trains on the data, or makes data of the files."""
        if self.data_dir:
            return train_command(self.problem, self.data_dir, self.usr_dir)
        words = ["t2t", "datagen", "--problem", self.problem, "--data_dir", "DIR"]
        if self.languages:
            words += ["--languages", self.languages]
        for split in SPLITS:
            for side in SIDES:
                path = getattr(self, f"{split}_{side}")
                if self.apply:
                    copy = Path(self.apply, f"{split}.{side}")
                    path = str(copy) if copy.exists() else None
                if path:
                    words += [f"--{split}_{side}", path]
        return shlex.join(words)


def _describe_side(side: dict[str, Any], pairs: int) -> dict[str, object]:
    """Returns the means of a sentence, and the most frequent language or script."""
    shares = side["languages"] or side["scripts"]
    largest_share = [f"{name} {share:.0%}" for name, share in shares.items()][:1]
    return {
        "words": side["words"] / pairs,
        "characters": round(side["characters"] / pairs),
        "script" if side["languages"] is None else "language": "".join(largest_share),
    }


COMMAND = Inspect

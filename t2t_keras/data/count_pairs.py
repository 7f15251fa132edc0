"""Counts the pairs of each source before the long work begins."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from t2t_keras.checking import Count
from t2t_keras.console import progress
from t2t_keras.data.line_positions import Position
from t2t_keras.data.manifest import Counts, read_counts
from t2t_keras.data.mixture import Corpus, corpora_of
from t2t_keras.data.source_survey import survey
from t2t_keras.data.tasks import TaskRunner
from t2t_keras.errors import UserError
from t2t_keras.files.json_files import read_json, typed_value, write_json
from t2t_keras.problem import Problem, Split

_CHUNK = 1000  # pairs after which the progress is updated


def count_pairs(problem: Problem, splits: Sequence[Split], directory: Path) -> Counts:
    """Counts the pairs of each split, unless an earlier run has done so.

    Any mistake in a source is found here.

    Args:
        problem: the problem with the sources.
        splits: the splits to count.
        directory: gets `corpora.json`, and `left_out.json` with what the sources
            themselves left out, by split and reason.

    Raises:
        UserError: a source has a mistake, or not a single pair.
    """
    counts = read_counts(directory / "corpora.json")
    left_out = read_counts(directory / "left_out.json")
    for split in splits:
        if split in counts:
            continue
        source = problem.sources[split]
        by_corpus = {}
        for corpus in corpora_of(source):
            by_corpus[corpus.name] = _count(corpus, split)
        counts[split] = by_corpus
        left_out[split] = getattr(source, "dropped", {})
        write_json(directory / "left_out.json", left_out, with_checksum=True)
        write_json(directory / "corpora.json", counts, with_checksum=True)
    return counts


def _count(corpus: Corpus, split: Split) -> int:
    """Returns the number of pairs of a corpus, which is above 0."""
    count = 0
    with progress(f"counting {split} {corpus.name}".strip(), "pairs") as advance:
        pairs = iter(corpus.source())
        while chunk := sum(1 for _ in itertools.islice(pairs, _CHUNK)):
            count += chunk
            advance(chunk)
    dropped = getattr(corpus.source, "dropped", {})
    _require_pairs(count, split, corpus.name, dropped)
    return count


def _require_pairs(
    count: int, split: Split, corpus: str, dropped: Mapping[str, int]
) -> None:
    """Raises `UserError` if a corpus has no pairs."""
    if not count:
        name = f" '{corpus}'" if corpus else ""
        details = f"; left out were {dict(dropped)}" if dropped else ""
        raise UserError(f"the {split} source{name} has not a single pair{details}")


def count_in_tasks(
    problem: Problem, splits: Sequence[Split], directory: Path, runner: TaskRunner
) -> Counts:
    """Counts the pairs of each split in tasks, unless an earlier run has done so.

    Args:
        problem: the problem with the sources.
        splits: the splits to count.
        directory: gets the files of `count_pairs` and `positions.json`, see
            `read_positions`.
        runner: runs the tasks.

    Raises:
        UserError: a source has a mistake, or not a single pair.
    """
    counts = read_counts(directory / "corpora.json")
    if (directory / "positions.json").exists() and counts.keys() >= set(splits):
        return counts
    corpora = {}
    for split in splits:
        for corpus in corpora_of(problem.sources[split]):
            corpora[split, corpus.name] = corpus
    with progress("counting", "pairs") as advance:
        surveys = survey(list(corpora.values()), runner)
        advance(sum(result.pairs for result in surveys))
    counts = {split: {} for split in splits}
    left_out = {split: Counter[str]() for split in splits}
    positions: dict[Split, dict[str, list[list[Position]]]] = {}
    for (split, name), result in zip(corpora, surveys, strict=True):
        _require_pairs(result.pairs, split, name, result.dropped)
        counts[split][name] = result.pairs
        left_out[split] += Counter(result.dropped)
        if result.positions is not None:
            positions.setdefault(split, {})[name] = result.positions
    write_json(directory / "positions.json", positions, with_checksum=True)
    write_json(directory / "left_out.json", left_out, with_checksum=True)
    write_json(directory / "corpora.json", counts, with_checksum=True)
    return counts


def read_positions(directory: Path) -> dict[Split, dict[str, list[list[Position]]]]:
    """Returns where corpora can be read from, by split and corpus.

    Raises:
        UserError: the file is damaged.
    """
    path = directory / "positions.json"
    hint = dict[Split, dict[str, list[list[tuple[Count, Count]]]]]
    return typed_value(hint, read_json(path) or {}, "positions", path)

"""Trains the vocabularies on a sample of the training pairs."""

import functools
import itertools
import json
import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from t2t_keras.data.cleaning import TEXT_FILTERS, active_filters, drop_reason
from t2t_keras.data.console import say
from t2t_keras.data.mixture import corpora_of, sample_sizes
from t2t_keras.data.progress import progress
from t2t_keras.data.sides import SIDES, Side
from t2t_keras.data.vocabulary_files import vocab_files
from t2t_keras.data.worker_processes import worker_pool
from t2t_keras.errors import UserError
from t2t_keras.problem import Pair, Problem, Split
from t2t_keras.quantity import quantity
from t2t_keras.text.tokenizers import load_tokenizer, tokenizer_class

T = TypeVar("T")


def train_vocabularies(
    problem: Problem,
    totals: Mapping[str, int],
    vocabularies: Mapping[Side, Path],
    directory: Path,
    seed: int,
    in_subprocess: bool,
    draw_sample: Callable[[Sequence[int]], Iterator[Pair]] | None = None,
) -> None:
    """Trains one vocabulary for both sides, or one for each, unless the files exist.

    Args:
        problem: the problem with the training pairs.
        totals: the number of training pairs by corpus.
        vocabularies: the file of each side.
        directory: gets the files until they are complete.
        seed: seed of the sample.
        in_subprocess: see `train_vocabulary`.
        draw_sample: draws the sample, given its number of pairs of each corpus; None:
            this process draws it.

    Raises:
        UserError: there are too few texts, or the vocabulary is too small for them.
    """
    for columns in [(0, 1)] if problem.shared_vocab else [(0,), (1,)]:
        path = vocabularies[SIDES[columns[0]]]
        if path.exists():
            say(f"using the vocabulary {path}")
            continue
        limit = tokenizer_class(problem.tokenizer).training_pairs
        size = min(limit, sum(totals.values()))
        sizes = sample_sizes(problem.source("train"), totals, size)
        lines = sum(sizes) * len(columns)
        say(f"training {path.name} on {quantity(lines, 'lines')}")
        with progress(path.name, "lines", lines) as advance:
            if draw_sample is not None:
                sample = draw_sample(sizes)
            else:
                pairs = problem.pairs("train")
                sample = draw(pairs, list(totals.values()), sizes, seed)
            texts = _texts(problem, sample, columns)
            unfinished = directory / path.name
            train_vocabulary(problem, texts, unfinished, in_subprocess)
            os.replace(unfinished, path)
            advance(lines)


def _texts(
    problem: Problem, pairs: Iterable[Pair], columns: Sequence[int]
) -> Iterator[str]:
    """Yields the texts of some sides of the pairs that the cleaning keeps."""
    filters = active_filters(TEXT_FILTERS, problem.cleaning)
    for pair in pairs:
        if drop_reason(pair, filters, problem) is None:
            for column in columns:
                yield pair[column]


def require_tags(problem: Problem, splits: Sequence[Split], vocabulary: Path) -> None:
    """Raises `UserError` unless each tag of the sources is a token of a vocabulary."""
    tags = set()
    for split in splits:
        tags |= {corpus.tag for corpus in corpora_of(problem.sources[split])}
    for tag in sorted(tags - {""}):
        if len(load_tokenizer(vocabulary).encode(tag)) != 2:  # the tag and EOS
            raise UserError(
                f"the tag '{tag}' is not a token of the vocabulary {vocabulary}: give "
                "a new --data_dir, in which a vocabulary is trained on data with the "
                "tag"
            )


def draw(
    pairs: Iterable[T], totals: Sequence[int], sizes: Sequence[int], seed: int
) -> Iterator[T]:
    """Draws some of the pairs of each corpus, in order; all choices are equally likely.

    This is Knuth's selection sampling (The Art of Computer Programming 2, 3.4.2,
    algorithm S). Since the totals are known, it keeps nothing in memory.

    Args:
        pairs: the pairs of one corpus after the other, or their indices.
        totals: the number of pairs of each corpus.
        sizes: the number of pairs to draw from each corpus.
        seed: determines the choice.
    """
    rng = random.Random(seed)
    remaining = iter(pairs)
    for total, size in zip(totals, sizes, strict=True):
        drawn = 0
        for index, pair in enumerate(itertools.islice(remaining, total)):
            if rng.random() * (total - index) < size - drawn:
                drawn += 1
                yield pair


def train_vocabulary(
    problem: Problem, texts: Iterable[str], path: Path, in_subprocess: bool
) -> None:
    """Trains a vocabulary and writes it.

    Args:
        problem: the problem, with the size of the vocabulary, the tags of sources and
            the symbols of targets.
        texts: texts of the side or of both sides.
        path: the file to write, named as one of `vocab_files`.
        in_subprocess: trains in another process, whose memory is freed afterwards.

    Raises:
        UserError: there are too few texts, or the vocabulary is too small for them.
    """
    assert problem.vocab_size is not None  # `generate` has set it
    names = vocab_files(problem)
    symbols = problem.text_processor.symbols if path.name == names["target"] else ()
    symbols += problem.tags if path.name == names["source"] else ()
    train = functools.partial(tokenizer_class(problem.tokenizer).train, symbols=symbols)
    if not in_subprocess:
        train(texts, path, problem.vocab_size)
        return
    lines = path.with_suffix(".lines")
    with lines.open("w", encoding="utf-8") as file:
        # As JSON, since a text from a user's source may contain a newline.
        file.writelines(f"{json.dumps(text)}\n" for text in texts)
    with worker_pool(1) as pool:
        pool.submit(_train_on_file, train, lines, path, problem.vocab_size).result()
    lines.unlink()


def _train_on_file(
    train: Callable[..., None], lines: Path, path: Path, vocab_size: int
) -> None:
    with lines.open(encoding="utf-8") as file:
        train(map(json.loads, file), path, vocab_size)

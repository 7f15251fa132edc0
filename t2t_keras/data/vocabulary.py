"""Vocabularies: the size that suits a corpus, the sample, the training."""

import functools
import itertools
import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from t2t_keras.console import progress, say
from t2t_keras.data.cleaning import TEXT_FILTERS, active_filters, drop_reason
from t2t_keras.data.manifest import DataPlan, Manifest, size_in_file_name, vocab_files
from t2t_keras.data.mixture import corpora_of, sample_sizes
from t2t_keras.errors import UserError, quantity
from t2t_keras.files.atomic import Lock
from t2t_keras.problem import SIDES, Pair, Problem
from t2t_keras.processes import worker_pool
from t2t_keras.text.tokenizer import load_tokenizer, tokenizer_class

T = TypeVar("T")


def train_vocabularies(
    plan: DataPlan,
    totals: Mapping[str, int],
    draw_sample: Callable[[Sequence[int]], Iterable[Pair]],
    in_subprocess: bool,
    lock: Lock,
) -> None:
    """Trains one vocabulary for both sides, or one for each, unless the files exist.

    Args:
        plan: what is made.
        totals: the number of training pairs by corpus.
        draw_sample: draws training pairs, given their number of each corpus.
        in_subprocess: see `train_vocabulary`.
        lock: of the plan's directory.

    Raises:
        UserError: there are too few texts, the vocabulary is too small for them, or
            the directory was removed.
    """
    problem = plan.problem
    for columns in [(0, 1)] if problem.shared_vocab else [(0,), (1,)]:
        path = plan.vocabularies[SIDES[columns[0]]]
        if path.exists():
            say(f"using the vocabulary {path}")
            continue
        limit = tokenizer_class(problem.tokenizer).training_pairs
        size = min(limit, sum(totals.values()))
        sizes = sample_sizes(problem.source("train"), totals, size)
        lines = sum(sizes) * len(columns)
        say(f"training {path.name} on {quantity(lines, 'lines')}")
        with progress(path.name, "lines", lines) as advance:
            texts = _texts(problem, draw_sample(sizes), columns)
            unfinished = plan.directory / path.name
            train_vocabulary(problem, texts, unfinished, in_subprocess)
            lock.require_place()
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


def require_tags(plan: DataPlan) -> None:
    """Raises `UserError` unless each tag of the sources is a token of a vocabulary."""
    vocabulary = plan.vocabularies["source"]
    tags = set()
    for split in plan.splits:
        tags |= {corpus.tag for corpus in corpora_of(plan.problem.sources[split])}
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


# Largest number of training pairs -> tokens in the vocabulary. Each token must occur
# often enough to be learned, and the fewer pairs there are, the more words must share
# a token: Sennrich and Zhang (ACL 2019) gain with 2,000 tokens on 5,000 pairs, Gowda
# and May (EMNLP 2020) find the best results with some 8,000 on a million pairs and
# 32,000 on 4.5 million.
_SIZES = {10_000: 2_000, 100_000: 4_000, 500_000: 8_000, 2_000_000: 16_000}
_LARGEST = 32_000

# If a token occurs less often than this in the training examples, on average, most of
# the vocabulary is seen too seldom to be learned.
_FEW_OCCURRENCES = 30


def chosen_vocab_size(
    problem: Problem, data_dir: Path, measure: Callable[[Problem], tuple[int, int]]
) -> int:
    """Returns the size of the vocabulary of a problem that names none.

    It is the size of the directory's data or vocabulary, or else one that suits the
    number of training pairs, see `proposed_size`.

    Args:
        problem: the problem.
        data_dir: the directory of its data.
        measure: returns the number of training pairs, and that of the different
            characters in them.

    Raises:
        UserError: a source has a mistake.
    """
    manifest = Manifest.load(Manifest.path(data_dir, problem.data_name))
    if manifest is not None:
        return manifest.vocab_size
    size = size_in_file_name(problem, data_dir)
    if size is not None:
        return size
    pairs, characters = measure(problem)
    size = proposed_size(pairs, characters)
    if pairs:  # without any, the data are refused later
        say(
            f"vocabulary: {size:,} tokens, which suit "
            f"{quantity(pairs, 'training pairs')} with "
            f"{quantity(characters, 'different characters')}: fewer pairs show each "
            "token too seldom, more allow longer ones (--vocab_size gives another size)"
        )
    return size


def proposed_size(num_pairs: int, num_characters: int = 0) -> int:
    """Returns the size of a vocabulary that suits a corpus.

    Args:
        num_pairs: number of training pairs.
        num_characters: number of different characters in their texts. They and the
            256 bytes take at most half of the vocabulary, unless it is the largest.
    """
    for max_pairs, size in _SIZES.items():
        if num_pairs <= max_pairs and size >= 2 * (256 + num_characters):
            return size
    return _LARGEST


def vocabulary_warnings(manifest: Manifest) -> list[str]:
    """Returns a warning for each trained vocabulary that is too large for the data."""
    tokens = Counter[str]()
    sizes = {}
    for side, name in manifest.vocab_files.items():
        tokens[name] += manifest.tokens["train"][side]
        sizes[name] = manifest.vocab_sizes[side]
    warnings = []
    for name, size in sizes.items():
        warning = too_large(size, manifest.examples["train"], tokens[name])
        if warning and name not in manifest.given_vocabularies:
            warnings.append(warning)
    return warnings


def too_large(size: int, num_pairs: int, num_tokens: int) -> str | None:
    """Returns a warning if a vocabulary is too large for a corpus, else None.

    Args:
        size: number of tokens in the vocabulary.
        num_pairs: number of training pairs.
        num_tokens: number of tokens in them, on the sides that use the vocabulary.
    """
    proposed = proposed_size(num_pairs)
    occurrences = num_tokens / size
    if size <= proposed or occurrences >= _FEW_OCCURRENCES:
        return None
    return (
        f"warning: {size:,} tokens are a large vocabulary for {num_pairs:,} training "
        f"pairs: a token occurs {occurrences:.1f} times on average; try --vocab_size "
        f"{proposed}"
    )

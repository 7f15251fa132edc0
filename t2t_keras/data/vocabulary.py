"""Training the vocabulary of a problem on a sample of its training pairs."""

import functools
import json
import os
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from t2t_keras.data.workers import worker_pool
from t2t_keras.problem import Pair, Problem

Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")

_SUFFIXES = {"sentencepiece": ".spm", "t2t_subword": ".subwords"}

# Pairs that a vocabulary is trained on. SentencePiece holds them in memory: 450 MB for
# so many, less than the later stages need. tensor2tensor's trainer is slow.
_SAMPLE = {"sentencepiece": 250_000, "t2t_subword": 50_000}

# Training pairs -> tokens in the vocabulary: up to so many pairs, so many tokens. Each
# token must occur often enough to be learned, and the fewer pairs there are, the more
# a token must be shared between words: Sennrich and Zhang (ACL 2019) gain with 2,000
# tokens on 5,000 pairs, Gowda and May (EMNLP 2020) find the best results with some
# 8,000 on a million pairs and 32,000 on 4.5 million.
_SIZES = {10_000: 2_000, 100_000: 4_000, 500_000: 8_000, 2_000_000: 16_000}
_LARGEST = 32_000

# Occurrences of a token among the training examples, on average: below, most of the
# vocabulary is seen too seldom to be learned.
_FEW_OCCURRENCES = 30


def proposed_size(num_pairs: int, num_characters: int = 0) -> int:
    """Returns the size of a vocabulary that suits a corpus.

    Args:
        num_pairs: training pairs.
        num_characters: different characters in their texts. They and the 256 bytes
            take at most half of the vocabulary, unless it is the largest.
    """
    for most, size in _SIZES.items():
        if num_pairs <= most and size >= 2 * (256 + num_characters):
            return size
    return _LARGEST


def too_large(size: int, num_pairs: int, num_tokens: int) -> str | None:
    """Says that a vocabulary is too large for a corpus; None if it is not.

    Args:
        size: of the vocabulary.
        num_pairs: training pairs.
        num_tokens: tokens that they consist of, on the sides of the vocabulary.
    """
    proposed, occurrences = proposed_size(num_pairs), num_tokens / size
    if size <= proposed or occurrences >= _FEW_OCCURRENCES:
        return None
    return (
        f"warning: {size:,} tokens are a large vocabulary for {num_pairs:,} training "
        f"pairs: a token occurs {occurrences:.1f} times on average; try --vocab_size "
        f"{proposed}"
    )


def vocab_files(problem: Problem) -> dict[Side, str]:
    """Returns the file name of each side's vocabulary; the same one when shared."""
    stem, suffix = f"vocab.{problem.data_name}", _SUFFIXES[problem.tokenizer]
    if problem.shared_vocab:
        return dict.fromkeys(SIDES, f"{stem}.{problem.vocab_size}{suffix}")
    return {side: f"{stem}.{side}.{problem.vocab_size}{suffix}" for side in SIDES}


def size_of_given(problem: Problem, data_dir: Path) -> int | None:
    """Returns the size in the name of the vocabulary that stands in a directory.

    Returns:
        None if there is none, or there are several.
    """
    stem, suffix = f"vocab.{problem.data_name}", _SUFFIXES[problem.tokenizer]
    side = "" if problem.shared_vocab else r"\.(?:source|target)"
    name = re.compile(rf"{re.escape(stem)}{side}\.(\d+){re.escape(suffix)}")
    names = os.listdir(data_dir) if data_dir.is_dir() else []
    sizes = {int(match[1]) for match in map(name.fullmatch, names) if match}
    return sizes.pop() if len(sizes) == 1 else None


def sample_size(problem: Problem, num_pairs: int) -> int:
    """Returns how many of the training pairs the vocabulary is trained on."""
    return min(_SAMPLE[problem.tokenizer], num_pairs)


def draw(pairs: Iterable[Pair], total: int, size: int, seed: int) -> Iterator[Pair]:
    """Draws `size` of `total` pairs, in their order; every choice is equally likely.

    Knuth's selection sampling (The Art of Computer Programming 2, 3.4.2, algorithm S).
    As the total is known it needs no reservoir: it keeps nothing in memory.
    """
    rng = random.Random(seed)
    taken = 0
    for number, pair in enumerate(pairs):
        if rng.random() * (total - number) < size - taken:
            taken += 1
            yield pair


def train_vocabulary(
    problem: Problem, texts: Iterable[str], path: Path, own_process: bool
) -> None:
    """Trains a vocabulary and writes it.

    Args:
        problem: tells the kind, the size and, for the target's, the symbols.
        texts: lines of the side or the sides.
        path: the file, one of `vocab_files`.
        own_process: train in another process, so that the memory is given back.

    Raises:
        UserError: the texts do not suffice.
    """
    is_target = path.name == vocab_files(problem)["target"]
    symbols = problem.symbols if is_target else ()
    train = functools.partial(_TRAINERS[problem.tokenizer], symbols=symbols)
    if not own_process:
        train(texts, path, problem.vocab_size)
        return
    lines = path.with_suffix(".lines")
    with lines.open("w", encoding="utf-8") as file:
        # As JSON, for a text of a user's own source may have a newline in it.
        file.writelines(f"{json.dumps(text)}\n" for text in texts)
    with worker_pool(1) as pool:
        pool.submit(_train_on_file, train, lines, path, problem.vocab_size).result()
    lines.unlink()


def _train_on_file(
    train: Callable[..., None], lines: Path, path: Path, vocab_size: int
) -> None:
    with lines.open(encoding="utf-8") as file:
        train(map(json.loads, file), path, vocab_size)


def _sentence_piece(
    texts: Iterable[str], path: Path, vocab_size: int, symbols: Sequence[str]
) -> None:
    from t2t_keras.text.sentence_piece import train_sentence_piece

    train_sentence_piece(texts, path, vocab_size, symbols)


def _subwords(
    texts: Iterable[str], path: Path, vocab_size: int, symbols: Sequence[str]
) -> None:
    from t2t_keras.text.subword_training import train_subwords

    train_subwords(texts, path, vocab_size, symbols=symbols)


_TRAINERS = {"sentencepiece": _sentence_piece, "t2t_subword": _subwords}

"""The vocabularies of a problem: their size, their names, how they are trained."""

import functools
import itertools
import json
import os
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from t2t_keras.data.encoding import worker_pool
from t2t_keras.option import UserError
from t2t_keras.problem import Pair, Problem, TokenizerKind
from t2t_keras.text.sentence_piece import train_sentence_piece
from t2t_keras.text.subword_training import train_subwords
from t2t_keras.text.tokenizer import load_tokenizer, write_vocabulary

Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")

_SUFFIXES: dict[TokenizerKind, str] = {
    "sentencepiece": ".spm",
    "t2t_subword": ".subwords",
}
_TRAINERS: dict[str, Callable[..., None]] = {
    "sentencepiece": train_sentence_piece,
    "t2t_subword": train_subwords,
}

# Number of pairs that a vocabulary is trained on. SentencePiece holds them in memory:
# 450 MB, less than the later stages need. tensor2tensor's trainer is slow.
_SAMPLE = {"sentencepiece": 250_000, "t2t_subword": 50_000}

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


def proposed_size(num_pairs: int, num_characters: int = 0) -> int:
    """Returns the size of a vocabulary that suits a corpus.

    Args:
        num_pairs: number of training pairs.
        num_characters: number of different characters in their texts. They and the
            256 bytes take at most half of the vocabulary, unless it is the largest.
    """
    for most, size in _SIZES.items():
        if num_pairs <= most and size >= 2 * (256 + num_characters):
            return size
    return _LARGEST


def too_large(size: int, num_pairs: int, num_tokens: int) -> str | None:
    """Returns a warning if a vocabulary is too large for a corpus, else None.

    Args:
        size: number of tokens in the vocabulary.
        num_pairs: number of training pairs.
        num_tokens: number of tokens in them, on the sides that use the vocabulary.
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
    """Returns the size in the file name of the vocabulary that a directory has.

    Returns:
        None if the directory has no vocabulary of the problem, or several.
    """
    stem, suffix = f"vocab.{problem.data_name}", _SUFFIXES[problem.tokenizer]
    side = "" if problem.shared_vocab else r"\.(?:source|target)"
    name = re.compile(rf"{re.escape(stem)}{side}\.(\d+){re.escape(suffix)}")
    names = os.listdir(data_dir) if data_dir.is_dir() else []
    sizes = {int(match[1]) for match in map(name.fullmatch, names) if match}
    return sizes.pop() if len(sizes) == 1 else None


def give(problem: Problem, files: tuple[Path, Path], data_dir: Path) -> Problem:
    """Copies vocabularies into a data directory, where `generate` finds them.

    Args:
        problem: the problem to make data of.
        files: those of source and target; one file twice if they share it.
        data_dir: the data directory, which is made if absent.

    Returns:
        The problem with the kind and the size of the vocabularies.

    Raises:
        UserError: a file is no vocabulary, the two are of different kinds, or the
            directory has another vocabulary in its place.
    """
    sizes = [load_tokenizer(path).vocab_size for path in files]
    kinds = {suffix: kind for kind, suffix in _SUFFIXES.items()}
    if files[0].suffix != files[1].suffix:
        raise UserError(f"{files[0]} and {files[1]} are of different kinds")
    problem = problem.replace(
        tokenizer=kinds[files[0].suffix],
        vocab_size=max(sizes),
        shared_vocab=files[0].read_bytes() == files[1].read_bytes(),
    )
    if problem.reverse:  # the data are those of the other direction
        files = files[::-1]
    data_dir.mkdir(parents=True, exist_ok=True)
    for file, name in zip(files, vocab_files(problem).values(), strict=True):
        path = data_dir / name
        if path.exists() and path.read_bytes() != file.read_bytes():
            raise UserError(f"{path} is another vocabulary; give a new --data_dir")
        write_vocabulary(path, file.read_bytes())
    return problem


def sample_size(problem: Problem, num_pairs: int) -> int:
    """Returns the number of training pairs that the vocabulary is trained on."""
    return min(_SAMPLE.get(problem.tokenizer, 0), num_pairs)


def draw(
    pairs: Iterable[Pair], totals: Sequence[int], sizes: Sequence[int], seed: int
) -> Iterator[Pair]:
    """Draws some of the pairs of each corpus, in order; all choices are equally likely.

    This is Knuth's selection sampling (The Art of Computer Programming 2, 3.4.2,
    algorithm S). Since the totals are known, it keeps nothing in memory.

    Args:
        pairs: the pairs of one corpus after the other.
        totals: the number of pairs of each corpus.
        sizes: the number of pairs to draw from each corpus.
        seed: determines the choice.
    """
    rng = random.Random(seed)
    rest = iter(pairs)
    for total, size in zip(totals, sizes, strict=True):
        taken = 0
        for number, pair in enumerate(itertools.islice(rest, total)):
            if rng.random() * (total - number) < size - taken:
                taken += 1
                yield pair


def train_vocabulary(
    problem: Problem, texts: Iterable[str], path: Path, own_process: bool
) -> None:
    """Trains a vocabulary and writes it.

    Args:
        problem: the problem, with the kind and the size of the vocabulary, the tags of
            sources and the symbols of targets.
        texts: texts of the side or of both sides.
        path: the file to write, named as one of `vocab_files`.
        own_process: trains in another process, so that its memory is freed at the end.

    Raises:
        UserError: there are too few texts, or the vocabulary is too small for them.
    """
    assert problem.vocab_size is not None  # datagen has chosen one
    if problem.tokenizer not in _TRAINERS:
        raise UserError(
            f"a vocabulary of the kind '{problem.tokenizer}' is never trained; give "
            "that of a run by --vocab"
        )
    files = vocab_files(problem)
    symbols = problem.symbols if path.name == files["target"] else ()
    symbols += problem.tags if path.name == files["source"] else ()
    train = functools.partial(_TRAINERS[problem.tokenizer], symbols=symbols)
    if not own_process:
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

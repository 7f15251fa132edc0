"""The vocabulary files of a data directory."""

import os
import re
from pathlib import Path

from t2t_keras.data.sides import SIDES, Side
from t2t_keras.errors import UserError
from t2t_keras.problem import Problem
from t2t_keras.text.tokenizers import (
    load_tokenizer,
    tokenizer_class,
    tokenizer_classes,
    vocabulary_suffix,
)
from t2t_keras.text.vocabulary_file import write_vocabulary


def vocab_files(problem: Problem) -> dict[Side, str]:
    """Returns the file name of each side's vocabulary; the same one when shared."""
    stem = f"vocab.{problem.data_name}"
    suffix = tokenizer_class(problem.tokenizer).suffix
    if problem.shared_vocab:
        return dict.fromkeys(SIDES, f"{stem}.{problem.vocab_size}{suffix}")
    return {side: f"{stem}.{side}.{problem.vocab_size}{suffix}" for side in SIDES}


def size_in_file_name(problem: Problem, data_dir: Path) -> int | None:
    """Returns the size in the name of the vocabulary file that a directory has.

    Returns:
        None if the directory has no vocabulary of the problem, or several.
    """
    stem = f"vocab.{problem.data_name}"
    suffix = tokenizer_class(problem.tokenizer).suffix
    side = "" if problem.shared_vocab else r"\.(?:source|target)"
    name = re.compile(rf"{re.escape(stem)}{side}\.(\d+){re.escape(suffix)}")
    names = os.listdir(data_dir) if data_dir.is_dir() else []
    sizes = {int(match[1]) for match in map(name.fullmatch, names) if match}
    return sizes.pop() if len(sizes) == 1 else None


def use_vocabularies(
    problem: Problem, files: tuple[Path, Path], data_dir: Path
) -> Problem:
    """Copies vocabularies into a data directory, where `generate` finds them.

    Args:
        problem: the problem to make data of.
        files: the vocabularies of source and target; one file twice if they share it.
        data_dir: the data directory, which is made if absent.

    Returns:
        The problem with the tokenizer and the size of the vocabularies.

    Raises:
        UserError: a file is not a vocabulary, the two need different tokenizers, or
            the directory has another vocabulary in its place.
    """
    sizes = [load_tokenizer(path).vocab_size for path in files]
    suffix = vocabulary_suffix(files[0])
    if vocabulary_suffix(files[1]) != suffix:
        raise UserError(f"{files[0]} and {files[1]} are of different kinds")
    names = {cls.suffix: name for name, cls in tokenizer_classes()}
    problem = problem.replace(
        tokenizer=names[suffix],
        vocab_size=max(sizes),
        shared_vocab=files[0].read_bytes() == files[1].read_bytes(),
    )
    if problem.reverse:  # the data are of the other direction
        files = files[::-1]
    data_dir.mkdir(parents=True, exist_ok=True)
    for file, name in zip(files, vocab_files(problem).values(), strict=True):
        path = data_dir / name
        if path.exists() and path.read_bytes() != file.read_bytes():
            raise UserError(f"{path} is another vocabulary; give a new --data_dir")
        write_vocabulary(path, file.read_bytes())
    return problem

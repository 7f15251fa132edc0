"""The vocabulary files of a data directory."""

import os
import re
from pathlib import Path

from t2t_keras.data.sides import SIDES, Side
from t2t_keras.problem import Problem
from t2t_keras.text.tokenizers import tokenizer_kind


def vocab_files(problem: Problem) -> dict[Side, str]:
    """Returns the file name of each side's vocabulary; the same one when shared."""
    stem = f"vocab.{problem.data_name}"
    suffix = tokenizer_kind(problem.tokenizer).suffix
    if problem.shared_vocab:
        return dict.fromkeys(SIDES, f"{stem}.{problem.vocab_size}{suffix}")
    return {side: f"{stem}.{side}.{problem.vocab_size}{suffix}" for side in SIDES}


def size_of_given(problem: Problem, data_dir: Path) -> int | None:
    """Returns the size in the file name of the vocabulary that a directory has.

    Returns:
        None if the directory has no vocabulary of the problem, or several.
    """
    stem = f"vocab.{problem.data_name}"
    suffix = tokenizer_kind(problem.tokenizer).suffix
    side = "" if problem.shared_vocab else r"\.(?:source|target)"
    name = re.compile(rf"{re.escape(stem)}{side}\.(\d+){re.escape(suffix)}")
    names = os.listdir(data_dir) if data_dir.is_dir() else []
    sizes = {int(match[1]) for match in map(name.fullmatch, names) if match}
    return sizes.pop() if len(sizes) == 1 else None

"""A small data directory of real records, for tests that need one."""

from pathlib import Path

from t2t_keras import registry
from t2t_keras.data.datagen import generate
from t2t_keras.data.sources import ParallelFiles
from t2t_keras.problem import Problem

_NOUNS = ("dog", "cat", "house", "tree", "king", "ship", "road", "bird")
_VERBS = ("sees", "finds", "likes", "leaves", "knows")


def sentence_pairs() -> list[tuple[str, str]]:
    """320 sentences and their words in opposite order."""
    sentences = [
        f"{determiner} {subject} {verb} the {noun}"
        for determiner in ("a", "the")
        for subject in _NOUNS
        for verb in _VERBS
        for noun in _NOUNS[::2]
    ]
    return [(text, " ".join(reversed(text.split()))) for text in sentences]


def write_pairs(directory: Path) -> ParallelFiles:
    """Writes the pairs as two files."""
    for side, name in enumerate(("source.txt", "target.txt")):
        lines = [pair[side] for pair in sentence_pairs()]
        (directory / name).write_text("\n".join(lines) + "\n")
    return ParallelFiles(directory / "source.txt", directory / "target.txt")


def small_data(directory: Path, vocab_size: int = 310) -> Problem:
    """Generates data of `translate_text` in the directory; returns the problem."""
    directory.mkdir(parents=True, exist_ok=True)
    files = write_pairs(directory)
    problem = registry.problem("translate_text").replace(
        vocab_size=vocab_size, sources={"train": files, "dev": files}
    )
    generate(problem, directory, workers=1)
    return problem

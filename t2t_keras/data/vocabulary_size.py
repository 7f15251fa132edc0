"""The vocabulary size that suits a corpus."""

from collections import Counter
from pathlib import Path

from t2t_keras.data.console import say
from t2t_keras.data.manifest import Manifest
from t2t_keras.data.mixture import corpora_of
from t2t_keras.data.source_survey import survey
from t2t_keras.data.tasks import TaskRunner
from t2t_keras.data.vocabulary_files import size_in_file_name
from t2t_keras.problem import Problem

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
    problem: Problem, data_dir: Path, runner: TaskRunner | None = None
) -> int:
    """Returns the size of the vocabulary of a problem that names none.

    It is the size of the directory's data or vocabulary, or else one that suits the
    number of training pairs, see `proposed_size`.

    Args:
        problem: the problem.
        data_dir: the directory of its data.
        runner: runs tasks that read the training pairs; None: this process reads them.

    Raises:
        UserError: a source has a mistake.
    """
    manifest = Manifest.load(Manifest.path(data_dir, problem.data_name))
    if manifest is not None:
        return manifest.vocab_size
    size = size_in_file_name(problem, data_dir)
    if size is not None:
        return size
    pairs = 0
    characters = set[str]()
    if runner is not None:
        for result in survey(corpora_of(problem.source("train")), runner):
            pairs += result.pairs
            characters |= result.characters
    else:
        for source, target in problem.pairs("train"):
            pairs += 1
            characters.update(source, target)
    size = proposed_size(pairs, len(characters))
    say(
        f"vocabulary: {size:,} tokens, which suit {pairs:,} training pairs with "
        f"{len(characters):,} different characters: fewer pairs show each token too "
        "seldom, more allow longer ones (--vocab_size gives another size)"
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

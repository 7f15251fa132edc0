"""The texts of the examples in a data directory."""

import functools
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from t2t_keras.data.manifest import Manifest
from t2t_keras.problem import SIDES, Pair, Problem, Source, Split
from t2t_keras.text.tokenizer import Tokenizer, load_tokenizer


def decoded_examples(
    data_dir: Path, problem: Problem
) -> tuple[dict[str, Source], tuple[Tokenizer, Tokenizer]]:
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
    from t2t_keras.data.pipeline import read_pairs

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

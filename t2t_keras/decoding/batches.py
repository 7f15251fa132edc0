"""Batches of sequences of similar length, which threads search."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from t2t_keras.decoding.engine import Progress, Source, TokenHypothesis, TokenScores
from t2t_keras.devices import num_cores, program_failures_named
from t2t_keras.text.tokenizer import padded_rows

if TYPE_CHECKING:
    import tensorflow as tf

# On a CPU, with a thread for each: the operations of one step are too small to keep
# all cores busy.
MAX_PARALLEL_BATCHES = 4

# With few distinct widths, the device's libraries can reuse what they have prepared.
_WIDTH_MULTIPLE = 8


def padded_width(length: int) -> int:
    """Returns the width of an array with a row of this length."""
    return -(-length // _WIDTH_MULTIPLE) * _WIDTH_MULTIPLE


def batches(
    lengths: Sequence[int],
    batch_tokens: int,
    min_batches: int = 1,
    width_of: Callable[[int], int] = padded_width,
) -> list[list[int]]:
    """Groups sequences of similar length; the longest come first.

    So a batch that does not fit into memory fails at once, and estimates of the time
    left are too high rather than too low. A sequence longer than `batch_tokens` gets a
    batch by itself.

    Args:
        lengths: the lengths of the sequences.
        batch_tokens: the largest number of positions in a batch, padding included.
        min_batches: number of batches that are decoded at once; batches are made
            smaller where there would be fewer.
        width_of: maps the longest length of a batch to its width.

    Returns:
        The indices of the sequences in each batch.
    """
    widths = [width_of(length) for length in lengths]
    if min_batches > 1:
        batch_tokens = min(batch_tokens, -(-sum(widths) // min_batches))
    groups: list[list[int]] = []
    width = 0
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if not groups or (len(groups[-1]) + 1) * width > batch_tokens:
            groups.append([])
            width = widths[i]
        groups[-1].append(i)
    return groups


def batches_of_pairs(
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    batch_tokens: int,
    min_batches: int = 1,
) -> list[list[int]]:
    """Returns `batches` of pairs, by the longer of the two sequences of each pair."""
    lengths = [max(map(len, pair)) for pair in zip(sources, targets, strict=True)]
    return batches(lengths, batch_tokens, min_batches)


def padded(rows: Sequence[Sequence[int]]) -> np.ndarray:
    """Returns the rows as one int32 array, padded with PAD to a multiple of 8."""
    return padded_rows(rows, padded_width(max(map(len, rows))))


def run_pairs(
    function: Callable[[np.ndarray, np.ndarray], Sequence["tf.Tensor"]],
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    batch_tokens: int,
) -> Iterator[tuple[int, tuple[np.ndarray, ...]]]:
    """Yields the index of each pair with its rows of a function's tensors.

    Args:
        function: maps the ids of sources [B, S] and targets [B, T] to tensors.
        sources: the ids of all sources.
        targets: the ids of all targets.
        batch_tokens: see `batches`.
    """
    for batch in batches_of_pairs(sources, targets, batch_tokens):
        source = padded([sources[i] for i in batch])  # [B, S]
        target = padded([targets[i] for i in batch])  # [B, T]
        results = [tensor.numpy() for tensor in function(source, target)]
        yield from zip(batch, zip(*results, strict=True), strict=True)


def score_pairs(
    function: Callable[[np.ndarray, np.ndarray], Sequence["tf.Tensor"]],
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    batch_tokens: int,
) -> list[TokenScores]:
    """Returns the log-probabilities of pairs by a function like `score_targets`."""
    scores = [TokenScores(0.0, ())] * len(sources)
    for i, row in run_pairs(function, sources, targets, batch_tokens):
        log_prob, length, token_log_probs = row
        of_tokens = tuple(token_log_probs[:length].tolist())
        scores[i] = TokenScores(float(log_prob), of_tokens)
    return scores


def parallel_batches() -> int:
    """Returns how many batches are searched at the same time, each in a thread.

    A GPU searches one batch at a time.
    """
    import tensorflow as tf

    has_gpu = bool(tf.config.list_logical_devices("GPU"))
    return 1 if has_gpu else min(num_cores(), MAX_PARALLEL_BATCHES)


def search_in_batches(
    search_batch: Callable[[Sequence[Source]], list[list[TokenHypothesis]]],
    sources: Sequence[Source],
    batch_tokens: int,
    progress: Progress | None = None,
    width_of: Callable[[int], int] = padded_width,
) -> list[list[TokenHypothesis]]:
    """Returns the hypotheses of each source, which is searched in a batch.

    Args:
        search_batch: searches one batch.
        sources: the sources of all batches.
        batch_tokens: see `batches`.
        progress: called after each batch.
        width_of: see `batches`.
    """
    lengths = [len(source.ids) for source in sources]
    groups = batches(lengths, batch_tokens, parallel_batches(), width_of)
    grouped = [[sources[i] for i in group] for group in groups]
    results: list[list[TokenHypothesis]] = [[]] * len(sources)
    executor = ThreadPoolExecutor(parallel_batches())
    try:
        searched = executor.map(program_failures_named()(search_batch), grouped)
        for group, batch, n_best_lists in zip(groups, grouped, searched, strict=True):
            for i, hypotheses in zip(group, n_best_lists, strict=True):
                results[i] = hypotheses
            if progress is not None:
                progress(batch)
    finally:
        executor.shutdown(cancel_futures=True)
    return results

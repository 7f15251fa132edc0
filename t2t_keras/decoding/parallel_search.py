"""Searches batches of sources in threads."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import tensorflow as tf

from t2t_keras.cores import num_cores
from t2t_keras.decoding.batches import MAX_PARALLEL_BATCHES, batches, padded_width
from t2t_keras.decoding.engine import Progress, Source, TokenHypothesis
from t2t_keras.xla_cache import program_failures_named


def parallel_batches() -> int:
    """Returns how many batches are searched at the same time, each in a thread.

    A GPU searches one batch at a time.
    """
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
    grouped = []
    for group in groups:
        grouped.append([sources[i] for i in group])
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

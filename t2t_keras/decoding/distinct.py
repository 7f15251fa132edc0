"""N-best lists without duplicates: different tokens may have the same text."""

from collections.abc import Callable, Sequence

from t2t_keras.decoding.options import MAX_BEAM_SIZE
from t2t_keras.decoding.outputs import Hypothesis

_MAX_DOUBLINGS = 2  # of the beam


def replace_duplicates(
    n_best_lists: list[list[Hypothesis]],
    beam_size: int,
    search: Callable[[list[int], int], list[list[Hypothesis]]],
    max_beam_size: int = MAX_BEAM_SIZE,
) -> None:
    """Replaces duplicate outputs with the next-best ones from a wider beam.

    The best output stays the best: outputs of the wider beam that have a higher score
    are left out.

    Args:
        n_best_lists: the outputs for each input, best first; changed in place.
        beam_size: the beam size with which they were found.
        search: maps the indices of inputs, and the factor by which beam size and number
            of outputs grow, to their outputs.
        max_beam_size: the largest beam size of a search; duplicates that are left are
            removed.
    """
    sizes = [len(outputs) for outputs in n_best_lists]
    n_best_lists[:] = map(_distinct, n_best_lists)
    for doubling in range(1, _MAX_DOUBLINGS + 1):
        beam_multiplier = 2**doubling
        rows = [i for i, size in enumerate(sizes) if len(n_best_lists[i]) < size]
        if not rows or beam_size * beam_multiplier > max_beam_size:
            return
        for i, outputs in zip(rows, search(rows, beam_multiplier), strict=True):
            best = n_best_lists[i][0]
            worse = [output for output in outputs if output.score <= best.score]
            wider = _distinct([best, *worse])[: sizes[i]]
            n_best_lists[i] = max(n_best_lists[i], wider, key=len)


def _distinct(outputs: Sequence[Hypothesis]) -> list[Hypothesis]:
    """Returns the best output of each text."""
    best_of_text: dict[str, Hypothesis] = {}
    for output in outputs:
        best_of_text.setdefault(output.text, output)
    return list(best_of_text.values())

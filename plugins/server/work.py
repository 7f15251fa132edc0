"""The work of the rows of a request, by which they are limited and ordered."""

import itertools

from t2t_keras.errors import UserError

from .alternatives import NUM_ALTERNATIVES
from .limits import Limits
from .rest import Request, TooLarge

_EXTRA_LENGTH = 64  # a rough bound on how much longer than its source an output is
_PHRASE_WEIGHT = 4  # the work of a phrase's byte, in bytes of a sentence
_PHRASE_BOUNDARIES = 2  # a phrase is as much work as with this number of more bytes
# A sentence is cheap up to this work for each hypothesis of the default beam size.
_CHEAP = 400


def cheap_work(default_beam_size: int) -> int:
    """Returns the maximum work of a row that is not expensive."""
    return _CHEAP * default_beam_size


def row_works(request: Request, limits: Limits, default_beam_size: int) -> list[int]:
    """Returns the work of each row: its length times the beam size.

    The length is that of the source in bytes of UTF-8, which is at least its
    number of tokens, plus a constant, as outputs may be longer than sources, and
    plus those of its phrases, with a weight. The signature `score` searches
    nothing: the lengths of both texts are added. `alternatives` searches once for
    each word.

    Args:
        request: the request.
        limits: the limits.
        default_beam_size: the beam size of rows that have none.

    Raises:
        UserError: the beam size or a length is beyond the limit.
        TooLarge: all rows together are beyond the limit.
    """
    max_beam_size = max(limits.max_beam_size, default_beam_size)
    # Beam size, and characters and work of phrases; most rows have the same options.
    by_key: dict[int, tuple[int, int, int]] = {}
    works = []
    for key, row in zip(request.keys, request.rows, strict=True):
        if id(key) not in by_key:
            options = dict(key[1])
            glossary = itertools.chain(*options.get("glossary", ()))
            phrases = [x for x in (*glossary, *options.get("forbidden", ())) if x]
            beam = options.get("beam_size", default_beam_size)
            num_bytes = sum(len(phrase.encode()) for phrase in phrases)
            phrase_work = num_bytes + _PHRASE_BOUNDARIES * len(phrases)
            by_key[id(key)] = beam, sum(map(len, phrases)), phrase_work
        beam, characters, phrase_work = by_key[id(key)]
        longest = max(map(len, row.values()), default=0)
        if beam > max_beam_size:
            raise UserError(f"beam_size {beam} is more than {max_beam_size}")
        if longest > limits.max_characters:
            raise UserError(
                f"a sentence has more than {limits.max_characters:,} characters"
            )
        if characters > limits.max_phrase_characters:
            raise UserError(
                f"phrases have more than {limits.max_phrase_characters:,} characters"
            )
        size = sum(len(text.encode()) for text in row.values())
        size += _EXTRA_LENGTH + _PHRASE_WEIGHT * phrase_work
        works.append(_searches(request.signature, beam) * size)
    total = sum(works)
    if total > limits.max_work:
        raise TooLarge(
            f"the request has {total:,} bytes times beam size; at most "
            f"{limits.max_work:,} are allowed"
        )
    return works


def _searches(signature: str, beam_size: int) -> int:
    """Returns how many hypotheses are computed for each token of a row."""
    if signature == "score":
        return 1
    return beam_size * (NUM_ALTERNATIVES if signature == "alternatives" else 1)

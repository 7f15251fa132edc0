"""Sources of pairs.

A source is a callable that yields pairs of texts, from the beginning on every call and
always the same ones. Any function will do. A source may have further methods:

- `checksum` takes less time than a pass over the pairs;
- `read_pairs(start, stop)` yields the pairs of these indices without reading others;
- `byte_ranges` and `read_from` let several processes read it (see `ParallelFiles`).
"""

import hashlib

from t2t_keras.errors import UserError
from t2t_keras.problem import Source


def checksum(source: Source) -> str:
    """Returns the source's own `checksum()` if it has one, or else one of its texts.

    It changes whenever the source yields other pairs.

    Raises:
        UserError: the source does not yield pairs of strings.
    """
    if hasattr(source, "checksum"):
        return source.checksum()
    digest = hashlib.sha256()
    pairs = source() if callable(source) else None
    if pairs is None:
        raise UserError(
            f"a source must be a function that yields pairs: {source!r:.80}"
        )
    for pair in pairs:
        is_pair = isinstance(pair, tuple | list) and len(pair) == 2
        if not (is_pair and all(isinstance(text, str) for text in pair)):
            raise UserError(f"a source must yield pairs of strings, not {pair!r:.80}")
        digest.update(repr(pair).encode("utf-8", "surrogatepass"))
    return f"texts {digest.hexdigest()}"

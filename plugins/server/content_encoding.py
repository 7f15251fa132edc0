"""Request bodies that a client has compressed, which `Content-Encoding` names."""

import gzip
import io
import zlib

from t2t_keras.errors import UserError

from .rest import TooLarge

# RFC 9110 has two names for it; "": there is no header.
_GZIP = ("gzip", "x-gzip")
_CODINGS = ("", "identity", *_GZIP)
ACCEPTED = "gzip, identity"


class UnsupportedEncoding(Exception):
    """A body has a coding that the server does not read."""


def is_compressed(encoding: str) -> bool:
    """Returns whether a body must be decompressed.

    Args:
        encoding: the value of `Content-Encoding`; "": there is none.

    Raises:
        UnsupportedEncoding: the server does not read this coding.
    """
    coding = encoding.strip().lower()
    if coding not in _CODINGS:
        raise UnsupportedEncoding(
            f"Content-Encoding {encoding[:80]!r} is not supported; send the body with "
            "gzip, or not compressed"
        )
    return coding in _GZIP


def decompress(body: bytes, max_bytes: int) -> bytes:
    """Returns the content of a body in gzip.

    Args:
        body: the compressed bytes.
        max_bytes: maximum bytes of the content; only one more is decompressed.

    Raises:
        TooLarge: there are more bytes.
        UserError: the body is damaged or incomplete.
    """
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(body)) as file:
            content = file.read(max_bytes + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"the body is not gzip: {error}") from None
    if len(content) > max_bytes:
        raise TooLarge(f"the decompressed body has more than {max_bytes:,} bytes")
    return content

"""Escapes of the characters that SentencePiece would not give back."""

from t2t_keras.text.bpe_dropout import SPACE

# SentencePiece writes a space as U+2581 and decodes that character as a space. So in
# the texts that it encodes this character is escaped, as is the escape character
# itself. Decoding undoes the escapes in reverse order.
ESCAPES = (("\x1b", "\x1b0"), (SPACE, "\x1b1"))
# The piece for the newline's byte, which does not occur in a line of text.
NEWLINE_PIECE = "<0x0A>"


def escape(text: str) -> str:
    """Escapes U+2581 in a text."""
    for character, escape in ESCAPES:
        text = text.replace(character, escape)
    return text


def unescape(text: str) -> str:
    """Undoes `escape`."""
    for character, replacement in reversed(ESCAPES):
        text = text.replace(replacement, character)
    return text

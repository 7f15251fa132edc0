"""BPE-dropout (Provilkov et al., ACL 2020): the same text in other pieces every time.

SentencePiece can do it, too, but its random numbers are others in every process, and
the files that datagen writes depend on the seed alone.
"""

import random
import re
from collections.abc import Sequence

import sentencepiece

SPACE = "\u2581"  # SentencePiece's, which begins a word
_WORDS = re.compile(f"{SPACE}[^{SPACE}]*")


class BpeDropout:
    """Byte-pair encoding that overlooks some of the merges.

    A word is split into its characters. Again and again, of all two neighbours that
    make a piece, each is overlooked with a probability, and of the others the two that
    come first in the vocabulary are merged; until there are none.

    Args:
        model: a vocabulary of byte-pair encoding.
    """

    def __init__(self, model: sentencepiece.SentencePieceProcessor) -> None:
        pieces = model.id_to_piece(list(range(len(model))))
        # In a vocabulary come first the special pieces, then the symbols that the user
        # defined, then the bytes, then what merges make, in the order of the merges.
        byte_ids = [i for i in range(len(pieces)) if model.is_byte(i)]
        self._ids = {
            piece: i
            for i, piece in enumerate(pieces)
            if not (model.is_control(i) or model.is_unknown(i))
        }
        self._ranks = {p: i for i, p in enumerate(pieces[byte_ids[-1] + 1 :])}
        self._symbols = {p for p in pieces[: byte_ids[0]] if p in self._ids}
        self._symbol_lengths = sorted(set(map(len, self._symbols)), reverse=True)

    def encode(self, text: str, dropout: float, generator: random.Random) -> list[int]:
        """Returns the ids of a text, without EOS.

        Args:
            text: with a `SPACE` before every word.
            dropout: the probability; 0 gives what SentencePiece gives.
            generator: of the random numbers.
        """
        ids: list[int] = []
        for word in _WORDS.findall(text):
            for part in self._parts(word, dropout, generator):
                if part in self._ids:
                    ids.append(self._ids[part])
                else:
                    ids += [self._ids[f"<0x{byte:02X}>"] for byte in part.encode()]
        return ids

    def _parts(
        self, word: str, dropout: float, generator: random.Random
    ) -> Sequence[str]:
        """Returns the pieces of a word; a character may be none."""
        for length in self._symbol_lengths:  # the longest symbol counts
            if word[:length] in self._symbols:
                rest = list(word[length:])
                return [word[:length], *self._merged(rest, dropout, generator)]
        return self._merged(list(word), dropout, generator)

    def _merged(
        self, parts: list[str], dropout: float, generator: random.Random
    ) -> list[str]:
        """Merges the parts of a word."""
        while True:
            first, best = len(self._ranks), -1
            for i in range(len(parts) - 1):
                rank = self._ranks.get(parts[i] + parts[i + 1])
                # Whether a later one is overlooked does not matter.
                if rank is None or rank >= first or generator.random() < dropout:
                    continue
                first, best = rank, i
            if best < 0:
                return parts
            parts[best : best + 2] = [parts[best] + parts[best + 1]]

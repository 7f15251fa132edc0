"""BPE-dropout (Provilkov et al., ACL 2020), which splits a text differently each time.

SentencePiece has it as well, but its random numbers differ in every process. Here they
depend on the seed alone, so that a training can be repeated.
"""

import random
import re

import sentencepiece

SPACE = "\u2581"  # SentencePiece's space, with which a word begins
_WORDS = re.compile(f"{SPACE}[^{SPACE}]*")


class BpeDropout:
    """Byte-pair encoding that skips merges at random.

    A word is split into its characters. Then pairs of neighbours that make a piece are
    merged, one at a time: each pair is skipped with a given probability, and of the
    others the one that comes first in the vocabulary is merged. It ends when no pair is
    left.

    Args:
        model: a SentencePiece model for byte-pair encoding.
    """

    def __init__(self, model: sentencepiece.SentencePieceProcessor) -> None:
        pieces = model.id_to_piece(list(range(len(model))))
        # The vocabulary has first the special pieces, then the user-defined symbols,
        # then the bytes, then the merged pieces in the order of the merges.
        byte_ids = [i for i in range(len(pieces)) if model.is_byte(i)]
        self._ids = {
            piece: i
            for i, piece in enumerate(pieces)
            if not (model.is_control(i) or model.is_unknown(i))
        }
        self._ranks = {p: i for i, p in enumerate(pieces[byte_ids[-1] + 1 :])}
        symbols = sorted(
            self._ids.keys() & pieces[: byte_ids[0]], key=len, reverse=True
        )
        self._symbol = re.compile("|".join(map(re.escape, symbols)))  # the longest wins

    def encode(self, text: str, dropout: float, generator: random.Random) -> list[int]:
        """Returns the ids of a text, without EOS.

        Args:
            text: the text, with a `SPACE` before every word.
            dropout: the probability of skipping a merge; with 0 the result is
                SentencePiece's.
            generator: the random number generator.
        """
        ids: list[int] = []
        for word in _WORDS.findall(text):
            match = self._symbol.match(word)  # "" if there are no symbols
            symbol_end = match.end() if match else 0
            parts = self._merged(list(word[symbol_end:]), dropout, generator)
            for part in filter(None, [word[:symbol_end], *parts]):
                if part in self._ids:
                    ids.append(self._ids[part])
                else:
                    ids += [self._ids[f"<0x{byte:02X}>"] for byte in part.encode()]
        return ids

    def _merged(
        self, parts: list[str], dropout: float, generator: random.Random
    ) -> list[str]:
        """Merges the parts of a word."""
        while True:
            best_rank = len(self._ranks)
            best = -1
            for i in range(len(parts) - 1):
                rank = self._ranks.get(parts[i] + parts[i + 1])
                # No random number is drawn for a pair that comes later anyway.
                if rank is None or rank >= best_rank or generator.random() < dropout:
                    continue
                best_rank = rank
                best = i
            if best < 0:
                return parts
            parts[best : best + 2] = [parts[best] + parts[best + 1]]

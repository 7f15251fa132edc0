"""Marian's vocabularies: a SentencePiece model and a list of tokens.

A Marian model often has one list of tokens for both languages (`vocab.yml`) and a
SentencePiece model for each (`source.spm`, `target.spm`). `interop.marian_vocabulary`
writes both into one file with the suffix `.marian`: a SentencePiece model whose pieces
are the tokens, in the order of their ids.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import sentencepiece

from t2t_keras.option import UserError
from t2t_keras.text.tokenizer import (
    EOS,
    PAD,
    UNK,
    read_vocabulary,
    text_ids,
    write_vocabulary,
)

if TYPE_CHECKING:
    from .marian_graph import MarianGraph

# The control piece after the last token. The pieces behind it are not tokens of the
# model: texts are split into them, too, and then they become UNK.
END_OF_TOKENS = "<end-of-tokens>"


class MarianTokenizer:
    """A tokenizer for models that Marian has trained.

    Unlike `SentencePieceTokenizer` it changes texts: it normalizes them as the
    SentencePiece model says, and characters that it does not know become UNK.

    Args:
        path: the `.marian` file.

    Raises:
        UserError: the file is absent, or `t2t import` has not written it.
    """

    def __init__(self, path: Path) -> None:
        self._processor = sentencepiece.SentencePieceProcessor()
        model, content = self._processor, read_vocabulary(path)
        try:
            model.load_from_serialized_proto(content)
            is_ours = (model.pad_id(), model.eos_id(), model.unk_id()) == (
                PAD,
                EOS,
                UNK,
            )
        except RuntimeError:
            is_ours = False
        if not is_ours:
            raise UserError(f"{path} is not a vocabulary that `t2t import` has written")
        end = model.piece_to_id(END_OF_TOKENS)  # UNK if there is no such piece
        self._vocab_size = len(model) if end == UNK else end

    @property
    def vocab_size(self) -> int:
        """Number of tokens."""
        return self._vocab_size

    @property
    def pieces(self) -> list[str]:
        """The tokens, in the order of their ids."""
        return self._processor.id_to_piece(list(range(self._vocab_size)))

    def token_bytes(self) -> list[bytes]:
        """Returns what each token adds to a text, which begins with a space."""
        return [piece.replace("▁", " ").encode() for piece in self.pieces]

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, EOS last."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encodes every text as `encode` does, in one call of the library."""
        rows = self._processor.encode(list(texts), add_eos=True, num_threads=1)
        return [[i if i < self._vocab_size else UNK for i in row] for row in rows]

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of the ids before the first EOS, with " ⁇ " for UNK."""
        return self._processor.decode(text_ids(ids, self._vocab_size)).strip(" ")

    def graph(self) -> "MarianGraph":
        """Returns this tokenizer as TensorFlow operations."""
        from .marian_graph import MarianGraph

        model = self._processor.serialized_model_proto()
        return MarianGraph(model, self._vocab_size)

    def save(self, path: Path) -> None:
        """Writes the file."""
        write_vocabulary(path, self._processor.serialized_model_proto())

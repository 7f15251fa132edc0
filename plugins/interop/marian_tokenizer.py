"""The tokenizer of models that Marian has trained."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import sentencepiece

from t2t_keras.errors import UserError
from t2t_keras.text.vocabulary import (
    EOS,
    PAD,
    UNK,
    read_vocabulary,
    text_ids,
    write_vocabulary,
)

from .marian_vocabulary import END_OF_TOKENS

if TYPE_CHECKING:
    from .marian_graph import MarianGraph


class MarianTokenizer:
    """A tokenizer for models that Marian has trained.

    Unlike `SentencePieceTokenizer` it changes texts: it normalizes them as the
    SentencePiece model demands, and unknown characters become UNK.

    Args:
        path: the `.marian` file, which `marian_vocabulary` describes.

    Raises:
        UserError: the file is missing, or `t2t import` has not written it.
    """

    suffix: ClassVar[str] = ".marian"
    training_pairs: ClassVar[int] = 0

    def __init__(self, path: Path) -> None:
        content = read_vocabulary(path)
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.load_from_serialized_proto(content)
            is_valid = (
                self._processor.pad_id() == PAD
                and self._processor.eos_id() == EOS
                and self._processor.unk_id() == UNK
            )
        except RuntimeError:
            is_valid = False
        if not is_valid:
            raise UserError(f"{path} is not a vocabulary that `t2t import` has written")
        # SentencePiece returns UNK for a piece that does not exist.
        end_id = self._processor.piece_to_id(END_OF_TOKENS)
        self._vocab_size = len(self._processor) if end_id == UNK else end_id

    @staticmethod
    def train(
        texts: Iterable[str], path: Path, vocab_size: int, symbols: Sequence[str] = ()
    ) -> None:
        """Raises `UserError`: only Marian itself trains these vocabularies."""
        raise UserError(
            "a vocabulary of Marian cannot be trained; give the vocabulary of a run by "
            "--vocab"
        )

    @property
    def vocab_size(self) -> int:
        """Number of tokens."""
        return self._vocab_size

    @property
    def pieces(self) -> list[str]:
        """The tokens, in the order of their ids."""
        return self._processor.id_to_piece(list(range(self._vocab_size)))

    def token_bytes(self) -> list[bytes]:
        """Returns what each token adds to a text; a text begins with a space."""
        return [piece.replace("▁", " ").encode() for piece in self.pieces]

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, which end with EOS."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encodes all texts in one call of the library."""
        rows = self._processor.encode(list(texts), add_eos=True, num_threads=1)
        for row in rows:
            row[:] = (i if i < self._vocab_size else UNK for i in row)
        return rows

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of the ids before the first EOS, with " ⁇ " for UNK."""
        return self._processor.decode(text_ids(ids, self._vocab_size)).strip(" ")

    def graph(self) -> "MarianGraph":
        """Returns this tokenizer as TensorFlow operations."""
        from .marian_graph import MarianGraph

        model = self._processor.serialized_model_proto()
        return MarianGraph(model, self._vocab_size)

    def save(self, path: Path) -> None:
        """Writes the vocabulary file."""
        write_vocabulary(path, self._processor.serialized_model_proto())

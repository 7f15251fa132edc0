"""Marian's vocabularies, and the `.marian` files that hold them in our order.

A Marian model often has one list of tokens for both languages (`vocab.yml`), and a
SentencePiece model for each language (`source.spm`, `target.spm`). The ids of its
tokens differ from ours: EOS is 0, and padding is missing or, in the files of Hugging
Face transformers, comes last. `TokenList` puts the tokens into our order, and
`marian_file` joins the list and a SentencePiece model: the result is a SentencePiece
model whose pieces are the tokens, in the order of our ids.
"""

import io
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
import sentencepiece

from t2t_keras.errors import UserError
from t2t_keras.files.text_files import decoded_lines
from t2t_keras.text.vocabulary import (
    EOS,
    PAD,
    UNK,
    read_vocabulary,
    text_ids,
    write_vocabulary,
)

if TYPE_CHECKING:
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

    from ..tokenizer_graphs import MarianGraph


PAD_TOKEN = "<pad>"
EOS_TOKEN = "</s>"
UNK_TOKEN = "<unk>"
_SPECIAL_TOKENS = (PAD_TOKEN, EOS_TOKEN, UNK_TOKEN)

# `TokenList.original_ids` has this value for padding if the model that was read lacks
# padding.
NO_ID = -1

# This control piece follows the last token. The pieces after it are not tokens of the
# model: SentencePiece needs them to split texts as in training.
END_OF_TOKENS = "<end-of-tokens>"

# A token that names the target language comes first in a source: ">>fra<< Hello."
_LANGUAGE_TOKEN = re.compile(r">>.+<<")

# The value of sentencepiece's `TrainerSpec.ModelType.UNIGRAM`.
_UNIGRAM = 1


class TokenList(NamedTuple):
    """The tokens of a vocabulary in the order of our ids: padding, EOS, unknown, ...

    Attributes:
        tokens: the tokens.
        original_ids: their ids in the model that was read, int64 [V]; see `NO_ID`.
    """

    tokens: list[str]
    original_ids: np.ndarray

    @classmethod
    def from_tokens(cls, tokens: Sequence[str], path: Path) -> "TokenList":
        """Puts tokens into our order.

        Args:
            tokens: the tokens in the order of their ids in the model that is read.
            path: the file that they come from, for messages.

        Raises:
            UserError: EOS or the unknown token is missing, or a token occurs twice.
        """
        ids: dict[str, int] = {}
        for token_id, token in enumerate(tokens):
            if ids.setdefault(token, token_id) != token_id:
                raise UserError(f"{path} has the token '{token}' twice")
        for token in (EOS_TOKEN, UNK_TOKEN):
            if token not in ids:
                raise UserError(f"{path} has no {token}, which every Marian model has")
        ordered = list(_SPECIAL_TOKENS)
        ordered += [token for token in tokens if token not in _SPECIAL_TOKENS]
        original_ids = [ids.get(token, NO_ID) for token in ordered]
        return cls(ordered, np.array(original_ids, np.int64))


def read_tokens(path: Path) -> TokenList:
    """Reads `vocab.yml`, `vocab.json`, or a text file with one token in each line.

    Raises:
        UserError: the file is not such a vocabulary.
    """
    content = read_vocabulary(path)
    if path.suffix not in (".yml", ".yaml", ".json"):
        lines = decoded_lines(io.BytesIO(content), str(path))
        return TokenList.from_tokens(list(lines), path)
    text = content.decode("utf-8-sig", "replace")
    try:
        ids = json.loads(text) if path.suffix == ".json" else _parse_yaml(text)
        if not isinstance(ids, dict):
            raise ValueError("it does not map tokens to ids")
        entries = sorted((int(token_id), token) for token, token_id in ids.items())
        tokens: list[str] = []
        for token_id, token in entries:
            if token_id != len(tokens):
                raise ValueError("its ids are not 0, 1, 2 ...")
            tokens.append(token)
    except (ValueError, TypeError, RecursionError) as error:
        raise UserError(f"{path} is not a Marian vocabulary: {error}") from None
    return TokenList.from_tokens(tokens, path)


def _parse_yaml(text: str) -> object:
    """Parses YAML with all scalars as strings; raises ValueError if it is invalid."""
    from yaml import CBaseLoader, YAMLError, load

    # This loader leaves the tokens `no`, `null` and `1` as they are.
    try:
        return load(text, CBaseLoader)
    except YAMLError as error:
        raise ValueError(str(error).replace("\n", " ")) from None


def read_sentence_piece(path: Path) -> "ModelProto":
    """Reads a SentencePiece model.

    Raises:
        UserError: the file is not a SentencePiece model.
    """
    from google.protobuf.message import DecodeError
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

    try:
        model = ModelProto.FromString(read_vocabulary(path))
    except DecodeError:
        model = ModelProto()
    if not model.pieces:
        raise UserError(f"{path} is not a SentencePiece model")
    return model


def marian_file(model: "ModelProto", tokens: Sequence[str], path: Path) -> bytes:
    """Returns the content of a `.marian` file.

    The SentencePiece model splits texts as before: it does not use tokens that it
    lacks, such as words of the other language. A token that names a language
    (`>>fra<<`) is always one token.

    Args:
        model: splits the texts of one language.
        tokens: the tokens of a `TokenList`.
        path: the model's file, for messages.

    Raises:
        UserError: the list has tokens that a byte-pair model lacks.
    """
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

    piece_types = ModelProto.SentencePiece
    pieces = {piece.piece: piece for piece in model.pieces}
    result = ModelProto()
    result.CopyFrom(model)
    del result.pieces[:]
    result.pieces.add(piece=PAD_TOKEN, score=0.0, type=piece_types.CONTROL)
    result.pieces.add(piece=EOS_TOKEN, score=0.0, type=piece_types.CONTROL)
    result.pieces.add(piece=UNK_TOKEN, score=0.0, type=piece_types.UNKNOWN)
    listed = {*tokens, END_OF_TOKENS}
    for token in tokens[len(_SPECIAL_TOKENS) :]:
        if token in pieces:
            result.pieces.append(pieces[token])
        elif _LANGUAGE_TOKEN.fullmatch(token):
            # Words begin with a space.
            piece = f"▁{token}"
            # A model that was exported from here already has this piece.
            listed.add(piece)
            result.pieces.add(piece=piece, score=0.0, type=piece_types.USER_DEFINED)
        elif model.trainer_spec.model_type == _UNIGRAM:
            result.pieces.add(piece=token, score=0.0, type=piece_types.UNUSED)
        else:
            raise UserError(
                f"{path} is not a unigram model, and the list of tokens has tokens "
                f"that are not its pieces, such as '{token}', which would change how "
                "it splits texts"
            )
    unlisted = [piece for piece in model.pieces if piece.piece not in listed]
    special_types = (piece_types.CONTROL, piece_types.UNKNOWN)
    if any(piece.type not in special_types for piece in unlisted):
        result.pieces.add(piece=END_OF_TOKENS, score=0.0, type=piece_types.CONTROL)
        result.pieces.extend(unlisted)
    spec = result.trainer_spec
    spec.bos_id = -1
    spec.pad_id = PAD
    spec.eos_id = EOS
    spec.unk_id = UNK
    spec.pad_piece = PAD_TOKEN
    spec.eos_piece = EOS_TOKEN
    spec.unk_piece = UNK_TOKEN
    return result.SerializeToString(deterministic=True)


def token_from_piece(piece: str) -> str:
    """Returns the token for which `marian_file` wrote a piece."""
    token = piece.removeprefix("▁")
    return token if _LANGUAGE_TOKEN.fullmatch(token) else piece


class MarianTokenizer:
    """A tokenizer for models that Marian has trained.

    Unlike `SentencePieceTokenizer` it changes texts: it normalizes them as the
    SentencePiece model demands. Characters that this model does not know are one piece,
    which the list of tokens may have from the other language, as "é" of a French name
    in an English text. Other pieces become UNK.

    Args:
        path: the `.marian` file, which this module describes.

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
        # A text does not contain special tokens, whatever it looks like.
        self._ids = {token: i for i, token in enumerate(self.pieces) if i > UNK}

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
        texts = [piece.replace("▁", " ").encode() for piece in self.pieces]
        texts[UNK] = b""
        return texts

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, which end with EOS."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encodes all texts in one call of the library."""
        rows = self._processor.encode(list(texts), out_type=str, num_threads=1)
        return [[*(self._ids.get(piece, UNK) for piece in row), EOS] for row in rows]

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of the ids before the first EOS; UNK adds nothing.

        This is `skip_special_tokens` of transformers.
        """
        tokens = [i for i in text_ids(ids, self._vocab_size) if i != UNK]
        return self._processor.decode(tokens).strip(" ")

    def graph(self) -> "MarianGraph":
        """Returns this tokenizer as TensorFlow operations."""
        from ..tokenizer_graphs import MarianGraph

        return MarianGraph(self._processor.serialized_model_proto(), self.pieces)

    def save(self, path: Path) -> None:
        """Writes the vocabulary file."""
        write_vocabulary(path, self._processor.serialized_model_proto())

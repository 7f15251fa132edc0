"""Vocabularies of Marian models: lists of tokens, and SentencePiece models.

Marian's tokens have other ids than ours: it has no padding (in Hugging Face's form it
comes last), and EOS is 0. `TokenList` permutes them, and `with_tokens` writes a
SentencePiece model whose pieces have the new ids.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from t2t_keras.option import UserError
from t2t_keras.text.tokenizer import read_vocabulary

from .marian import END_OF_TOKENS

if TYPE_CHECKING:
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

EOS_TOKEN, UNK_TOKEN, PAD_TOKEN = "</s>", "<unk>", "<pad>"
NO_ROW = -1
_LANGUAGE = re.compile(r">>.+<<")  # names the target's language: ">>fra<< Hello."


class TokenList(NamedTuple):
    """The tokens of a vocabulary in the order of our ids: padding, EOS, unknown, ...

    Attributes:
        tokens: the tokens.
        rows: their ids in the model that was read, int64 [V]; `NO_ROW` for padding if
            that model has none.
    """

    tokens: list[str]
    rows: np.ndarray

    @classmethod
    def of(cls, tokens: Sequence[str], path: Path) -> "TokenList":
        """Returns the list.

        Args:
            tokens: in the order of their ids in the model that was read.
            path: where they come from, for messages.

        Raises:
            UserError: EOS or the unknown token is missing, or a token occurs twice.
        """
        ids: dict[str, int] = {}
        for i, token in enumerate(tokens):
            if ids.setdefault(token, i) != i:
                raise UserError(f"{path} has the token '{token}' twice")
        for token in (EOS_TOKEN, UNK_TOKEN):
            if token not in ids:
                raise UserError(f"{path} has no {token}, which every Marian model has")
        special = (PAD_TOKEN, EOS_TOKEN, UNK_TOKEN)
        others = [token for token in tokens if token not in special]
        ours = [*special, *others]
        rows = [ids.get(token, NO_ROW) for token in ours]
        return cls(ours, np.array(rows, np.int64))


def read_tokens(path: Path) -> TokenList:
    """Reads `vocab.yml`, `vocab.json`, or a text file with one token in each line.

    Raises:
        UserError: the file is not such a vocabulary.
    """
    text = read_vocabulary(path).decode("utf-8", "replace")
    if path.suffix not in (".yml", ".yaml", ".json"):
        lines = text.removesuffix("\n").split("\n")
        return TokenList.of([line.removesuffix("\r") for line in lines], path)
    try:
        if path.suffix == ".json":
            ids = json.loads(text)
        else:
            from yaml import CBaseLoader, YAMLError, load

            # It leaves scalars strings, so that `no`, `null` and `1` stay tokens.
            try:
                ids = load(text, CBaseLoader)
            except YAMLError as error:
                raise ValueError(str(error).replace("\n", " ")) from None
        if not isinstance(ids, dict):
            raise ValueError("it is no mapping of tokens to ids")
        numbered = sorted((int(number), token) for token, number in ids.items())
        if [number for number, _ in numbered] != list(range(len(numbered))):
            raise ValueError("its ids are not 0, 1, 2 ...")
    except (ValueError, TypeError) as error:
        raise UserError(f"{path} is not a vocabulary of Marian: {error}") from None
    return TokenList.of([token for _, token in numbered], path)


def read_model(path: Path) -> "ModelProto":
    """Reads a SentencePiece model.

    Raises:
        UserError: the file is not one.
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


def tokens_of(model: "ModelProto", path: Path) -> TokenList:
    """Returns the tokens of a model that Marian uses without a list (`vocab.spm`).

    Raises:
        UserError: as `TokenList.of`.
    """
    return TokenList.of([piece.piece for piece in model.pieces], path)


def _piece_of(language: str) -> str:
    """Returns the piece for a token that names a language: words begin with a space."""
    return f"▁{language}"


def token_of(piece: str) -> str:
    """Returns the token for which `with_tokens` has written a piece."""
    token = piece.removeprefix("▁")
    return token if piece == _piece_of(token) and _LANGUAGE.fullmatch(token) else piece


def with_tokens(model: "ModelProto", tokens: Sequence[str], path: Path) -> bytes:
    """Returns the content of a `.marian` file, see `text.marian`.

    Tokens that the SentencePiece model does not have, such as those of the other
    language, never occur in its encodings. Those that name a language (`>>fra<<`) are
    always one token.

    Args:
        model: splits the texts of one language.
        tokens: of a `TokenList`.
        path: the model's file, for messages.

    Raises:
        UserError: it is a model of byte-pair encoding, and `tokens` has others.
    """
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

    kinds = ModelProto.SentencePiece
    known = {piece.piece: piece for piece in model.pieces}
    added = [token for token in tokens[3:] if token not in known]
    languages = {token for token in added if _LANGUAGE.fullmatch(token)}
    others = [token for token in added if token not in languages]
    if others and model.trainer_spec.model_type != 1:
        raise UserError(
            f"{path} is not a unigram model, and the list of tokens has others than "
            f"its pieces, such as '{others[0]}', which would change how it splits texts"
        )
    result = ModelProto()
    result.CopyFrom(model)
    del result.pieces[:]

    def add(piece: str, score: float, kind: int) -> None:
        result.pieces.add(piece=piece, score=score, type=kind)

    add(PAD_TOKEN, 0.0, kinds.CONTROL)
    add(EOS_TOKEN, 0.0, kinds.CONTROL)
    add(UNK_TOKEN, 0.0, kinds.UNKNOWN)
    for token in tokens[3:]:
        if token in languages:
            add(_piece_of(token), 0.0, kinds.USER_DEFINED)
        elif token in known:
            result.pieces.append(known[token])
        else:
            add(token, 0.0, kinds.UNUSED)
    # The last two are in a model that was written here and exported.
    listed = {*tokens, END_OF_TOKENS, *map(_piece_of, languages)}
    behind = [piece for piece in model.pieces if piece.piece not in listed]
    if any(piece.type not in (kinds.CONTROL, kinds.UNKNOWN) for piece in behind):
        add(END_OF_TOKENS, 0.0, kinds.CONTROL)
        result.pieces.extend(behind)
    spec = result.trainer_spec
    spec.pad_id, spec.eos_id, spec.unk_id, spec.bos_id = 0, 1, 2, -1
    spec.pad_piece, spec.eos_piece, spec.unk_piece = PAD_TOKEN, EOS_TOKEN, UNK_TOKEN
    return result.SerializeToString(deterministic=True)

"""What Marian models have in both forms: vocabularies and the parts of weights.

A model often has one list of tokens for both languages (`vocab.yml`) and a
SentencePiece model for each (`source.spm`, `target.spm`). Its tokens have other ids
than ours: it has no padding (in Hugging Face's form it comes last), and EOS is 0.
`TokenList` permutes them, and `with_tokens` writes both into one file with the suffix
`.marian`, which `MarianTokenizer` reads: a SentencePiece model whose pieces are the
tokens, in the order of our ids.

The parts of layer i of a stack are, with kernels [in, out]:

    encoder/layer_0/self_attention/{query,key,value,output}/{kernel,bias}
    encoder/layer_0/feed_forward/{inner,outer}/{kernel,bias}
    encoder/layer_0/{self_attention,feed_forward}_residual/norm/{gamma,beta}
    encoder/norm/{gamma,beta}                                   with norm "pre"

and likewise for the decoder, which also has `cross_attention`. Our names are these, but
kernels of several projections stand side by side in one.
"""

import dataclasses
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import sentencepiece

from t2t_keras.data.text_files import decoded_lines
from t2t_keras.errors import UserError
from t2t_keras.hparam import HParams
from t2t_keras.text.tokenizer import EOS, PAD, UNK, text_ids
from t2t_keras.text.vocabulary_file import read_vocabulary, write_vocabulary

from .models import ExtendedHParams

if TYPE_CHECKING:
    from sentencepiece.sentencepiece_model_pb2 import ModelProto

    from .marian_graph import MarianGraph

EOS_TOKEN, UNK_TOKEN, PAD_TOKEN = "</s>", "<unk>", "<pad>"
NO_ROW = -1
_LANGUAGE = re.compile(r">>.+<<")  # names the target's language: ">>fra<< Hello."

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

    suffix: ClassVar[str] = ".marian"
    training_pairs: ClassVar[int] = 0

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

    @staticmethod
    def train(
        texts: Iterable[str], path: Path, vocab_size: int, symbols: Sequence[str] = ()
    ) -> None:
        """Raises `UserError`: only Marian's own program trains them."""
        raise UserError(
            "a vocabulary of the kind 'marian' is never trained; give the vocabulary "
            "of a run by --vocab"
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
    content = read_vocabulary(path)
    if path.suffix not in (".yml", ".yaml", ".json"):
        return TokenList.of([*decoded_lines(io.BytesIO(content), str(path))], path)
    text = content.decode("utf-8-sig", "replace")
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
    except (ValueError, TypeError, RecursionError) as error:
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
    """Returns the content of a `.marian` file.

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


# The bias of padding where a model has none: its probability is 0 in float32, and label
# smoothing, which uses the mean of all logits, hardly changes.
NO_PADDING_BIAS = -100.0

# Sub-layer -> our projections, and the parts that stand side by side in them.
_PROJECTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "self_attention": {
        "query_key_value": ("query", "key", "value"),
        "output": ("output",),
    },
    "cross_attention": {
        "query": ("query",),
        "key_value": ("key", "value"),
        "output": ("output",),
    },
    "feed_forward": {"inner": ("inner",), "outer": ("outer",)},
}


@dataclasses.dataclass(frozen=True)
class MarianModel:
    """A Marian model in our terms.

    Attributes:
        hparams: the hyper-parameters.
        weights: the weights by their names in our checkpoints (`runs.checkpoint`).
        vocabularies: the contents of the `.marian` files of source and target.
        took: what was taken, by kind.
        left_out: what was not.
        check: what the user should check.
        options: the options of decoding with which its program translates.
    """

    hparams: HParams
    weights: dict[str, np.ndarray]
    vocabularies: tuple[bytes, bytes]
    took: dict[str, Any]
    left_out: list[str]
    check: list[str]
    options: dict[str, Any] = dataclasses.field(default_factory=dict)


class Tensors:
    """The tensors of a model's file, which are to be read once each.

    Args:
        path: the file, for messages.
        arrays: the tensors by name.
        kind: what the format calls them, "variable" or "tensor".
        settings: what describes the model, for messages.
    """

    def __init__(
        self, path: Path, arrays: Mapping[str, np.ndarray], kind: str, settings: str
    ) -> None:
        self.path = path
        self._arrays = dict(arrays)
        self._kind = kind
        self._settings = settings

    def has(self, name: str) -> bool:
        """Returns whether there is a tensor that has not been read."""
        return name in self._arrays

    def read(self, name: str) -> np.ndarray:
        """Returns a tensor as float32.

        Raises:
            UserError: there is no such tensor, or it has a value that is not finite.
        """
        if name not in self._arrays:
            raise UserError(
                f"{self.path} has no {self._kind} {name}, which a model of its "
                f"{self._settings} has"
            )
        tensor = self._arrays.pop(name).astype(np.float32)
        if not np.isfinite(tensor).all():
            raise UserError(
                f"{self.path}: the {self._kind} {name} has values that are not finite"
            )
        return tensor

    def read_all(
        self,
        hparams: HParams,
        embeddings: Mapping[str, np.ndarray],
        name_of: Callable[[str], str],
        transposed: bool = False,
    ) -> tuple[ExtendedHParams, dict[str, np.ndarray]]:
        """Reads the weights of the layers, after which nothing may be left.

        Args:
            hparams: the hyper-parameters, but for `share_embeddings`.
            embeddings: what the function `embeddings` returns.
            name_of: the format's name of a part, see `layer_weights`.
            transposed: whether its kernels are [out, in].

        Returns:
            The hyper-parameters, and all weights by their names in our checkpoints.

        Raises:
            UserError: a tensor is missing, has another shape than the settings demand,
                or is one too many.
        """
        is_shared = "softmax/table" not in embeddings
        hparams = ExtendedHParams.of(hparams, share_embeddings=is_shared)
        weights = dict(embeddings)
        for name, table in weights.items():
            if name != "output_bias" and table.shape[1:] != (hparams.d_model,):
                raise UserError(
                    f"{self.path}: the embeddings have the shape {list(table.shape)}, "
                    f"and by its {self._settings} {hparams.d_model} columns"
                )
        for name, parts in layer_weights(hparams):
            weights[name] = np.concatenate(
                [
                    self._part(part, hparams, name_of(part), transposed)
                    for part in parts
                ],
                axis=-1,
            )
        if self._arrays:
            raise UserError(
                f"{self.path} has the {self._kind} {min(self._arrays)} (and "
                f"{len(self._arrays) - 1} more), which a model of its "
                f"{self._settings} does not have"
            )
        return hparams, {f"model/{name}": value for name, value in weights.items()}

    def _part(
        self, part: str, hparams: HParams, name: str, transposed: bool
    ) -> np.ndarray:
        """Reads a part of a layer; raises `UserError` if it has another shape."""
        tensor, shape = self.read(name), part_shape(part, hparams)
        expected = shape[::-1] if transposed else shape
        if tensor.shape != expected:
            raise UserError(
                f"{self.path}: the {self._kind} {name} has the shape "
                f"{list(tensor.shape)}, and by its {self._settings} it has "
                f"{list(expected)}"
            )
        return tensor.T if transposed else tensor

    def skip(self, *names: str) -> None:
        """Counts tensors as read, if they are there."""
        for name in names:
            self._arrays.pop(name, None)


def marian_hparams(
    path: Path, encoder: int, decoder: int, **fields: Any
) -> ExtendedHParams:
    """Returns the hyper-parameters of a Marian model.

    Args:
        path: the file with its settings, for messages.
        encoder: number of layers of the encoder.
        decoder: number of layers of the decoder.
        **fields: other fields.

    Raises:
        UserError: they are impossible.
    """
    try:
        return ExtendedHParams.of(
            HParams(),
            num_layers=encoder,
            num_decoder_layers=decoder if decoder != encoder else 0,
            attention_bias=True,
            output_bias=True,
            **fields,
        )
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def layer_weights(hparams: HParams) -> Iterator[tuple[str, list[str]]]:
    """Yields our name of each weight of the two stacks, and the names of its parts.

    The parts stand side by side, along the last axis.
    """
    depths = {"encoder": hparams.num_layers, "decoder": hparams.decoder_layers}
    for stack, depth in depths.items():
        kinds = [k for k in _PROJECTIONS if stack == "decoder" or "cross" not in k]
        for scope in (f"{stack}/layer_{i}" for i in range(depth)):
            for kind in kinds:
                for name, parts in _PROJECTIONS[kind].items():
                    for parameter in ("kernel", "bias"):
                        yield (
                            f"{scope}/{kind}/{name}/{parameter}",
                            [f"{scope}/{kind}/{part}/{parameter}" for part in parts],
                        )
                yield from _norm(f"{scope}/{kind}_residual")
        if hparams.norm == "pre":
            yield from _norm(stack)


def part_shape(part: str, hparams: HParams) -> tuple[int, ...]:
    """Returns the shape of a part of a layer: [in, out] of a kernel, else a vector."""
    _, name, parameter = part.rsplit("/", 2)
    inner = hparams.d_ff if name == "inner" else hparams.d_model
    if parameter != "kernel":
        return (inner,)
    return hparams.d_ff if name == "outer" else hparams.d_model, inner


def _norm(scope: str) -> Iterator[tuple[str, list[str]]]:
    for parameter in ("gamma", "beta"):
        name = f"{scope}/norm/{parameter}"
        yield name, [name]


def embeddings(
    path: Path,
    lists: tuple[TokenList, TokenList],
    source: np.ndarray,
    target: np.ndarray,
    softmax: np.ndarray | None,
    bias: np.ndarray,
) -> dict[str, np.ndarray]:
    """Returns our embedding matrices and the bias of the logits.

    Args:
        path: the model's file, for messages.
        lists: the tokens of source and target.
        source: embeddings [V, D] of the source.
        target: those of the target.
        softmax: the transposed kernel [V, D] of the logits; None: it is `target`.
        bias: their bias [V].

    Raises:
        UserError: a matrix has another number of rows than its vocabulary has tokens,
            or padding, with which our decoder starts, is not embedded as zeros.
    """
    weights = {
        "source_embedding/table": _in_our_order(path, source, lists[0]),
        "target_embedding/table": _in_our_order(path, target, lists[1]),
    }
    for rows in weights.values():
        if rows[PAD].any():
            raise UserError(
                f"{path}: the embedding of padding, with which the decoder starts, is "
                "not zero"
            )
    if softmax is not None:
        weights["softmax/table"] = _in_our_order(path, softmax, lists[1])
    elif lists[0].tokens == lists[1].tokens:
        if np.array_equal(source, target):
            weights = {"embedding/table": weights["source_embedding/table"]}
        else:  # two matrices would be those of two vocabularies
            weights["softmax/table"] = weights["target_embedding/table"]
    biases = _in_our_order(path, bias, lists[1], NO_PADDING_BIAS, "output bias")
    return weights | {"output_bias": biases}


def _in_our_order(
    path: Path,
    rows: np.ndarray,
    tokens: TokenList,
    padding: float = 0.0,
    kind: str = "embedding matrix",
) -> np.ndarray:
    """Returns the rows [V, ...] of a matrix or a vector in the order of our ids.

    Args:
        path: the model's file, for messages.
        rows: in the order of the model's ids.
        tokens: the list of tokens.
        padding: the row of padding if the model has none.
        kind: what the rows are, for messages.

    Raises:
        UserError: there is not one row for each token.
    """
    if len(rows) != (known := int(tokens.rows.max()) + 1):
        raise UserError(
            f"{path} has an {kind} of {len(rows):,} rows, and its vocabulary "
            f"has {known:,} tokens; put that of the model there"
        )
    result = rows[tokens.rows].astype(np.float32)
    result[tokens.rows == NO_ROW] = padding
    return result

"""SentencePiece: lossless byte-pair encoding.

Characters that SentencePiece would not give back are escaped. BPE-dropout (Provilkov et
al., ACL 2020) splits a text differently each time; SentencePiece has it as well, but
its random numbers differ in every process. Here they depend on the seed alone, so that
a training can be repeated.
"""

import io
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import sentencepiece

from t2t_keras.errors import UserError
from t2t_keras.text.vocabulary import (
    EOS,
    ESCAPES,
    NEWLINE_PIECE,
    PAD,
    SPACE,
    UNK,
    read_vocabulary,
    text_ids,
    write_vocabulary,
)

if TYPE_CHECKING:
    from t2t_keras.text.sentence_piece_graph import SentencePieceGraph


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


class SentencePieceTokenizer:
    """A tokenizer with a SentencePiece vocabulary that `train` has written.

    For every line of text decode(encode(line)) == line.

    Args:
        path: the `.spm` or `.model` file.

    Raises:
        UserError: the file is absent, is not a SentencePiece model, or has other ids
            for the special pieces.
    """

    suffix: ClassVar[str] = ".spm"
    # They take 450 MB, less than the later stages of data generation.
    training_pairs: ClassVar[int] = 250_000

    def __init__(self, path: Path) -> None:
        self._processor = sentencepiece.SentencePieceProcessor()
        self._dropout: BpeDropout | None = None
        try:
            self._processor.load_from_serialized_proto(read_vocabulary(path))
        except RuntimeError:
            raise UserError(f"{path} is not a SentencePiece model") from None
        model = self._processor
        if (model.pad_id(), model.eos_id(), model.unk_id()) != (PAD, EOS, UNK):
            raise UserError(
                f"{path}: the ids of padding, end and unknown must be {PAD}, {EOS} and "
                f"{UNK}; train the vocabulary with `t2t datagen`, or with `spm_train "
                f"--pad_id={PAD} --eos_id={EOS} --unk_id={UNK} --bos_id=-1 "
                "--byte_fallback`"
            )
        self._newline = model.piece_to_id(NEWLINE_PIECE)
        if not model.is_byte(self._newline):
            raise UserError(
                f"{path} has no byte pieces; train the vocabulary with `t2t datagen`, "
                "or with `spm_train --byte_fallback`"
            )

    @staticmethod
    def train(
        texts: Iterable[str], path: Path, vocab_size: int, symbols: Sequence[str] = ()
    ) -> None:
        """Trains a vocabulary and writes it; equal texts give equal files.

        It uses byte-pair encoding without normalization, keeps all white space, and
        encodes unknown characters as bytes. Lines of more than 64 KiB, and lines with
        a NUL, are skipped.

        Args:
            texts: training lines; all of them are held in memory.
            path: the `.spm` file to write.
            vocab_size: number of pieces: 3 special ones, 256 bytes, the symbols, the
                characters and the learned pieces. A small corpus gives fewer.
            symbols: words that are always one piece (`S /S .`). If several match, the
                longest wins. A word that only begins with a symbol is split after it,
                so use symbols only for a side that consists of them, not for prose.

        Raises:
            UserError: there is no text, the vocabulary is too small for its characters,
                or a symbol is not one word.
        """
        for symbol in symbols:
            if not symbol or symbol.split() != [symbol]:
                raise UserError(f"the symbol '{symbol}' is not one word without spaces")
        # Errors of the texts: the trainer reports one only as a RuntimeError.
        failures: list[BaseException] = []

        def sentences() -> Iterator[str]:
            try:
                yield from map(escape, texts)
            except BaseException as error:  # also Ctrl-C
                failures.append(error)
                raise

        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=sentences(),
                model_writer=model,
                model_type="bpe",
                vocab_size=vocab_size,
                hard_vocab_limit=False,
                # Texts of symbols alone would otherwise give no piece for the space.
                required_chars=SPACE,
                # It begins with a space, as every first piece of a word does.
                user_defined_symbols=[
                    SPACE + escape(symbol) for symbol in dict.fromkeys(symbols)
                ],
                normalization_rule_name="identity",
                remove_extra_whitespaces=False,
                byte_fallback=True,
                character_coverage=0.9995,
                max_sentence_length=1 << 16,
                pad_id=PAD,
                eos_id=EOS,
                unk_id=UNK,
                bos_id=-1,
                # Recorded in the model, so the bytes would differ with another number.
                num_threads=4,
                minloglevel=2,
            )
        except RuntimeError as error:
            failures.append(_training_error(str(error), path, vocab_size))
            raise failures[0] from None
        write_vocabulary(path, model.getvalue())

    @property
    def vocab_size(self) -> int:
        """Number of pieces."""
        return self._processor.get_piece_size()

    @property
    def pieces(self) -> list[str]:
        """The pieces, in the order of their ids."""
        return self._processor.id_to_piece(list(range(self.vocab_size)))

    def token_bytes(self) -> list[bytes]:
        """Returns what each piece adds to a text, which begins with a space."""
        return [
            bytes([int(piece[3:5], 16)])
            if self._processor.is_byte(i)
            else piece.replace("▁", " ").encode()
            for i, piece in enumerate(self.pieces)
        ]

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, EOS last."""
        return self._processor.encode(escape(text), add_eos=True)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encodes every text as `encode` does, in one call of the library."""
        escaped = [escape(text) for text in texts]
        return self._processor.encode(escaped, add_eos=True, num_threads=1)

    def sample(self, text: str, dropout: float, seed: int) -> list[int]:
        """Encodes a text with BPE-dropout.

        Each merge of two pieces is skipped with a given probability, so that words are
        split differently, and into smaller pieces, for each seed. Symbols of the
        vocabulary stay whole. It encodes about 200,000 words a second.

        Args:
            text: the text.
            dropout: the probability of skipping a merge.
            seed: equal seeds give equal results.
        """
        if self._dropout is None:
            self._dropout = BpeDropout(self._processor)
        words = f" {escape(text)}".replace(" ", SPACE) if text else ""
        return [*self._dropout.encode(words, dropout, random.Random(seed)), EOS]

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of the ids before the first EOS."""
        # Versions of the library differ in whether they drop all leading spaces of a
        # text or only the one before the first word. So the text is decoded with a
        # newline before it, which is then removed.
        ids = [self._newline, *text_ids(ids, self.vocab_size)]
        text = self._processor.decode(ids).removeprefix("\n").removeprefix(" ")
        return unescape(text)

    def graph(self) -> "SentencePieceGraph":
        """Returns this tokenizer as TensorFlow operations."""
        from t2t_keras.text.sentence_piece_graph import SentencePieceGraph

        return SentencePieceGraph(self._processor.serialized_model_proto())

    def save(self, path: Path) -> None:
        """Writes the model file."""
        write_vocabulary(path, self._processor.serialized_model_proto())


def _training_error(message: str, path: Path, vocab_size: int) -> Exception:
    """Converts the trainer's error message to a `UserError` if possible."""
    if "sentences_.empty()" in message:
        return UserError(f"no text to train the vocabulary {path} on")
    needed = re.search(r"required_chars\. \d+ vs (\d+)", message)
    if needed or "vocab_size" in message or "insert_id" in message:
        minimum = f"at least {needed[1]}" if needed else "more than 260"
        return UserError(
            f"a vocabulary of {vocab_size} tokens is too small for {path}: its 256 "
            f"bytes, symbols and characters need {minimum}; raise vocab_size"
        )
    return RuntimeError(message)

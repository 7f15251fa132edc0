"""Finds the tokenizer class of a name or of a vocabulary file."""

from collections.abc import Iterator
from pathlib import Path

from t2t_keras.entry_points import load_plugins
from t2t_keras.errors import UserError
from t2t_keras.text.tokenizer import Tokenizer

# The suffixes that other programs give to files of some kinds: `spm_train` writes
# SentencePiece's models as `.model`.
_OTHER_SUFFIXES = {".model": ".spm"}


def vocabulary_suffix(path: Path) -> str:
    """Returns the suffix of a vocabulary file's kind, which its name may not have."""
    return _OTHER_SUFFIXES.get(Path(path).suffix, Path(path).suffix)


def tokenizer_kinds() -> Iterator[tuple[str, type[Tokenizer]]]:
    """Yields the kinds of tokenizers, each with its name in `Problem.tokenizer`."""
    from t2t_keras.text.sentence_piece import SentencePieceTokenizer

    yield "sentencepiece", SentencePieceTokenizer
    yield from load_plugins("tokenizers").items()


def tokenizer_kind(name: str) -> type[Tokenizer]:
    """Returns the kind of tokenizers that has a name.

    Raises:
        UserError: there is none.
    """
    for known, kind in tokenizer_kinds():
        if known == name:
            return kind
    names = ", ".join(known for known, _ in tokenizer_kinds())
    raise UserError(f"tokenizer must be one of {names}, not '{name}'")


def load_tokenizer(path: Path, suffix: str | None = None) -> Tokenizer:
    """Loads a tokenizer, whose kind follows from the suffix of its file.

    Args:
        path: a `.spm` or `.model` file (SentencePiece), or one with the suffix of a
            plugin.
        suffix: the suffix of the kind, if the file has another one.

    Raises:
        UserError: there is no such file, or it is not a vocabulary of that kind.
    """
    suffix = suffix or vocabulary_suffix(path)
    for _, kind in tokenizer_kinds():
        if kind.suffix == suffix:
            return kind(Path(path))
    known = ", ".join(kind.suffix for _, kind in tokenizer_kinds())
    raise UserError(
        f"{path}: a vocabulary file ends in {known}, or in .model if it is "
        "SentencePiece's; there is no reader of other "
        "kinds, such as tensor2tensor's vocabularies of whole tokens or of BPE"
    )

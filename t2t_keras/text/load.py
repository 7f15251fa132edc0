"""Loads a tokenizer from its vocabulary file."""

from collections.abc import Callable
from pathlib import Path

from t2t_keras import registry
from t2t_keras.option import UserError
from t2t_keras.text.sentence_piece import SentencePieceTokenizer
from t2t_keras.text.subword import SubwordTokenizer
from t2t_keras.text.tokenizer import Tokenizer

_KINDS: dict[str, Callable[[Path], Tokenizer]] = {
    ".spm": SentencePieceTokenizer,
    ".subwords": SubwordTokenizer,
}


def _kinds() -> dict[str, Callable[[Path], Tokenizer]]:
    """Returns the classes by suffix, with those of plugins."""
    added = registry.plugins("tokenizers")
    return _KINDS | {f".{name}": kind for name, kind in added.items()}


def load_tokenizer(path: Path, suffix: str | None = None) -> Tokenizer:
    """Loads a tokenizer, whose kind follows from the suffix of its file.

    Args:
        path: a `.spm` file (SentencePiece), a `.subwords` file (tensor2tensor), or a
            file with the suffix of a plugin.
        suffix: that of the kind, for a file that has another one.

    Raises:
        UserError: there is no such file, or it is not a vocabulary of that kind.
    """
    path = Path(path)
    suffix = suffix or path.suffix
    kinds = _KINDS if suffix in _KINDS else _kinds()
    if suffix not in kinds:
        raise UserError(
            f"{path}: a vocabulary file ends in .spm (SentencePiece) or .subwords "
            "(tensor2tensor's SubwordTextEncoder); there is no reader of other kinds, "
            "such as tensor2tensor's vocabularies of whole tokens or of BPE"
        )
    return kinds[suffix](path)


def suffix_of(tokenizer: Tokenizer) -> str:
    """Returns the suffix of a tokenizer's vocabulary file, such as ".spm"."""
    kinds = {kind: suffix for suffix, kind in _kinds().items()}
    return kinds[type(tokenizer)]

"""Finds the tokenizer class of a name or of a vocabulary file."""

from collections.abc import Iterator
from pathlib import Path

from t2t_keras.entry_points import load_plugins
from t2t_keras.errors import UserError
from t2t_keras.text.tokenizer import Tokenizer

# Suffixes that other programs give to vocabulary files: `spm_train` writes
# SentencePiece's models as `.model`.
_OTHER_SUFFIXES = {".model": ".spm"}


def vocabulary_suffix(path: Path) -> str:
    """Returns the `Tokenizer.suffix` of a file, which its name may not have."""
    return _OTHER_SUFFIXES.get(Path(path).suffix, Path(path).suffix)


def tokenizer_classes() -> Iterator[tuple[str, type[Tokenizer]]]:
    """Yields the tokenizer classes, each with its name in `Problem.tokenizer`."""
    # `t2t list` imports this module, and does not need the library.
    from t2t_keras.text.sentence_piece import SentencePieceTokenizer

    yield "sentencepiece", SentencePieceTokenizer
    yield from load_plugins("tokenizers").items()


def tokenizer_class(name: str) -> type[Tokenizer]:
    """Returns the tokenizer class with a name.

    Raises:
        UserError: there is none.
    """
    names = []
    for class_name, cls in tokenizer_classes():
        if class_name == name:
            return cls
        names.append(class_name)
    raise UserError(f"tokenizer must be one of {', '.join(names)}, not '{name}'")


def load_tokenizer(path: Path, suffix: str | None = None) -> Tokenizer:
    """Loads a tokenizer, whose class follows from the suffix of its file.

    Args:
        path: a `.spm` or `.model` file (SentencePiece), or one with the suffix of a
            plugin.
        suffix: the suffix of the class, if the file has another one.

    Raises:
        UserError: there is no such file, or it is not a vocabulary of that class.
    """
    suffix = suffix or vocabulary_suffix(path)
    suffixes = []
    for _, cls in tokenizer_classes():
        if cls.suffix == suffix:
            return cls(Path(path))
        suffixes.append(cls.suffix)
    raise UserError(
        f"{path}: a vocabulary file ends in {', '.join(suffixes)}, or in .model if it "
        "is SentencePiece's; there is no reader of other kinds, such as "
        "tensor2tensor's vocabularies of whole tokens or of BPE"
    )

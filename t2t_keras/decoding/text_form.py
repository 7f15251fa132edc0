"""What stands between the texts of a user and those of the tokenizers."""

from collections.abc import Iterable
from typing import Protocol

from t2t_keras.errors import UserError
from t2t_keras.problem import Problem
from t2t_keras.text.brackets import Brackets
from t2t_keras.text.linearise import linearise
from t2t_keras.text.tree import parse_tree, prepare
from t2t_keras.text.treebank_words import treebank_text


def checked_texts(texts: Iterable[str], name: str = "texts") -> list[str]:
    """Returns the texts as a list.

    Args:
        texts: what a caller passed.
        name: of the argument.

    Raises:
        UserError: they are one string or no sequence, or an element is not a string.
    """
    if isinstance(texts, str | bytes):
        raise UserError(
            f"{name} must be a list of strings, not one string; pass [text]"
        )
    try:
        texts = list(texts)
    except TypeError:
        kind = type(texts).__name__
        raise UserError(f"{name} must be a list of strings, not {kind}") from None
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise UserError(
                f"{name}[{i}] must be a string (str), not {type(text).__name__}"
            )
    return texts


def is_blank(text: str) -> bool:
    """Returns whether a text is nothing but white space."""
    return not text.strip()


class TextForm(Protocol):
    """How a problem's inputs become sources, and its decoded targets outputs.

    `serving.text_form_graph` has the same as operations of TensorFlow.
    """

    def source_text(self, text: str, raw: bool) -> str:
        """Returns an input as the model knows it; `raw` as in `DecodingOptions`."""

    def target_text(self, source: str, output: str) -> str:
        """Returns the target of which an output is made."""

    def repaired(self, source: str, target: str) -> tuple[str, bool]:
        """Returns a decoded target as it should be, and whether it was not."""


class PlainText:
    """Text to text, as it is."""

    def source_text(self, text: str, raw: bool) -> str:
        """Returns the text."""
        del raw
        return text

    def target_text(self, source: str, output: str) -> str:
        """Returns the output."""
        del source
        return output

    def repaired(self, source: str, target: str) -> tuple[str, bool]:
        """Returns the target."""
        del source
        return target, False


class Trees:
    """Words with a space between them to the symbols of a tree over these words."""

    def __init__(self, symbols: tuple[str, ...], pos_tags: bool) -> None:
        self._brackets = Brackets.of(symbols)
        self._pos_tags = pos_tags

    def source_text(self, text: str, raw: bool) -> str:
        """Returns the words, of a raw sentence as the Penn Treebank splits it."""
        return treebank_text(text, raw)

    def target_text(self, source: str, output: str) -> str:
        """Returns the symbols of a bracketed tree.

        Raises:
            UserError: it is not a tree over the words of the source.
        """
        if not output.strip():
            return ""
        tree = prepare(parse_tree(output, "target"), "target")
        if tree.words() != source.split(" "):
            raise UserError(f"the target '{output}' has other words than its source")
        return " ".join(linearise(tree, self._pos_tags))

    def repaired(self, source: str, target: str) -> tuple[str, bool]:
        """Returns the symbols of a tree over exactly the words."""
        symbols = target.split()
        tree = self._brackets.repair(source.split(" "), symbols)
        return " ".join(tree), tree != symbols


def text_form(problem: Problem) -> TextForm:
    """Returns the form of a problem's texts."""
    if problem.output == "trees":
        return Trees(problem.symbols, problem.pos_tags)
    return PlainText()

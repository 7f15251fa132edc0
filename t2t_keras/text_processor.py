"""TextProcessor: the conversion between users' texts and tokenizers' texts."""

import dataclasses
from typing import TYPE_CHECKING

from t2t_keras.arguments import check_fields
from t2t_keras.blank_text import WHITE_ENDS

if TYPE_CHECKING:
    import tensorflow as tf


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextProcessor:
    """The conversion between users' texts and tokenizers' texts.

    This one only removes white space at both ends, of which a tokenizer would make
    tokens. A task whose model reads or writes other texts than its users derives a
    class. `preprocess_graph` and `postprocess_graph` do on string tensors what
    `preprocess` and `postprocess` do in Python; an exported model runs them.

    Attributes:
        symbols: texts that are always one token in the target's vocabulary.
        tags: words that may precede a source, such as `<2de>`, and are one token in
            its vocabulary. If a source is split, all of its parts get its tag. The tags
            of a mixture of corpora need not be given here.
        splits_raw_text: whether `preprocess` splits raw text into words.
        splits_long_sources: whether a source that is too long for the model may be
            split, and the targets of its parts joined; otherwise it is truncated.
        repairs_outputs: whether `postprocess` repairs outputs that violate the
            problem's constraint. `postprocess_graph` gets only what the constraint
            allows, and must repair only an empty first output for a source with words.
        aligns_outputs: whether the words of an output can be aligned with those of its
            source.
        source_flags: the flags of `t2t datagen` that name the source of a split.
    """

    symbols: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    splits_raw_text = False
    splits_long_sources = True
    repairs_outputs = False
    aligns_outputs = True
    source_flags = "--{split}_source and --{split}_target"

    def __post_init__(self) -> None:
        check_fields(self, f"{type(self).__name__}: ")

    def preprocess(self, text: str, raw: bool = False) -> str:
        """Converts a user's input to the text that the source tokenizer encodes.

        Args:
            text: one line of input.
            raw: whether the line is raw text; otherwise it looks like the training
                data.
        """
        return text.strip()

    def preprocess_target(self, source: str, output: str) -> str:
        """Converts an output to a target, the inverse of `postprocess`.

        Args:
            source: the result of `preprocess`.
            output: one line in the users' form.

        Raises:
            UserError: there is no such target.
        """
        return output.strip()

    def postprocess(self, source: str, target: str) -> tuple[str, bool]:
        """Converts a decoded target to an output. An empty target has an empty output.

        Args:
            source: the result of `preprocess`.
            target: one line, from the model or the training data.

        Returns:
            The output in one line, and whether the target had to be repaired.
        """
        return target, False

    def preprocess_graph(self, texts: "tf.Tensor", raw: bool) -> "tf.Tensor":
        """Does what `preprocess` does for texts [B], in the graph."""
        import tensorflow as tf

        return tf.strings.regex_replace(texts, WHITE_ENDS, "")

    def postprocess_graph(
        self, sources: "tf.Tensor", targets: "tf.Tensor"
    ) -> "tf.Tensor":
        """Does what `postprocess` does, for targets [B, n], in the graph."""
        return targets

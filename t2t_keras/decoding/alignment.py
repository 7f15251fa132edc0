"""Word alignments, read from the attention of target tokens to source tokens."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from t2t_keras.errors import UserError
from t2t_keras.hparam import GUIDED_HEAD, HParams
from t2t_keras.problem import Alignment


class AlignmentHead(NamedTuple):
    """The encoder-decoder attention from which word alignments are read.

    Attributes:
        layer: number of the decoder layer, from 1; None: `HParams.alignment_layer`.
        head: number of the head, from 1; None: the mean of the layer's heads, or, if
            no layer is given either, the head that guided alignment has trained.
    """

    layer: int | None = None
    head: int | None = None

    def of_model(self, hparams: HParams) -> Self:
        """Returns the head with the defaults that it has in a model.

        Raises:
            UserError: the model has no such layer or head.
        """
        counts = {"layer": hparams.decoder_layers, "head": hparams.num_heads}
        for name, count in counts.items():
            index = getattr(self, name)
            if index is not None and not 1 <= index <= count:
                raise UserError(
                    f"alignment: the model has no {name} {index}; give a number from "
                    f"1 to {count}"
                )
        if self.layer is not None:
            return self
        trained = GUIDED_HEAD if hparams.guided_alignment else None
        return self._replace(layer=hparams.alignment_layer, head=self.head or trained)


def word_alignment(
    weights: np.ndarray,
    source_words: Sequence[int | None],
    target_words: Sequence[int | None],
) -> Alignment:
    """Aligns each target token with the source token of the largest weight.

    Two words are aligned if any of their tokens are. Tokens without a word, such as
    EOS, are left out on both sides.

    Args:
        weights: [T, S], from target to source tokens; both may be padded.
        source_words: the result of `words_of_tokens` for the source.
        target_words: the same for the target.
    """
    columns = [s for s, word in enumerate(source_words) if word is not None]
    if not columns:
        return ()
    links = set()
    for row, target_word in zip(weights, target_words, strict=False):
        if target_word is not None:
            source_word = source_words[columns[np.argmax(row[columns])]]
            assert source_word is not None  # `columns` has none of these
            links.add((source_word, target_word))
    return tuple(sorted(links))


def word_starts(text: str, parts: Sequence[str]) -> list[int]:
    """Returns the index of the word with which each part of a text begins.

    Args:
        text: the text.
        parts: its parts in order, with nothing but white space between them.
    """
    starts = []
    position = 0
    for part in parts:
        remainder = text[position:]
        position += len(remainder) - len(remainder.lstrip())
        starts.append(len(f"{text[:position]}.".split()) - 1)
        position += len(part.strip())
    return starts


def joined_alignment(
    alignments: Sequence[Alignment],
    source: str,
    source_parts: Sequence[str],
    target: str,
    target_parts: Sequence[str],
    tags: Sequence[str] = (),
) -> Alignment:
    """Joins the alignments of the parts of a pair.

    Args:
        alignments: the alignment of each part.
        source: the source.
        source_parts: its parts in order, with nothing but white space between them.
        target: the target.
        target_parts: its parts.
        tags: see `TextProcessor`. If the source begins with a tag, all its parts do.
    """
    head = source.split(maxsplit=1)[:1]
    tag = head[0] if head and head[0] in tags else ""
    untagged = [part.removeprefix(tag) for part in source_parts[1:]]
    source_starts = word_starts(source, [*source_parts[:1], *untagged])
    # Word 0 of every part is the tag, which is word 0 of the source.
    source_starts[1:] = [start - bool(tag) for start in source_starts[1:]]
    target_starts = word_starts(target, target_parts)
    links = set()
    for alignment, source_start, target_start in zip(
        alignments, source_starts, target_starts, strict=True
    ):
        for i, j in alignment:
            is_tag = bool(tag) and i == 0
            links.add((0 if is_tag else i + source_start, j + target_start))
    return tuple(sorted(links))

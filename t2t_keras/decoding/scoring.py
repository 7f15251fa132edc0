"""What a model says of given targets, by teacher forcing.

These are log-probabilities, attention weights, and the word alignments that are read
from the attention of the decoder to the source.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import tensorflow as tf

from t2t_keras.decoding.ensemble import DecodingModel, Ensemble
from t2t_keras.hparam import GUIDED_HEAD, HParams
from t2t_keras.option import UserError
from t2t_keras.problem import Alignment
from t2t_keras.text.tokenizer import PAD


class TargetScores(NamedTuple):
    """The log-probabilities of a batch of targets.

    Attributes:
        log_probs: [B] float32, summed over the tokens, each given the earlier ones.
        lengths: [B] int32, the numbers of tokens.
        token_log_probs: [B, T] float32, of each token; 0 for padding.
    """

    log_probs: tf.Tensor
    lengths: tf.Tensor
    token_log_probs: tf.Tensor


class Score(NamedTuple):
    """The log-probability of one target.

    Attributes:
        log_prob: the log-probability of the whole target, EOS included.
        tokens: the number of tokens, EOS included.
        ids: the token ids.
        token_log_probs: the log-probability of each token, given the earlier ones.
    """

    log_prob: float
    tokens: int
    ids: tuple[int, ...] = ()
    token_log_probs: tuple[float, ...] = ()


def score_targets(
    model: DecodingModel, source: tf.Tensor, target: tf.Tensor
) -> TargetScores:
    """Computes the log-probabilities of targets, all positions at once.

    Args:
        model: the model.
        source: ids [B, S], padded with PAD.
        target: ids [B, T], padded with PAD; EOS counts where it is given.
    """
    is_token = target != PAD
    log_probs = tf.nn.log_softmax(model(source, target))
    chosen = tf.gather(log_probs, target, axis=2, batch_dims=2)
    chosen = tf.where(is_token, chosen, 0.0)
    return TargetScores(
        log_probs=tf.reduce_sum(chosen, axis=1),
        lengths=tf.reduce_sum(tf.cast(is_token, tf.int32), axis=1),
        token_log_probs=chosen,
    )


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
            number = getattr(self, name)
            if number is not None and not 1 <= number <= count:
                raise UserError(
                    f"alignment: the model has no {name} {number}; give a number from "
                    f"1 to {count}"
                )
        if self.layer is not None:
            return self
        trained = GUIDED_HEAD if hparams.guided_alignment else None
        return self._replace(layer=hparams.alignment_layer, head=self.head or trained)

    def weights(
        self, model: DecodingModel, source: tf.Tensor, target: tf.Tensor
    ) -> tf.Tensor:
        """Returns the attention weights, float32 [B, T, S].

        Row t belongs to the position that predicts target token t.

        Args:
            model: the model.
            source: ids [B, S], padded with PAD.
            target: ids [B, T], padded with PAD.

        Raises:
            UserError: the model is an ensemble.
        """
        if isinstance(model, Ensemble):
            raise UserError("alignment: an ensemble has none; take one of its runs")
        _, maps = model.states(source, target)
        layer, head = self.of_model(model.hparams)
        assert layer is not None  # `of_model` puts it in
        weights = maps.cross[layer - 1]
        if head is None:
            return tf.reduce_mean(weights, axis=1)
        return weights[:, head - 1]


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
    known = [(s, word) for s, word in enumerate(source_words) if word is not None]
    if not known:
        return ()
    places, words = zip(*known, strict=True)
    links = {
        (words[np.argmax(row[list(places)])], word)
        for row, word in zip(weights, target_words, strict=False)
        if word is not None
    }
    return tuple(sorted(links))


def word_starts(text: str, parts: Sequence[str]) -> list[int]:
    """Returns the number of the word with which each part of a text begins, from 0.

    Args:
        text: the text.
        parts: its parts in order, with nothing but white space between them.
    """
    starts, place = [], 0
    for part in parts:
        rest = text[place:]
        place += len(rest) - len(rest.lstrip())
        starts.append(len(f"{text[:place]}.".split()) - 1)
        place += len(part.strip())
    return starts


def joined_alignment(
    parts: Sequence[Alignment],
    source_starts: Sequence[int],
    target_starts: Sequence[int],
) -> Alignment:
    """Joins the alignments of the parts of a pair; see `word_starts`."""
    links = {
        (i + first, j + second)
        for part, first, second in zip(parts, source_starts, target_starts, strict=True)
        for i, j in part
    }
    return tuple(sorted(links))

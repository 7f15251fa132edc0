"""Teacher forcing of given targets: log-probabilities and attention weights."""

from typing import NamedTuple, Self

import tensorflow as tf

from t2t_keras.decoding.ensemble import DecodingModel, Ensemble
from t2t_keras.errors import UserError
from t2t_keras.hparam import GUIDED_HEAD, HParams
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
        _, maps = model.decoder_outputs(source, target)
        layer, head = self.of_model(model.hparams)
        assert layer is not None  # `of_model` puts it in
        weights = maps.cross[layer - 1]
        if head is None:
            return tf.reduce_mean(weights, axis=1)
        return weights[:, head - 1]

"""R-Drop (Liang et al., NeurIPS 2021), a loss of two forward passes, as a model.

The loss is the mean of both passes, plus alpha / 4 times KL(p || q) + KL(q || p) of
their distributions p and q, which differ by dropout. It is half of the paper's, so that
without dropout it is the usual one. Use it with `t2t ... --usr_dir`.
"""

import dataclasses
from typing import Any

from keras import ops

from t2t_keras import (
    HParams,
    UserError,
    option,
    register_hparams,
    register_model,
    registry,
)
from t2t_keras.model import Packing, Transformer
from t2t_keras.model.backend import Tensor
from t2t_keras.model.layers import fold_in
from t2t_keras.model.loss import sum_over_tokens, summed_cross_entropies


@dataclasses.dataclass(frozen=True, kw_only=True)
class RDropHParams(HParams):
    """The hyper-parameters of `r_drop`."""

    model: str = option("r_drop", "the registered model (`t2t list`)")
    r_drop_alpha: float = option(5.0, "weight of the divergence (alpha)", ge=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.guided_alignment:
            raise UserError("hparams: r_drop has no guided_alignment; leave it out")


@register_model(hparams=RDropHParams)
class RDrop(Transformer):
    """The paper's model, trained by R-Drop."""

    def training_losses(
        self,
        source: Tensor,
        target: Tensor,
        seed: Tensor | None,
        *,
        packing: Packing | None = None,
        first_row: int | Tensor = 0,
        **unused: Any,
    ) -> tuple[Tensor, Tensor]:
        """Returns the loss and the negative log-likelihood, summed over the tokens."""
        losses = []
        likelihoods = []
        log_probs = []  # [B, T, V] each
        for key in (seed, fold_in(seed, 1)):
            states, _ = self.decoder_outputs(source, target, key, packing, first_row)
            logits = self.logits(states)
            smoothing = self.hparams.label_smoothing
            loss, nll = summed_cross_entropies(logits, target, smoothing)
            losses.append(loss)
            likelihoods.append(nll)
            log_probs.append(ops.log_softmax(logits))
        log_p, log_q = log_probs
        difference = (ops.exp(log_p) - ops.exp(log_q)) * (log_p - log_q)
        divergence = sum_over_tokens(ops.sum(difference, axis=-1), target)
        weight = self.hparams.r_drop_alpha / 4
        return sum(losses) / 2 + weight * divergence, sum(likelihoods) / 2


@register_hparams
def r_drop_tiny() -> HParams:
    """`tiny` with R-Drop."""
    return registry.hparams("tiny").override(model="r_drop")

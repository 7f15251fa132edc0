"""Which class an attention sub-layer is of, when it is not the paper's own."""

import functools
from collections.abc import Callable

from t2t_keras.hparam import HParams
from t2t_keras.layers.additive_attention import (
    AdditiveCrossAttention,
    AdditiveSelfAttention,
)
from t2t_keras.layers.attention import CrossAttention, SelfAttention
from t2t_keras.layers.unscaled_attention import (
    UnscaledCrossAttention,
    UnscaledSelfAttention,
)
from t2t_keras.layers.window_attention import WindowSelfAttention

_VARIANTS = {
    ("unscaled", SelfAttention): UnscaledSelfAttention,
    ("unscaled", CrossAttention): UnscaledCrossAttention,
    ("additive", SelfAttention): AdditiveSelfAttention,
    ("additive", CrossAttention): AdditiveCrossAttention,
}


def attention_class(
    kind: type[SelfAttention] | type[CrossAttention],
    hparams: HParams,
    looks_ahead: bool,
) -> Callable:
    """Returns what to call in place of `kind`; `kind` itself in the paper's models.

    Args:
        kind: `SelfAttention` or `CrossAttention`.
        hparams: of which `attention` and `attention_window` are read.
        looks_ahead: whether a position sees those after it, as in the encoder. With a
            window r it then sees |i - j| <= r / 2, otherwise i - r < j <= i.
    """
    window = hparams.attention_window
    if window and kind is SelfAttention:
        before, after = (window // 2, window // 2) if looks_ahead else (window - 1, 0)
        return functools.partial(WindowSelfAttention, before=before, after=after)
    return _VARIANTS.get((hparams.attention, kind), kind)

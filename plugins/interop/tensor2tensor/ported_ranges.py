"""tensor2tensor's `RangedHParams`, whose names become those of `HParams`."""

from collections.abc import Sequence

from t2t_keras.entry_points import counterpart
from t2t_keras.errors import UserError
from t2t_keras.ranged_hparams import RangedHParams as OurRangedHParams
from t2t_keras.ranged_hparams import Scale, Value

from ..extended_transformer import T2T_NAMES
from .notes import say_once
from .utils.hparam import NAMES, REASONS, WITHOUT_EFFECT, absence

_OUR_NAMES = T2T_NAMES | {
    "activation_dtype": "compute_dtype",
    "batch_size": "batch_tokens",
    "num_encoder_layers": "num_layers",
}
_SAME_NAMES = (
    *("attention_dropout", "label_smoothing", "norm_epsilon", "num_decoder_layers"),
    *("num_heads", "optimizer"),
)
_LEFT_OUT = {
    **REASONS,
    "weight_decay": "AdamW's is another one; optimizer=adamw has it",
}


class RangedHParams(OurRangedHParams):
    """Ranges of tensor2tensor's hyper-parameters by its names.

    A range that has no effect here is left out with a remark.
    """

    def set_float(
        self,
        name: str,
        min_val: float,
        max_val: float,
        scale: Scale | None = None,
        length: int | None = None,
    ) -> None:
        """Sets the range of a number; `length` must be None."""
        if ours := _our_name(name, length):
            super().set_float(ours, min_val, max_val, scale or self.LINEAR_SCALE)

    def set_int(
        self,
        name: str,
        min_val: int,
        max_val: int,
        scale: Scale | None = None,
        length: int | None = None,
    ) -> None:
        """Sets the range of an integer; `length` must be None."""
        if ours := _our_name(name, length):
            super().set_int(ours, min_val, max_val, scale or self.LINEAR_SCALE)

    def set_discrete(
        self,
        name: str,
        feasible_points: Sequence[float],
        scale: Scale | None = None,
        length: int | None = None,
    ) -> None:
        """Sets numbers, which have no scale here; `length` must be None."""
        if ours := _our_name(name, length):
            super().set_discrete(ours, feasible_points)

    def set_categorical(
        self, name: str, categories: Sequence[Value], length: int | None = None
    ) -> None:
        """Sets texts or numbers; `length` must be None."""
        if ours := _our_name(name, length):
            super().set_categorical(ours, categories)


def _our_name(name: str, length: int | None) -> str:
    """Returns our name of a hyper-parameter; "" if it has no effect here.

    Raises:
        UserError: there is nothing that has the same values.
    """
    if length is not None:
        raise UserError(f"{name}: a range of lists does not exist here; omit length")
    if name in _OUR_NAMES:
        if name == "batch_size":
            say_once("the range of batch_size is that of batch_tokens, of all GPUs")
        return _OUR_NAMES[name]
    if name in _SAME_NAMES:
        return name
    if name in WITHOUT_EFFECT or name in _LEFT_OUT:
        reason = _LEFT_OUT.get(name)
        remark = f": {reason}" if reason else ""
        say_once(f"the range of {name} is left out, it has no effect{remark}")
        return ""
    if name in NAMES:
        raise UserError(counterpart("hparams", name))
    raise UserError(absence(name, NAMES))

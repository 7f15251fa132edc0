"""tensor2tensor's `modalities`: the names that problems mention."""

from ..missing import missing_name


class ModalityType:
    """The names of types of features."""

    CLASS_LABEL = "class_label"
    IDENTITY = "identity"
    REAL_L2_LOSS = "real_l2_loss"
    SYMBOL = "symbol"


def __getattr__(name: str) -> object:
    return missing_name(__name__, name)

"""Builds the model that hyper-parameters name."""

from t2t_keras import registry
from t2t_keras.errors import UserError
from t2t_keras.hparam import HParams
from t2t_keras.model.transformer import Transformer


def build_model(
    hparams: HParams, source_vocab_size: int, target_vocab_size: int | None = None
) -> Transformer:
    """Returns the registered model that `hparams.model` names, newly initialized.

    The arguments are those of `Transformer`.

    Raises:
        UserError: there is no such model, or it takes another class of hparams.
    """
    named = registry.model(hparams.model)
    if type(hparams) is not named.hparams:
        raise UserError(
            f"hparams: model '{hparams.model}' takes {named.hparams.__name__}, not "
            f"{type(hparams).__name__}; set model to the name of its model"
        )
    return named.build(hparams, source_vocab_size, target_vocab_size)

"""The search settings of a Marian model, in Marian's files or those of transformers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t2t_keras.errors import UserError


def decoding_options(
    path: Path, beam_size: Any, power: Any, names: str
) -> dict[str, Any]:
    """Returns the decoding options that equal the settings of a file.

    Args:
        path: the file, for messages.
        beam_size: the number of beams.
        power: the power of its length by which a score is divided.
        names: the names of both settings, for messages.

    Raises:
        UserError: a value is not a number.
    """
    try:
        return {
            "beam_size": int(beam_size),
            "length_penalty": "power",
            "alpha": float(power),
        }
    except (TypeError, ValueError) as error:
        raise UserError(f"{path}: {names} must be numbers: {error}") from None


def search_sentences(
    name: str, options: Mapping[str, object], ignored: Mapping[str, object]
) -> list[str]:
    """Returns sentences about the search that the user should check.

    Args:
        name: the name of the file that has the settings.
        options: what `decoding_options` returned.
        ignored: the settings that change outputs and have no counterpart.
    """
    pairs = ",".join(f"{key}={value}" for key, value in options.items())
    sentences = [f"{name}: its search is that of --decode_hparams {pairs}"]
    for key, value in ignored.items():
        sentences.append(
            f"{name}: {key} {value!r:.80} has no counterpart, so outputs may differ"
        )
    return sentences

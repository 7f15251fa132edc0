"""The search settings of a Marian model, in Marian's files or those of transformers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.errors import UserError


def decoding_options(
    path: Path, beam_size: Any, power: Any, names: str
) -> dict[str, int | float | str]:
    """Returns the decoding options that equal the settings of a file.

    Args:
        path: the file, for messages.
        beam_size: the number of beams.
        power: the power of its length by which a score is divided.
        names: the names of both settings, for messages.

    Raises:
        UserError: a value is not a number, or impossible in a search.
    """
    try:
        options = DecodingOptions(
            beam_size=int(beam_size), length_penalty="power", alpha=float(power)
        )
    except (TypeError, ValueError) as error:
        raise UserError(f"{path}: {names} must be numbers: {error}") from None
    except UserError as error:
        raise UserError(f"{path}: {names}: {error}") from None
    return {
        name: getattr(options, name)
        for name in ("beam_size", "length_penalty", "alpha")
    }


def ignored_settings(name: str, ignored: Mapping[str, object]) -> list[str]:
    """Returns a sentence about each setting of the search that was not imported.

    Args:
        name: the name of the file that has the settings.
        ignored: the settings that change outputs and have no counterpart.
    """
    return [
        f"{name}: {key} {value!r:.80} has no counterpart, so outputs may differ"
        for key, value in ignored.items()
    ]

"""The dtypes to which the weights of exports can be rounded."""

from collections.abc import Sequence

from t2t_keras.errors import UserError

# Those of a SavedModel, besides float32; see `StoredWeight`.
DTYPES = ("int8", "float16", "bfloat16")


def refuse_unknown_dtype(
    name: str | None, dtypes: Sequence[str], export_format: str
) -> None:
    """Refuses a dtype of weights that a format does not have.

    Args:
        name: the dtype; None: float32.
        dtypes: the dtypes that the format has, besides float32.
        export_format: the name of the format.

    Raises:
        UserError: the format does not have it.
    """
    if name is not None and name not in dtypes:
        raise UserError(
            f"--quantization: --format {export_format} has no {name}; the choice is "
            f"{', '.join(dtypes) or 'float32 alone'}"
        )

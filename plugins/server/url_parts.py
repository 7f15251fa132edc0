"""The parts of the URLs of `t2t serve`, for Starlette's routes."""

from starlette.convertors import (
    IntegerConvertor,
    StringConvertor,
    register_url_convertor,
)


class _ModelName(StringConvertor):
    # A colon begins a verb, such as `:predict`, as in TensorFlow Serving.
    regex = "[^/:]+"


class _Version(IntegerConvertor):
    # Python refuses to convert thousands of digits; versions are 64-bit integers.
    regex = "[0-9]{1,19}"


def register_parts() -> None:
    """Makes `{...:model}` and `{...:version}` known to routes."""
    register_url_convertor("model", _ModelName())
    register_url_convertor("version", _Version())

"""The server's answers: JSON, and errors as objects with the one entry `error`."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import TypeAlias

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from t2t_keras.errors import UserError

from .content_encoding import ACCEPTED, UnsupportedEncoding
from .fair_queue import Overloaded
from .rest import TooLarge

_Headers: TypeAlias = Mapping[str, str] | None

CLIENT_LEFT = 499  # the status in nginx's logs; no client receives it
# The errors that `failure_response` answers with their sentences.
ANSWERED_ERRORS = (
    HTTPException,
    Overloaded,
    TooLarge,
    UnsupportedEncoding,
    UserError,
)
_SHOWN_URL = 200  # characters


def json_response(
    value: object, status: int = 200, headers: _Headers = None
) -> Response:
    """Returns a value as JSON in ASCII.

    Scores of outputs that do not exist are -Infinity, as in TensorFlow Serving.
    """
    return Response(json.dumps(value), status, headers, "application/json")


def error_response(status: int, message: str, headers: _Headers = None) -> Response:
    """Returns an error with a sentence."""
    return json_response({"error": message}, status, headers)


def failure_response(request: Request, error: Exception) -> Response:
    """Returns the answer to a request that raised an error."""
    if isinstance(error, HTTPException):
        return _http_error(request, error)
    if isinstance(error, Overloaded):
        return error_response(503, str(error), {"Retry-After": "1"})
    if isinstance(error, TooLarge):
        return error_response(413, str(error))
    if isinstance(error, UnsupportedEncoding):
        return error_response(415, str(error), {"Accept-Encoding": ACCEPTED})
    if isinstance(error, UserError):
        return error_response(400, str(error))
    return error_response(500, "the server failed; its log tells why")


def _http_error(request: Request, error: HTTPException) -> Response:
    """Returns an error with a sentence, which those of Starlette's router lack."""
    headers = error.headers
    message = error.detail
    url = request.url.path[:_SHOWN_URL]
    if error.status_code == 405 and headers:
        # Starlette joins a set, whose order differs from process to process.
        methods = sorted(headers["Allow"].split(", "))
        headers = {"Allow": ", ".join(methods)}
        message = f"{url} takes {' or '.join(methods)}, not {request.method}"
    elif message == HTTPStatus.NOT_FOUND.phrase:
        message = f"there is no {url}"
    return error_response(error.status_code, message, headers)

"""The endpoints of `t2t serve`: TensorFlow Serving's REST interface, page, metrics.

A request that another site has caused is refused unread, which protects a server at the
loopback address from web pages. The owner of a page can make the name of its site
resolve to 127.0.0.1 (DNS rebinding), and then the browser lets the page read the
answers of this server: the name in `Host` must be allowed. Any page can also send a
form to this server: `Origin`, which browsers add, must be this server.
"""

import asyncio
import contextlib
import json
import mimetypes
import re
import time
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from typing import TypeAlias

from starlette.applications import Starlette
from starlette.convertors import (
    IntegerConvertor,
    StringConvertor,
    register_url_convertor,
)
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from t2t_keras.errors import UserError
from t2t_keras.pages import style_sheet

from .metrics import Metrics
from .model_manager import ModelManager, Servable, Source
from .queue import Overloaded
from .requests import (
    ACCEPTED,
    Limits,
    Outputs,
    PredictRequest,
    TooLarge,
    UnsupportedEncoding,
    decompress,
    is_compressed,
    parse_json,
    row_works,
)
from .served_model import ServedModel

_Headers: TypeAlias = Mapping[str, str] | None

CLIENT_LEFT = 499  # the status in nginx's logs; no client receives it
# Errors that are answered with their sentences: the status, and headers.
_ANSWERED_ERRORS: dict[type[Exception], tuple[int, _Headers]] = {
    Overloaded: (503, {"Retry-After": "1"}),
    TooLarge: (413, None),
    UnsupportedEncoding: (415, {"Accept-Encoding": ACCEPTED}),
    UserError: (400, None),
}
_SHOWN_URL = 200  # characters
# A name or address, and a port. Names with other characters, such as the "@" of a user,
# are not those of hosts.
_HOST = re.compile(r"([\w.-]*|\[[\da-f:.]+\])(?::\d*)?", re.ASCII | re.IGNORECASE)
# Maximum bytes and commas of a body that is parsed in the event loop.
_SMALL_BODY = 16_384
_SMALL_COUNT = 64
_STYLE = "style.css"  # of all pages of this package
_PAGE_FILES = (
    *(_STYLE, "page.css", "page.js", "request.js", "sentence.js", "word_menu.js"),
)
# The page loads nothing from other sites.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Service:
    """The endpoints, and what their requests share.

    Args:
        models: see `make_app`.
        limits: the limits.
        hosts: see `make_app`.
        poll_seconds: see `make_app`.

    Attributes:
        manager: the models.
        limits: the limits.
        answered: the number of requests answered so far.
    """

    def __init__(
        self,
        models: Mapping[str, Source],
        limits: Limits,
        hosts: Collection[str] | None,
        poll_seconds: float,
    ) -> None:
        self._hosts = hosts
        self._metrics = Metrics()
        # In bodies that are unfinished or wait for the parser.
        self._unparsed_bytes = 0
        self._parser = ThreadPoolExecutor(1)
        self.manager = ModelManager(models, limits, self._metrics, poll_seconds)
        self.limits = limits
        self.answered = 0

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Loads the models in the background; at the end, runs what still waits."""
        manager = self.manager
        loading = asyncio.create_task(manager.load())
        polling = asyncio.create_task(manager.poll_all(loading))
        yield
        polling.cancel()
        manager.stop()
        await asyncio.wait([loading, polling])
        await manager.close()

    async def health(self, request: Request) -> Response:
        """Whether every model is loaded, and which newer versions are refused."""
        manager = self.manager
        status = "ok" if manager.is_ready else "loading"
        if manager.is_stopping or manager.failure:
            status = "stopping"
        content: dict[str, object] = {"status": status}
        if manager.refused:
            content["refused"] = manager.refused
        return json_response(content, 200 if status == "ok" else 503)

    async def metrics(self, request: Request) -> Response:
        """The metrics, as Prometheus reads them."""
        return self._metrics.response()

    async def page(self, request: Request) -> Response:
        """The web page: its HTML, style or scripts."""
        # `FileResponse` would keep the file open until the client has read all of it.
        name = request.scope["path"].strip("/") or "page.html"
        if name == _STYLE:
            content = style_sheet()
        else:
            content = Path(__file__).with_name(name).read_text(encoding="utf-8")
        headers = {"Content-Security-Policy": _POLICY}
        media_type, _ = mimetypes.guess_type(name)
        return Response(content, headers=headers, media_type=media_type)

    async def models(self, request: Request) -> Response:
        """The names of the models, for which TensorFlow Serving has no endpoint.

        `split_sentences` has the names of those that split texts into sentences, and
        `details` for each one the version, the languages and what it cannot do.
        """
        splitting = []
        details = {}
        for name, served in self.manager.served.items():
            if served.model.split_sentences:
                splitting.append(name)
            details[name] = {
                "version": served.version,
                "languages": served.model.languages,
                "missing": served.model.missing,
            }
        models = {"models": [*details], "split_sentences": splitting}
        return json_response(models | {"details": details})

    async def status(self, request: Request) -> Response:
        """The states of the versions of a model, in TensorFlow Serving's form."""
        name = request.path_params["name"]
        requested = request.path_params.get("version")
        states = self.manager.states.get(name, {})
        if requested is not None:
            states = {k: v for k, v in states.items() if k == requested}
        if not states:
            missing = "any versions" if requested is None else f"version {requested}"
            raise HTTPException(404, f"Could not find {missing} of model {name}")
        statuses = []
        for version, (state, error) in sorted(states.items(), reverse=True):
            status = {
                "error_code": "UNKNOWN" if error else "OK",
                "error_message": error,
            }
            statuses.append({"version": str(version), "state": state, "status": status})
        return json_response({"model_version_status": statuses})

    async def predict(self, request: Request) -> Response:
        """Runs a signature on rows (`instances`) or columns (`inputs`)."""
        served = self._find(request)
        is_gzip = is_compressed(request.headers.get("content-encoding", ""))
        body = await self._read(request)
        served.batcher.require_room()
        parsed, works = await self._parse(served.model, body, is_gzip)
        served = self._find(request)  # a newer version may have replaced it
        request.scope["served"] = served.labels
        with served.used():
            waiting = served.batcher.submit(parsed.keys, parsed.rows, works)
            outputs = await self._answer(request, waiting)
        return json_response(parsed.answer(outputs))

    async def _parse(
        self, model: ServedModel, body: bytes, is_gzip: bool
    ) -> tuple[PredictRequest, list[int]]:
        """Returns a request and the work of each row.

        A large body is parsed in a thread, so that other requests are not delayed.
        There is one such thread, because all threads share Python's lock. It also
        decompresses, so that only one body at a time takes the memory of its content.

        Raises:
            Overloaded: too many large bodies wait.
        """

        def parse() -> tuple[PredictRequest, list[int]]:
            content = body
            if is_gzip:
                content = decompress(body, self.limits.max_body_bytes)
            values = parse_json(content, self.limits.max_values)
            parsed = PredictRequest.parse(values, self.limits.max_queue)
            beam_size = model.defaults["beam_size"]
            return parsed, row_works(parsed, self.limits, beam_size)

        is_small = len(body) <= _SMALL_BODY and body.count(b",") <= _SMALL_COUNT
        if is_small and not is_gzip:
            return parse()
        try:
            self._hold(len(body))
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._parser, parse)
        finally:
            self._unparsed_bytes -= len(body)

    def _hold(self, size: int) -> None:
        """Counts bytes of a body; the caller subtracts them at the end, in any case.

        Raises:
            Overloaded: all bodies together are too large.
        """
        self._unparsed_bytes += size
        if self._unparsed_bytes > self.limits.max_unfinished_bytes:
            raise Overloaded("there are too many large requests; try again later")

    def _find(self, request: Request) -> Servable:
        """Returns the model of a URL."""
        parameters = request.path_params
        return self.manager.find(parameters["name"], parameters.get("version"))

    async def _answer(
        self, request: Request, work: Coroutine[None, None, list[Outputs]]
    ) -> list[Outputs]:
        """Returns the results of work, unless the client leaves or time is over."""
        answer = asyncio.ensure_future(work)
        departure = asyncio.ensure_future(_disconnected(request))
        seconds = self.limits.timeout_seconds
        elapsed = time.monotonic() - request.scope["start"]
        try:
            await asyncio.wait(
                [answer, departure],
                timeout=max(seconds - elapsed, 0),
                return_when=asyncio.FIRST_COMPLETED,
            )
            if answer.done():
                return answer.result()
            if departure.done():
                raise HTTPException(CLIENT_LEFT)
            raise HTTPException(504, f"no answer within {seconds:g} seconds")
        finally:
            answer.cancel()
            departure.cancel()

    async def _read(self, request: Request) -> bytes:
        """Reads the body, up to the limits of size and time.

        Raises:
            Overloaded: all bodies together are too large.
        """
        limits = self.limits
        body = bytearray()
        size = 0
        try:
            async with asyncio.timeout(limits.timeout_seconds):
                async for chunk in request.stream():
                    size += len(chunk)
                    if size <= limits.max_body_bytes:
                        body += chunk
                        self._hold(len(chunk))
                    # Many clients read an answer only after they have sent everything.
                    elif size > limits.max_unfinished_bytes:
                        break
        except ClientDisconnect:
            raise HTTPException(CLIENT_LEFT) from None
        except TimeoutError:
            # uvicorn would wait for the rest as long as the client likes.
            message = "the body took too long to arrive"
            raise HTTPException(408, message, {"Connection": "close"}) from None
        finally:
            self._unparsed_bytes -= len(body)
        if size > limits.max_body_bytes:
            message = f"the body has more than {limits.max_body_bytes:,} bytes"
            raise HTTPException(413, message)
        return bytes(body)

    def gate(self, app: ASGIApp) -> ASGIApp:
        """Returns an app that counts and times requests; see `refusal`.

        When the server is stopping, each answer ends its connection.
        """

        async def gated(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                return await app(scope, receive, send)
            scope["start"] = time.monotonic()

            async def watched(message: Message) -> None:
                if "status" in message:
                    scope["status"] = message["status"]
                    if self.manager.is_stopping:
                        message = _closing(message)
                await send(message)

            answer = refusal(Request(scope), self._hosts) or app
            try:
                await answer(scope, receive, watched)
            except asyncio.CancelledError:
                # The server stops, and the time for the last answers is over. uvicorn
                # would send an error that is not JSON.
                if "status" in scope:
                    raise
                answer = error_response(503, "the server is stopping")
                await answer(scope, receive, watched)
            finally:
                self.answered += 1
                self._metrics.count_request(
                    endpoint=getattr(scope.get("endpoint"), "__name__", "none"),
                    status=scope.get("status", 500),
                    seconds=time.monotonic() - scope["start"],
                    model=scope.get("served"),
                )

        return gated


class _ModelName(StringConvertor):
    # A colon begins a verb, such as `:predict`, as in TensorFlow Serving.
    regex = "[^/:]+"


class _Version(IntegerConvertor):
    # Python refuses to convert thousands of digits; versions are 64-bit integers.
    regex = "[0-9]{1,19}"


def make_app(
    models: Mapping[str, Source],
    limits: Limits,
    hosts: Collection[str] | None = None,
    poll_seconds: float = 0.0,
) -> Starlette:
    """Returns the application; its `state.service` is a `Service`.

    Args:
        models: for each name, where the versions of the model are.
        limits: the limits.
        hosts: names that requests may have as `Host`, besides localhost and IP
            addresses; None: any.
        poll_seconds: the time between two looks for other versions; 0: only at the
            start.
    """
    service = Service(models, limits, hosts, poll_seconds)
    routes = [Route(f"/{x}", service.page) for x in ("", *_PAGE_FILES)]
    routes += [Route("/health", service.health), Route("/metrics", service.metrics)]
    routes += [Route("/v1/models", service.models)]
    register_url_convertor("model", _ModelName())
    register_url_convertor("version", _Version())
    model = "/v1/models/{name:model}"
    for path in (model, f"{model}/versions/{{version:version}}"):
        routes += [Route(f"{path}:predict", service.predict, methods=["POST"])]
        routes += [Route(path, service.status)]
    app = Starlette(
        routes=routes,
        lifespan=service.lifespan,
        middleware=[Middleware(service.gate)],
        exception_handlers=dict.fromkeys(
            (HTTPException, *_ANSWERED_ERRORS, Exception), failure_response
        ),
    )
    app.state.service = service
    return app


def _closing(message: Message) -> Message:
    """Returns the start of an answer that announces the end of its connection.

    Without it, clients would send the next request, which nobody reads.
    """
    return {**message, "headers": [*message["headers"], (b"connection", b"close")]}


async def _disconnected(request: Request) -> None:
    """Returns when the client closes the connection; its body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def refusal(request: Request, hosts: Collection[str] | None) -> Response | None:
    """Returns the answer to a request that must not reach the application, or None.

    Args:
        request: the request.
        hosts: names that it may have as `Host`, besides localhost and IP addresses;
            None: any.
    """
    headers = request.headers
    if "transfer-encoding" in headers and "content-length" in headers:
        # A proxy may see the end of the body elsewhere (request smuggling).
        message = "give either Content-Length or Transfer-Encoding"
        return error_response(400, message, {"Connection": "close"})
    host = headers.get("host", "")
    origin = headers.get("origin", "")
    name = _name(host)
    # Names of sites have letters, unlike addresses.
    is_address = ":" in name or name.replace(".", "").isdecimal()
    is_local = name == "" or f".{name}".endswith(".localhost")
    if hosts is not None and not (is_address or is_local or name in hosts):
        return error_response(
            421, f"{host!r} is not a host of this server: --allowed_host"
        )
    site = origin.partition("://")[2]
    is_same_site = not origin or site == host or _name(site) in (hosts or ())
    if request.method == "POST" and not is_same_site:
        return error_response(403, f"{origin!r} is another site: --allowed_host")
    return None


def _name(host: str) -> str:
    """Returns the name or address in a `Host` header."""
    match = _HOST.fullmatch(host)
    return match[1].strip("[]").lower() if match else "?"  # no host has this name


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
    for error_type, (status, headers) in _ANSWERED_ERRORS.items():
        if isinstance(error, error_type):
            return error_response(status, str(error), headers)
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

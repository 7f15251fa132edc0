"""The endpoints of `t2t serve`, with their limits and errors.

TensorFlow Serving's REST interface, the web page, health and metrics. Every error is a
JSON object with the one entry `error`.
"""

import asyncio
import contextlib
import importlib.resources
import ipaddress
import json
import time
import urllib.parse
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import Any

import prometheus_client as prometheus
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from t2t_keras.option import UserError

from .batcher import Batcher, Limits, Overloaded
from .rest import Request as PredictRequest
from .served_model import ServedModel

_CLIENT_LEFT = 499  # what nginx calls it; nobody receives it
_CLOSE = {"Connection": "close"}  # a part of the body has not been read
_EXTRA_LENGTH = 64  # about how much longer than its source an output may be
# A request of at most this work per hypothesis of the default beam size is cheap.
_CHEAP = 400
# The page loads nothing from elsewhere.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class _Served:
    """A model, and its two queues with a thread for each.

    Expensive requests have their own queue and thread, so that cheap ones never wait
    for them.
    """

    def __init__(
        self, model: ServedModel, limits: Limits, observe: Callable[[int, float], None]
    ) -> None:
        self.model = model

        def run(key: Any, rows: list[Any], is_wanted: Callable[[], bool]) -> Any:
            return model.predict(key[0], rows, dict(key[1:]), is_wanted)

        self.cheap = Batcher(run, limits, observe)
        self.expensive = Batcher(run, limits, observe, self.cheap)

    def __len__(self) -> int:
        """Returns the number of sentences that wait."""
        return len(self.cheap) + len(self.expensive)

    async def answer(self, request: PredictRequest, works: Sequence[int]) -> list[Any]:
        """Returns the outputs for the rows of a request."""
        is_cheap = sum(works) <= _CHEAP * self.model.defaults["beam_size"]
        batcher = self.cheap if is_cheap else self.expensive
        key = request.signature, *sorted(request.options.items())
        return await batcher.submit(key, request.rows, works)


class Service:
    """The models with their queues, and the endpoints.

    Args:
        models: for each name, the function that loads the model.
        limits: the limits.

    Attributes:
        limits: the limits.
        answered: number of requests so far.
        failure: why a model cannot be served.
        on_failure: called when there is a failure.
    """

    def __init__(
        self, models: Mapping[str, Callable[[], ServedModel]], limits: Limits
    ) -> None:
        self._loaders = models
        self._served: dict[str, _Served] = {}
        self._is_stopping = False
        self.limits = limits
        self.answered = 0
        self.failure: BaseException | None = None
        self.on_failure: Callable[[], None] = lambda: None
        self._registry = prometheus.CollectorRegistry()
        prometheus.ProcessCollector(registry=self._registry)
        endpoint, model = ["endpoint"], ["model"]
        self._metrics: dict[str, Any] = {
            name: kind(f"t2t_{name}", meaning, labels, registry=self._registry)
            for name, kind, meaning, labels in (
                ("requests", prometheus.Counter, "Requests", [*endpoint, "status"]),
                ("request_seconds", prometheus.Histogram, "Until the answer", endpoint),
                ("batch_seconds", prometheus.Histogram, "Time of a batch", model),
                ("batch_sentences", prometheus.Summary, "Sentences in a batch", model),
                ("queue_sentences", prometheus.Gauge, "Sentences that wait", model),
            )
        }

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Loads the models meanwhile; at the end, runs what still waits."""
        loading = asyncio.create_task(self._load())
        yield
        self.stop()
        await loading
        for served in self._served.values():
            for batcher in (served.cheap, served.expensive):
                await asyncio.to_thread(batcher.close)

    async def _load(self) -> None:
        """Loads one model after another, and translates a sentence with each."""
        for name, load in self._loaders.items():
            if self._is_stopping:
                return
            try:
                model = await asyncio.to_thread(load)
                # It traces what most requests call.
                rows: list[dict[str, str]] = [{"texts": "A test ."}]
                await asyncio.to_thread(model.predict, "translate", rows, {})
            except Exception as error:
                self.failure = error
                self.on_failure()
                return

            def observe(size: int, seconds: float, name: str = name) -> None:
                self._metrics["batch_sentences"].labels(name).observe(size)
                self._metrics["batch_seconds"].labels(name).observe(seconds)

            self._served[name] = served = _Served(model, self.limits, observe)
            self._metrics["queue_sentences"].labels(name).set_function(served.__len__)

    def stop(self) -> None:
        """Refuses further requests."""
        self._is_stopping = True
        for served in self._served.values():
            served.cheap.stop()
            served.expensive.stop()

    def count(self, endpoint: str, status: int, seconds: float) -> None:
        """Counts a request."""
        self.answered += 1
        self._metrics["requests"].labels(endpoint, status).inc()
        self._metrics["request_seconds"].labels(endpoint).observe(seconds)

    async def health(self, request: Request) -> Response:
        """Whether every model is loaded and has translated a sentence."""
        status = "ok" if len(self._served) == len(self._loaders) else "loading"
        if self._is_stopping or self.failure:
            status = "stopping"
        return _json({"status": status}, 200 if status == "ok" else 503)

    async def metrics(self, request: Request) -> Response:
        """The metrics, as Prometheus reads them."""
        text = prometheus.generate_latest(self._registry)
        return Response(text, media_type=prometheus.CONTENT_TYPE_LATEST)

    async def page(self, request: Request) -> Response:
        """The web page: its HTML, style or script."""
        name = request.scope["path"].strip("/") or "page.html"
        text = importlib.resources.files(__package__).joinpath(name).read_text("utf-8")
        kind = {"html": "html", "css": "css", "js": "javascript"}[name.split(".")[1]]
        headers = {"Content-Security-Policy": _POLICY}
        return Response(text, media_type=f"text/{kind}", headers=headers)

    async def models(self, request: Request) -> Response:
        """The names of the models, which TensorFlow Serving does not tell."""
        return _json({"models": list(self._served)})

    async def status(self, request: Request) -> Response:
        """The state of a model."""
        name, version, state = request.path_params["name"], 1, "LOADING"
        if name in self._served or name not in self._loaders:
            version, state = self._find(request).model.version, "AVAILABLE"
        ok = {"error_code": "OK", "error_message": ""}
        entry = {"version": str(version), "state": state, "status": ok}
        return _json({"model_version_status": [entry]})

    async def predict(self, request: Request) -> Response:
        """Runs a signature on rows (`instances`) or columns (`inputs`)."""
        served = self._find(request)
        try:
            body = json.loads(await self._read(request))
        except (ValueError, RecursionError) as error:
            raise HTTPException(400, f"the body is not JSON: {error}") from None
        parsed = PredictRequest.parse(body)
        works = self.work(served.model, parsed)
        found = await self._answer(request, served.answer(parsed, works))
        return _json(parsed.answer(found))

    def work(self, model: ServedModel, request: PredictRequest) -> list[int]:
        """Returns the work of each row: its length times the beam size.

        The length is that of the source in bytes of UTF-8, which is at least its
        number of tokens, plus a constant, as outputs may be longer than sources. The
        signature `score` searches nothing: the lengths of both texts are added.

        Raises:
            UserError: the beam size or a length is beyond the limit.
            HTTPException: all rows together are beyond the limits.
        """
        limits, default = self.limits, model.defaults["beam_size"]
        beam = request.options.get("beam_size", default)
        if beam > max(limits.max_beam_size, default):
            raise UserError(f"beam_size {beam} is more than {limits.max_beam_size}")
        beam = 1 if request.signature == "score" else beam
        works = []
        for row in request.rows:
            if any(len(text) > limits.max_characters for text in row.values()):
                most = limits.max_characters
                raise UserError(f"a sentence has more than {most:,} characters")
            size = sum(len(text.encode()) for text in row.values())
            works.append(beam * (size + _EXTRA_LENGTH))
        for count, most, what in (
            (len(works), limits.max_queue, "sentences"),
            (sum(works), limits.max_work, "bytes times beam size"),
        ):
            if count > most:
                raise HTTPException(
                    413,
                    f"the request has {count:,} {what}; at most {most:,} are allowed",
                )
        return works

    def _find(self, request: Request) -> _Served:
        """Returns the model of a URL."""
        name = request.path_params["name"]
        version = request.path_params.get("version")
        if name in self._loaders and name not in self._served:
            raise Overloaded("the model is loading; try again later")
        served = self._served.get(name)
        if served is None or version not in (None, str(served.model.version)):
            wanted = f"Latest({name})" if version is None else f"{name}, {version}"
            raise HTTPException(404, f"Servable not found for request: {wanted}")
        return served

    async def _answer(self, request: Request, work: Any) -> list[Any]:
        """Returns the results of work, unless the client leaves or it takes long."""
        tasks = [asyncio.ensure_future(x) for x in (work, _disconnected(request))]
        passed = time.monotonic() - request.scope["t2t.start"]
        left = max(self.limits.timeout_seconds - passed, 0)
        try:
            first = asyncio.FIRST_COMPLETED
            await asyncio.wait(tasks, timeout=left, return_when=first)
            if tasks[0].done():
                return tasks[0].result()
            if tasks[1].done():
                raise HTTPException(_CLIENT_LEFT)
            seconds = self.limits.timeout_seconds
            raise HTTPException(504, f"no answer within {seconds:g} seconds")
        finally:
            for task in tasks:
                task.cancel()

    async def _read(self, request: Request) -> bytes:
        """Reads the body, up to the limits of size and time."""
        most = self.limits.max_body_bytes
        body = bytearray()
        try:
            async with asyncio.timeout(self.limits.timeout_seconds):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > most:
                        refusal = f"the body has more than {most:,} bytes"
                        raise HTTPException(413, refusal, _CLOSE)
        except ClientDisconnect:
            raise HTTPException(_CLIENT_LEFT) from None
        except TimeoutError:
            refusal = "the body took too long to arrive"
            raise HTTPException(408, refusal, _CLOSE) from None
        return bytes(body)


class _Gate:
    """Middleware that counts and times requests, and refuses those of other sites.

    It protects a server at the loopback address from web pages. The name of a page's
    server can be made to lead to 127.0.0.1 (DNS rebinding), and then the browser lets
    the page read what this server answers: the name in `Host` must be known. And any
    page can send a form to this server: `Origin`, which browsers add, must be this
    server.
    """

    def __init__(
        self, app: ASGIApp, service: Service, hosts: Collection[str] | None
    ) -> None:
        self._app = app
        self._service = service
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["t2t.start"] = start = time.monotonic()
        status = 500

        async def measured(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            answer = self._refusal(scope) or self._app
            await answer(scope, receive, measured)
        finally:
            endpoint = getattr(scope.get("endpoint"), "__name__", "none")
            self._service.count(endpoint, status, time.monotonic() - start)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin", "")
        if self._hosts is not None and not self._is_known(host):
            return _error(421, f"{host!r} is not a host of this server: --allowed_host")
        site = origin.partition("://")[2]
        is_own = site == host or _name(site) in (self._hosts or ())
        if origin and scope["method"] == "POST" and not is_own:
            return _error(403, f"{origin!r} is another site: --allowed_host")
        return None

    def _is_known(self, host: str) -> bool:
        name = _name(host)
        if name in ("", *(self._hosts or ())) or f".{name}".endswith(".localhost"):
            return True
        try:
            ipaddress.ip_address(name or "")
        except ValueError:
            return False
        return True


def make_app(
    models: Mapping[str, Callable[[], ServedModel]],
    limits: Limits,
    hosts: Collection[str] | None = None,
) -> Starlette:
    """Returns the application; its `state.service` is a `Service`.

    Args:
        models: for each name, the function that loads the model.
        limits: the limits.
        hosts: names that requests may have as `Host`, besides localhost and IP
            addresses; None: any.
    """
    service = Service(models, limits)
    routes = [Route(f"/{x}", service.page) for x in ("", "page.css", "page.js")]
    routes += [Route("/health", service.health), Route("/metrics", service.metrics)]
    routes += [Route("/v1/models", service.models)]
    for path in ("/v1/models/{name}", "/v1/models/{name}/versions/{version}"):
        routes += [Route(f"{path}:predict", service.predict, methods=["POST"])]
        routes += [Route(path, service.status)]

    def failed(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            return _error(error.status_code, error.detail, error.headers)
        if isinstance(error, Overloaded):
            return _error(503, str(error), {"Retry-After": "1"})
        if isinstance(error, UserError):
            return _error(400, str(error))
        return _error(500, "the server failed; its log tells why")

    app = Starlette(
        routes=routes,
        lifespan=service.lifespan,
        middleware=[Middleware(_Gate, service=service, hosts=hosts)],
        exception_handlers=dict.fromkeys(
            (HTTPException, Overloaded, UserError, Exception), failed
        ),
    )
    app.state.service = service
    return app


def _json(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Returns a value as JSON in ASCII, which has all text, and -Infinity.

    TensorFlow Serving has it for the scores of outputs that do not exist.
    """
    return Response(json.dumps(value), status, headers, "application/json")


def _error(
    status: int, message: str, headers: Mapping[str, str] | None = None
) -> Response:
    return _json({"error": message}, status, headers)


def _name(host: str) -> str | None:
    """Returns the name or address in a `Host` header; None: it has none."""
    try:
        return urllib.parse.urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return None


async def _disconnected(request: Request) -> None:
    """Returns when the client has closed the connection; the body is read already."""
    while (await request.receive())["type"] != "http.disconnect":
        pass

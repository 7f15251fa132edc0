"""The endpoints of `t2t serve`, with their limits and errors.

TensorFlow Serving's REST interface, the web page, health and metrics. Every error is a
JSON object with the one entry `error`.
"""

import asyncio
import contextlib
import dataclasses
import gc
import itertools
import json
import mimetypes
import re
import time
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterator,
    Mapping,
)
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeAlias

import prometheus_client as prometheus
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from t2t_keras.data.console import busy, say
from t2t_keras.errors import UserError, first_line
from t2t_keras.html_page import style_sheet

from .alternatives import NUM_ALTERNATIVES
from .batcher import Batcher, Overloaded
from .connections import BUSY, Connections
from .content_encoding import ACCEPTED, UnsupportedEncoding, decompress, is_compressed
from .limits import Limits
from .rest import Request as PredictRequest
from .rest import TooLarge, parse_json
from .rows import Key, Outputs, Texts
from .served_model import ServedModel
from .url_parts import register_parts
from .versions import FixedModel, VersionFolder

_Headers: TypeAlias = Mapping[str, str] | None
# Where the versions of a model are; or the function that loads its only one.
Source: TypeAlias = FixedModel | VersionFolder | Callable[[], ServedModel]

# A name or address, and a port. Names with other characters, such as the "@" of a user,
# are not those of hosts.
_HOST = re.compile(r"([\w.-]*|\[[\da-f:.]+\])(?::\d*)?", re.ASCII | re.IGNORECASE)
_CLIENT_LEFT = 499  # the status in nginx's logs; no client receives it
# Maximum bytes and commas of a body that is parsed in the event loop.
_SMALL_BODY = 16_384
_SMALL_COUNT = 64
_EXTRA_LENGTH = 64  # a rough bound on how much longer than its source an output is
_PHRASE_WEIGHT = 4  # the work of a phrase's character, in characters of a sentence
# A sentence is cheap up to this work for each hypothesis of the default beam size.
_CHEAP = 400
_SHOWN_URL = 200  # characters
_STYLE = "style.css"  # of all pages of this package
_PAGE_FILES = (
    *(_STYLE, "page.css", "page.js", "request.js", "sentence.js", "word_menu.js"),
)
# The page loads nothing from other sites.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@dataclasses.dataclass(eq=False)
class _Served:
    """A model that is loaded, and its queue.

    Attributes:
        name: its name.
        version: its version.
        model: the model.
        batcher: its queue.
        requests: the number of requests that it has not answered yet.
        is_unused: set while there are no such requests.
    """

    name: str
    version: int
    model: ServedModel
    batcher: Batcher
    requests: int = 0
    is_unused: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Keeps the model loaded during the `with` block."""
        self.requests += 1
        self.is_unused.clear()
        try:
            yield
        finally:
            self.requests -= 1
            if not self.requests:
                self.is_unused.set()


class Service:
    """The models with their queues, and the endpoints.

    Args:
        models: see `make_app`.
        limits: the limits.
        hosts: see `make_app`.
        poll_seconds: see `make_app`.

    Attributes:
        limits: the limits.
        connections: the connections of the server that runs it.
        answered: the number of requests answered so far.
        failure: why a model cannot be served; None: all can so far.
        on_failure: called when `failure` is set.
        on_ready: called when all models are loaded.
    """

    def __init__(
        self,
        models: Mapping[str, Source],
        limits: Limits,
        hosts: Collection[str] | None,
        poll_seconds: float,
    ) -> None:
        self._sources: dict[str, FixedModel | VersionFolder] = {}
        self._hosts = hosts
        self._poll_seconds = poll_seconds
        self._served: dict[str, _Served] = {}
        # With those of models that are being unloaded.
        self._batchers: set[Batcher] = set()
        # The state and the error of each version, as TensorFlow Serving calls them.
        self._states: dict[str, dict[int, tuple[str, str]]] = {}
        for name, source in models.items():
            self._sources[name] = FixedModel(source) if callable(source) else source
            self._states[name] = {}
        self._is_stopping = False
        self._num_busy = 0  # requests whose bodies have arrived
        self._unparsed_bytes = 0  # in large bodies that wait for the parser
        self._parser = ThreadPoolExecutor(1)
        self.limits = limits
        self.connections = Connections(limits)
        self.answered = 0
        self.failure: BaseException | None = None
        self.on_failure: Callable[[], None] = lambda: None
        self.on_ready: Callable[[], None] = lambda: None
        self._registry = prometheus.CollectorRegistry()
        prometheus.ProcessCollector(registry=self._registry)
        endpoint = ["endpoint"]
        model = ["model", "version"]
        self._metrics: dict[str, Any] = {
            name: metric(f"t2t_{name}", description, labels, registry=self._registry)
            for name, metric, description, labels in (
                ("requests", prometheus.Counter, "Requests", [*endpoint, "status"]),
                ("model_requests", prometheus.Counter, "Requests", [*model, "status"]),
                ("request_seconds", prometheus.Histogram, "Until the answer", endpoint),
                ("batch_seconds", prometheus.Histogram, "Time of a batch", model),
                ("batch_sentences", prometheus.Summary, "Sentences in a batch", model),
                ("queue_sentences", prometheus.Gauge, "Sentences that wait", model),
            )
        }

    @property
    def is_ready(self) -> bool:
        """Whether every model is loaded and has translated a sentence."""
        return len(self._served) == len(self._sources)

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Loads the models in the background; at the end, runs what still waits."""
        loading = asyncio.create_task(self._load())
        polling = asyncio.create_task(self._poll_all(loading))
        watching = asyncio.create_task(self.connections.watch())
        yield
        polling.cancel()
        watching.cancel()
        self.stop()
        await asyncio.wait([loading, polling])
        for batcher in [*self._batchers]:
            await asyncio.to_thread(batcher.close)

    async def _load(self) -> None:
        """Loads one model after another."""
        for name in self._sources:
            with busy(f"loading {name}"):
                is_loaded = await self._load_first(name)
            if not is_loaded:
                return
        self.on_ready()

    async def _load_first(self, name: str) -> bool:
        """Loads a model; returns whether it is served."""
        failure: Exception = UserError(f"--model: {name} has no complete version")
        while name not in self._served:
            if self._is_stopping:
                return False
            try:
                if not await self.poll(name):
                    self.failure = failure
                    self.on_failure()
                    return False
            except Exception as error:
                failure = error  # raised unless an earlier version is intact
        return True

    async def _poll_all(self, loading: asyncio.Task[None]) -> None:
        """Looks for other versions of the models every `poll_seconds`."""
        await asyncio.wait([loading])
        while self._poll_seconds:
            await asyncio.sleep(self._poll_seconds)
            for name in self._served:
                with contextlib.suppress(Exception):  # the next poll reports it
                    await self.poll(name)

    async def poll(self, name: str) -> bool:
        """Serves the newest version of a model, and unloads the previous one.

        The version translates a sentence before it is served. No request is lost: the
        previous version answers those that it has.

        Returns:
            Whether the served version has changed.

        Raises:
            Exception: the version cannot be loaded. The previous one is still served.
        """
        source = self._sources[name]
        served = self._served.get(name)
        served_version = None if served is None else served.version
        version = await asyncio.to_thread(source.find, served_version)
        if version is None:
            return False
        states = self._states[name]
        states[version] = ("LOADING", "")
        try:
            model = await asyncio.to_thread(source.load, version)
            # This traces what most requests call.
            rows: list[dict[str, str]] = [{"texts": "A test ."}]
            await asyncio.to_thread(model.predict, "translate", rows, {})
        except Exception as error:
            source.fail(version, error)
            states[version] = ("END", first_line(error) or type(error).__name__)
            raise
        self._serve(name, version, model)
        del model
        if served is not None:
            say(f"t2t serve: version {version} of {name} replaces {served.version}")
            await self._unload(served)
            del served
            await asyncio.to_thread(gc.collect)  # graphs have cycles
        return True

    def _serve(self, name: str, version: int, model: ServedModel) -> None:
        """Makes the queue of a version; further requests are sent to it."""
        labels = name, str(version)

        def run(
            key: Key, rows: list[Texts], is_wanted: Callable[[], bool]
        ) -> list[Outputs]:
            return model.predict(key[0], rows, dict(key[1]), is_wanted)

        def observe(size: int, seconds: float) -> None:
            self._metrics["batch_sentences"].labels(*labels).observe(size)
            self._metrics["batch_seconds"].labels(*labels).observe(seconds)

        # On two cores, 8 to 40% more texts are served with two batches at a time; but
        # 13% fewer by an engine that divides each batch itself.
        threads = 1 if model.divides_batches else 2
        cheap_work = _CHEAP * model.defaults["beam_size"]
        batcher = Batcher(run, self.limits, observe, cheap_work, threads)
        waiting = self._metrics["queue_sentences"].labels(*labels)
        waiting.set_function(lambda: len(batcher))
        self._batchers.add(batcher)
        self._states[name][version] = ("AVAILABLE", "")
        self._served[name] = _Served(name, version, model, batcher)

    async def _unload(self, served: _Served) -> None:
        """Drops a version when all of its requests are answered."""
        states = self._states[served.name]
        states[served.version] = ("UNLOADING", "")
        while served.requests:
            await served.is_unused.wait()
        await asyncio.to_thread(served.batcher.close)
        self._batchers.remove(served.batcher)
        self._metrics["queue_sentences"].remove(served.name, str(served.version))
        states[served.version] = ("END", "")

    def stop(self) -> None:
        """Refuses further requests."""
        self._is_stopping = True
        for batcher in self._batchers:
            batcher.close(wait=False)

    async def health(self, request: Request) -> Response:
        """Whether every model is loaded and has translated a sentence."""
        status = "ok" if self.is_ready else "loading"
        if self._is_stopping or self.failure:
            status = "stopping"
        return _json({"status": status}, 200 if status == "ok" else 503)

    async def metrics(self, request: Request) -> Response:
        """The metrics, as Prometheus reads them."""
        text = prometheus.generate_latest(self._registry)
        return Response(text, media_type=prometheus.CONTENT_TYPE_LATEST)

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
        for name, served in self._served.items():
            if served.model.split_sentences:
                splitting.append(name)
            details[name] = {
                "version": served.version,
                "languages": served.model.languages,
                "missing": served.model.missing,
            }
        models = {"models": [*self._served], "split_sentences": splitting}
        return _json(models | {"details": details})

    async def status(self, request: Request) -> Response:
        """The states of the versions of a model, in TensorFlow Serving's form."""
        name = request.path_params["name"]
        requested = request.path_params.get("version")
        states = self._states.get(name, {})
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
        return _json({"model_version_status": statuses})

    async def predict(self, request: Request) -> Response:
        """Runs a signature on rows (`instances`) or columns (`inputs`)."""
        served = self._find(request)
        is_gzip = is_compressed(request.headers.get("content-encoding", ""))
        body = await self._read(request)
        if self._num_busy >= self.connections.max_busy:
            raise Overloaded("there are too many requests; try again later")
        served.batcher.require_room()
        self._num_busy += 1
        request.scope[BUSY] = True
        try:
            parsed, works = await self._parse(served.model, body, is_gzip)
            served = self._find(request)  # a newer version may have replaced it
            request.scope["served"] = served.name, str(served.version)
            with served.used():
                waiting = served.batcher.submit(parsed.keys, parsed.rows, works)
                outputs = await self._answer(request, waiting)
        finally:
            self._num_busy -= 1
        return _json(parsed.answer(outputs))

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
            return parsed, self.work(model, parsed)

        is_small = len(body) <= _SMALL_BODY and body.count(b",") <= _SMALL_COUNT
        if is_small and not is_gzip:
            return parse()
        if self._unparsed_bytes + len(body) > self.limits.max_unfinished_bytes:
            raise Overloaded("there are too many large requests; try again later")
        self._unparsed_bytes += len(body)
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._parser, parse)
        finally:
            self._unparsed_bytes -= len(body)

    def work(self, model: ServedModel, request: PredictRequest) -> list[int]:
        """Returns the work of each row: its length times the beam size.

        The length is that of the source in bytes of UTF-8, which is at least its
        number of tokens, plus a constant, as outputs may be longer than sources, and
        plus those of its phrases, with a weight. The signature `score` searches
        nothing: the lengths of both texts are added. `alternatives` searches once for
        each word.

        Raises:
            UserError: the beam size or a length is beyond the limit.
            TooLarge: all rows together are beyond the limit.
        """
        limits = self.limits
        default = model.defaults["beam_size"]
        max_beam_size = max(limits.max_beam_size, default)
        # Beam size and characters of phrases; most rows have the same options.
        by_key: dict[int, tuple[int, int]] = {}
        works = []
        for key, row in zip(request.keys, request.rows, strict=True):
            if id(key) not in by_key:
                options = dict(key[1])
                glossary = itertools.chain(*options.get("glossary", ()))
                phrases = (*glossary, *options.get("forbidden", ()))
                beam = options.get("beam_size", default)
                by_key[id(key)] = beam, sum(map(len, phrases))
            beam, characters = by_key[id(key)]
            longest = max(map(len, row.values()), default=0)
            if beam > max_beam_size:
                raise UserError(f"beam_size {beam} is more than {max_beam_size}")
            if longest > limits.max_characters:
                raise UserError(
                    f"a sentence has more than {limits.max_characters:,} characters"
                )
            if characters > limits.max_phrase_characters:
                raise UserError(
                    f"phrases have more than {limits.max_phrase_characters:,} "
                    "characters"
                )
            size = sum(len(text.encode()) for text in row.values())
            size += _EXTRA_LENGTH + _PHRASE_WEIGHT * characters
            works.append(_searches(request.signature, beam) * size)
        total = sum(works)
        if total > limits.max_work:
            raise TooLarge(
                f"the request has {total:,} bytes times beam size; at most "
                f"{limits.max_work:,} are allowed"
            )
        return works

    def _find(self, request: Request) -> _Served:
        """Returns the model of a URL."""
        name = request.path_params["name"]
        version = request.path_params.get("version")
        servable = (
            f"Latest({name})" if version is None else f"Specific({name}, {version})"
        )
        missing = f"Servable not found for request: {servable}"
        if name not in self._sources:
            names = ", ".join(self._sources)
            raise HTTPException(404, f"{missing}; the models are: {names}")
        if name not in self._served:
            raise Overloaded("the model is loading; try again later")
        served = self._served[name]
        if version not in (None, served.version):
            raise HTTPException(404, f"{missing}; its version is {served.version}")
        return served

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
                raise HTTPException(_CLIENT_LEFT)
            raise HTTPException(504, f"no answer within {seconds:g} seconds")
        finally:
            answer.cancel()
            departure.cancel()

    async def _read(self, request: Request) -> bytes:
        """Reads the body, up to the limits of size and time."""
        max_bytes = self.limits.max_body_bytes
        body = bytearray()
        try:
            async with asyncio.timeout(self.limits.timeout_seconds):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > max_bytes:
                        refusal = f"the body has more than {max_bytes:,} bytes"
                        raise HTTPException(413, refusal)
        except ClientDisconnect:
            raise HTTPException(_CLIENT_LEFT) from None
        except TimeoutError:
            refusal = "the body took too long to arrive"
            raise HTTPException(408, refusal) from None
        return bytes(body)

    def gate(self, app: ASGIApp) -> ASGIApp:
        """Returns an app that counts and times requests, and refuses other sites.

        This protects a server at the loopback address from web pages. The owner of a
        page can make the name of its site resolve to 127.0.0.1 (DNS rebinding), and
        then the browser lets the page read the answers of this server: the name in
        `Host` must be allowed. Any page can also send a form to this server: `Origin`,
        which browsers add, must be this server.
        """

        async def gated(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                return await app(scope, receive, send)
            scope["start"] = time.monotonic()

            async def watched(message: Message) -> None:
                if "status" in message:
                    scope["status"] = message["status"]
                await send(message)

            try:
                await (self._refusal(Request(scope)) or app)(scope, receive, watched)
            except asyncio.CancelledError:
                # The server stops, and the time for the last answers is over. uvicorn
                # would send an error that is not JSON.
                if "status" in scope:
                    raise
                await _error(503, "the server is stopping")(scope, receive, watched)
            finally:
                endpoint = getattr(scope.get("endpoint"), "__name__", "none")
                status = scope.get("status", 500)
                self.answered += 1
                self._metrics["requests"].labels(endpoint, status).inc()
                seconds = time.monotonic() - scope["start"]
                self._metrics["request_seconds"].labels(endpoint).observe(seconds)
                if served := scope.get("served"):
                    self._metrics["model_requests"].labels(*served, status).inc()

        return gated

    def _refusal(self, request: Request) -> Response | None:
        headers = request.headers
        if "transfer-encoding" in headers and "content-length" in headers:
            # A proxy may see the end of the body elsewhere (request smuggling).
            refusal = "give either Content-Length or Transfer-Encoding"
            return _error(400, refusal, {"Connection": "close"})
        host = headers.get("host", "")
        origin = headers.get("origin", "")
        name = _name(host)
        hosts = self._hosts or ()
        # Names of sites have letters, unlike addresses.
        is_address = ":" in name or name.replace(".", "").isdecimal()
        is_local = name == "" or f".{name}".endswith(".localhost")
        if self._hosts is not None and not (is_address or is_local or name in hosts):
            return _error(421, f"{host!r} is not a host of this server: --allowed_host")
        site = origin.partition("://")[2]
        is_same_site = not origin or site == host or _name(site) in hosts
        if request.method == "POST" and not is_same_site:
            return _error(403, f"{origin!r} is another site: --allowed_host")
        return None


def make_app(
    models: Mapping[str, Source],
    limits: Limits,
    hosts: Collection[str] | None = None,
    poll_seconds: float = 0.0,
) -> Starlette:
    """Returns the application; its `state.service` is a `Service`.

    Args:
        models: for each name, the folder of the model's versions, or the function that
            loads the only one.
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
    register_parts()
    model = "/v1/models/{name:model}"
    for path in (model, f"{model}/versions/{{version:version}}"):
        routes += [Route(f"{path}:predict", service.predict, methods=["POST"])]
        routes += [Route(path, service.status)]

    def failed(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            return _http_error(request, error)
        if isinstance(error, Overloaded):
            return _error(503, str(error), {"Retry-After": "1"})
        if isinstance(error, TooLarge):
            return _error(413, str(error))
        if isinstance(error, UnsupportedEncoding):
            return _error(415, str(error), {"Accept-Encoding": ACCEPTED})
        if isinstance(error, UserError):
            return _error(400, str(error))
        return _error(500, "the server failed; its log tells why")

    app = Starlette(
        routes=routes,
        lifespan=service.lifespan,
        middleware=[Middleware(service.gate)],
        exception_handlers=dict.fromkeys(
            (
                HTTPException,
                Overloaded,
                TooLarge,
                UnsupportedEncoding,
                UserError,
                Exception,
            ),
            failed,
        ),
    )
    app.state.service = service
    return app


def _searches(signature: str, beam_size: int) -> int:
    """Returns how many hypotheses are computed for each token of a row."""
    if signature == "score":
        return 1
    return beam_size * (NUM_ALTERNATIVES if signature == "alternatives" else 1)


def _json(value: object, status: int = 200, headers: _Headers = None) -> Response:
    """Returns a value as JSON in ASCII.

    Scores of outputs that do not exist are -Infinity, as in TensorFlow Serving.
    """
    return Response(json.dumps(value), status, headers, "application/json")


def _error(status: int, message: str, headers: _Headers = None) -> Response:
    return _json({"error": message}, status, headers)


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
    return _error(error.status_code, message, headers)


def _name(host: str) -> str:
    """Returns the name or address in a `Host` header."""
    match = _HOST.fullmatch(host)
    return match[1].strip("[]").lower() if match else "?"  # no host has this name


async def _disconnected(request: Request) -> None:
    """Returns when the client closes the connection; its body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass

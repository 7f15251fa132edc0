"""The endpoints of `t2t serve`, with their limits and errors.

TensorFlow Serving's REST interface, LibreTranslate's, the web page's own, health and
metrics. Every error is a JSON object with the one entry `error`.
"""

import asyncio
import contextlib
import dataclasses
import ipaddress
import json
import logging
import math
import os
import socket
import time
import urllib.parse
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from types import FrameType
from typing import Annotated, Any, TypeVar

import uvicorn
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from t2t_keras.decoding.alignment import AlignmentHead
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.evaluation.attention_page import attention_page, pictures
from t2t_keras.option import UserError

from .batcher import Batcher, Limits, Overloaded
from .page import PAGE, POLICY
from .served_model import Call, ServedModel, request_value

_log = logging.getLogger(__name__)

_MISSING = "Invalid request: missing {} parameter"  # LibreTranslate's words
_NO_DETECTION = "this server detects no languages; give the source"
# Longer than clients and proxies keep a connection that is idle (httpx 5 seconds, nginx
# 60): a request on a connection that the server closes just then would be lost.
_KEEP_ALIVE_SECONDS = 75
_CLIENT_LEFT = 499  # what nginx calls it; nobody receives it
_NAMES = {
    **{"ar": "Arabic", "cs": "Czech", "da": "Danish", "de": "German", "el": "Greek"},
    **{"en": "English", "es": "Spanish", "et": "Estonian", "fa": "Persian"},
    **{"fi": "Finnish", "fr": "French", "he": "Hebrew", "hi": "Hindi"},
    **{"hu": "Hungarian", "it": "Italian", "ja": "Japanese", "ko": "Korean"},
    **{"lt": "Lithuanian", "lv": "Latvian", "nl": "Dutch", "pl": "Polish"},
    **{"pt": "Portuguese", "ro": "Romanian", "ru": "Russian", "sv": "Swedish"},
    **{"tr": "Turkish", "uk": "Ukrainian", "vi": "Vietnamese", "zh": "Chinese"},
}
_Body = TypeVar("_Body", bound=BaseModel)
_Count = Annotated[int, Field(ge=1, strict=True)]


class _Translation(BaseModel):
    """The body of `/translate`, as LibreTranslate defines it; the rest is ignored."""

    q: str | list[str]
    source: str
    target: str
    format: str = "text"
    alternatives: Annotated[int, Field(ge=0)] = 0


def _served_options() -> dict[str, Any]:
    """Returns the decoding options that requests may have, as fields of a body."""
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(DecodingOptions):
        if field.metadata["is_served"]:
            kind: Any = Annotated[float, Field(allow_inf_nan=False)]
            if field.type is int:
                kind = Annotated[int, Field(ge=field.metadata["least"], strict=True)]
            fields[field.name] = (kind | None, None)
    return fields


_Options: Any = create_model(
    "_Options", __config__=ConfigDict(extra="forbid"), **_served_options()
)


class _Texts(_Options):
    """The body of `/api/translate`, beside the decoding options."""

    texts: list[str]
    model: str | None = None
    token_scores: bool = False
    alignments: bool = False
    alignment_layer: _Count | None = None
    alignment_head: _Count | None = None


class _Pair(BaseModel, extra="forbid"):
    """The body of `/api/attention`; the target is an output, by default the best."""

    text: str
    target: str | None = None
    model: str | None = None


class Service:
    """The models with their queues, and the endpoints.

    Args:
        models: the models; the first is the default of the web page's endpoints.
        limits: the limits.

    Attributes:
        limits: the limits.
        answered: number of requests so far.
    """

    def __init__(self, models: Sequence[ServedModel], limits: Limits) -> None:
        self._models = {model.name: model for model in models}
        self.limits = limits
        self._batchers: dict[str, Batcher] = {}
        self._warm_ups: list[asyncio.Task[Any]] = []
        self._is_stopping = False
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self.answered = 0
        self._requests = Counter(
            *("t2t_requests", "Requests", ["endpoint", "status"]),
            registry=self._registry,
        )
        self._seconds = Histogram(
            *("t2t_request_seconds", "Time until the answer", ["endpoint"]),
            registry=self._registry,
        )
        self._batch_sentences = Histogram(
            *("t2t_batch_sentences", "Sentences in a batch", ["model"]),
            buckets=[2**i for i in range(11)],
            registry=self._registry,
        )
        self._batch_seconds = Histogram(
            *("t2t_batch_seconds", "Time of a batch in the model", ["model"]),
            registry=self._registry,
        )
        self._queue = Gauge(
            *("t2t_queue_sentences", "Sentences that wait", ["model"]),
            registry=self._registry,
        )

    @contextlib.asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """Starts the queues and the warm-up; at the end, runs what still waits."""
        for name, model in self._models.items():
            batcher = Batcher(model.run, self.limits, self._observer(name))
            self._batchers[name] = batcher
            self._queue.labels(name).set_function(batcher.__len__)
            warm_up = batcher.submit(Call.of(model.warm_up), ["A test ."])
            self._warm_ups.append(asyncio.create_task(warm_up))
        yield
        self.stop()
        for batcher in self._batchers.values():
            await asyncio.to_thread(batcher.close)
        await asyncio.gather(*self._warm_ups, return_exceptions=True)

    def stop(self) -> None:
        """Refuses further requests."""
        self._is_stopping = True
        for batcher in self._batchers.values():
            batcher.stop()

    def count(self, endpoint: str, status: int, seconds: float) -> None:
        """Counts a request."""
        self.answered += 1
        self._requests.labels(endpoint, status).inc()
        self._seconds.labels(endpoint).observe(seconds)

    # Health, metrics and the page.

    async def health(self) -> Response:
        """Whether every model has answered its warm-up sentence."""
        failed = [
            x.exception() for x in self._warm_ups if x.done() and not x.cancelled()
        ]
        if self._is_stopping:
            status = "stopping"
        elif any(failed):
            status = f"a model cannot translate: {next(filter(None, failed))}"
        elif not all(task.done() for task in self._warm_ups):
            status = "loading"
        else:
            return JSONResponse({"status": "ok"})
        return JSONResponse({"status": status}, 503)

    async def metrics(self) -> Response:
        """The metrics, as Prometheus reads them."""
        text = generate_latest(self._registry)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    async def page(self) -> Response:
        """The web page."""
        return HTMLResponse(PAGE, headers={"Content-Security-Policy": POLICY})

    # The endpoints of the page.

    async def models(self) -> Response:
        """What the models are and can do."""
        found = [
            {
                "name": model.name,
                "version": model.version,
                "kind": "export" if model.is_export else "run",
                "languages": model.languages,
                "beam_size": model.beam_size,
                "nested": model.is_nested,
            }
            for model in self._models.values()
        ]
        return JSONResponse({"models": found} | {"limits": vars(self.limits)})

    async def texts(self, request: Request) -> Response:
        """The n best outputs with their scores, and the tokens if known."""
        body = _parsed(_Texts, await self._json(request))
        model = self._model(body.model)
        options = {name: getattr(body, name) for name in _Options.model_fields}
        n = options["n_best"] = body.n_best or 1
        if body.beam_size is None and n > model.beam_size:
            options["beam_size"] = n
        self._check_beam(model, n_best=n, beam_size=options["beam_size"])
        self._check_texts(body.texts)
        head = AlignmentHead(body.alignment_layer, body.alignment_head)
        if head != AlignmentHead() and not body.alignments:
            raise HTTPException(
                400, "alignment_layer and alignment_head need alignments true"
            )
        call = Call.of(
            model.n_best,
            **options,
            token_scores=body.token_scores or None,
            alignment=head if body.alignments else None,
        )
        found = await self._answer(request, model, call, body.texts)
        names = {"token_log_probs": body.token_scores, "alignment": body.alignments}
        asked = [name for name, is_asked in names.items() if is_asked]
        outputs = [
            [
                _output(model, x) | {name: getattr(x, name) for name in asked}
                for x in hypotheses
            ]
            for hypotheses in found
        ]
        return JSONResponse({"model": model.name, "outputs": outputs})

    async def attention(self, request: Request) -> Response:
        """The weights of every layer and head, from target tokens to source tokens."""
        body = _parsed(_Pair, await self._json(request))
        found = await self._attention(request, body)
        return JSONResponse(
            {
                "source": found.source,
                "target": found.target,
                "cross": found.cross.astype(float).round(4).tolist(),
            }
        )

    async def attention_page(
        self, request: Request, text: str, model: str | None = None
    ) -> Response:
        """The page of `t2t attention`: all kinds of attention, layers and heads."""
        found = await self._attention(request, _Pair(text=text, model=model))
        policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
        return HTMLResponse(
            attention_page(text, pictures(*found)),
            headers={"Content-Security-Policy": policy},
        )

    async def _attention(self, request: Request, pair: _Pair) -> Any:
        model = self._model(pair.model)
        self._check_texts([pair.text, pair.target or ""])
        call = Call.of(model.attention)
        (found,) = await self._answer(request, model, call, [(pair.text, pair.target)])
        return found

    # LibreTranslate.

    async def languages(self) -> Response:
        """The languages, with the targets of each."""
        pairs = [model.languages for model in self._models.values() if model.languages]
        codes = dict.fromkeys(code for pair in pairs for code in pair)
        targets = {
            code: [t for s, t in dict.fromkeys(pairs) if s == code] for code in codes
        }
        return JSONResponse(
            [
                {"code": code, "name": _NAMES.get(code, code), "targets": targets[code]}
                for code in codes
            ]
        )

    async def translate(self, request: Request) -> Response:
        """Translates a text or a list of texts, every line by itself."""
        body = _parsed(_Translation, await self._form_or_json(request), _MISSING)
        model = self._pair(body.source, body.target)
        if body.format != "text":
            raise HTTPException(400, f"{body.format} format is not supported")
        texts = [body.q] if isinstance(body.q, str) else body.q
        lines = [text.replace("\r\n", "\n").split("\n") for text in texts]
        every = [line for text in lines for line in text]
        self._check_texts(every)
        n = body.alternatives + 1
        beam_size = n if n > model.beam_size else None
        self._check_beam(model, n_best=n)
        call = Call.of(model.n_best, n_best=n, beam_size=beam_size)
        found = iter(await self._answer(request, model, call, every))
        results = [_joined([next(found) for _ in text], n) for text in lines]
        answer: dict[str, Any] = {"translatedText": [best for best, *_ in results]}
        if body.alternatives:
            answer["alternatives"] = [others for _, *others in results]
        if isinstance(body.q, str):
            answer = {name: value[0] for name, value in answer.items()}
        return JSONResponse(answer)

    async def detect(self) -> Response:
        """Nothing here detects languages."""
        raise HTTPException(501, _NO_DETECTION)

    def _pair(self, source: str, target: str) -> ServedModel:
        """Returns the first model with these languages."""
        pairs = [(m, m.languages) for m in self._models.values() if m.languages]
        known = {code for _, pair in pairs for code in pair}
        if source == "auto":
            raise HTTPException(400, _NO_DETECTION)
        for code in (source, target):
            if code not in known:
                raise HTTPException(400, f"{code} is not supported")
        for model, pair in pairs:
            if pair == (source, target):
                return model
        raise HTTPException(
            400, f"{target} is not available as a target language from {source}"
        )

    # TensorFlow Serving.

    async def status(self, name: str, version: str | None = None) -> Response:
        """The state of a model."""
        model = self._servable(name, version)
        entry = {
            "version": str(model.version),
            "state": "AVAILABLE",
            "status": {"error_code": "OK", "error_message": ""},
        }
        return JSONResponse({"model_version_status": [entry]})

    async def metadata(self, name: str, version: str | None = None) -> Response:
        """The signatures of a model."""
        model = self._servable(name, version)
        signatures = {
            key: {
                "inputs": {k: _tensor_json(k, v) for k, v in value.inputs.items()},
                "outputs": {k: _tensor_json(k, v) for k, v in value.outputs.items()},
                "method_name": "tensorflow/serving/predict",
            }
            for key, value in model.signatures.items()
        }
        return JSONResponse(
            {
                "model_spec": {
                    "name": name,
                    "signature_name": "",
                    "version": str(model.version),
                },
                "metadata": {"signature_def": {"signature_def": signatures}},
            }
        )

    async def predict(
        self, request: Request, name: str, version: str | None = None
    ) -> Response:
        """Runs a signature on rows (`instances`) or columns (`inputs`)."""
        model = self._servable(name, version)
        body = await self._json(request)
        if not isinstance(body, dict) or ("instances" in body) == ("inputs" in body):
            raise HTTPException(
                400, "the body must be an object with either 'instances' or 'inputs'"
            )
        key = body.get("signature_name") or "serving_default"
        signature = model.signatures.get(key) if isinstance(key, str) else None
        if signature is None:
            raise HTTPException(
                400,
                f"signature_name: {key!r:.80} is not a signature; there are "
                f"{', '.join(model.signatures)}",
            )
        scalars: dict[str, Any] = {}
        if "instances" in body:
            rows = _rows(signature, body["instances"])
        else:
            rows, scalars = _columns(signature, body["inputs"])
        for row in rows:
            self._check_texts([v for v in row.values() if isinstance(v, str)])
            if any(len(v) > self.limits.max_characters for v in row.values()):
                raise HTTPException(400, self._too_long("ids"))
        if len(rows) > self.limits.max_queue:
            raise HTTPException(413, self._too_many(len(rows)))
        beams = {k: v for k, v in scalars.items() if k in ("beam_size", "n_best")}
        self._check_beam(model, **beams)
        call = Call.of(model.predict, signature=key, **scalars)
        found = await self._answer(request, model, call, rows)
        answer = _predictions(signature, found, "instances" in body)
        # As TensorFlow Serving does it, with -Infinity for scores of absent outputs.
        return Response(json.dumps(answer), media_type="application/json")

    def _servable(self, name: str, version: str | None) -> ServedModel:
        """Returns the model of a URL."""
        model = self._models.get(name)
        if model is None or version not in (None, str(model.version)):
            wanted = (
                f"Latest({name})" if version is None else f"Specific({name}, {version})"
            )
            raise HTTPException(404, f"Servable not found for request: {wanted}")
        return model

    # What the endpoints share.

    def _model(self, name: str | None) -> ServedModel:
        if name is None:
            return next(iter(self._models.values()))
        if name not in self._models:
            known = ", ".join(self._models)
            raise HTTPException(404, f"model: there is no '{name}'; there are {known}")
        return self._models[name]

    def _check_texts(self, texts: Sequence[str]) -> None:
        """Refuses too many texts, and those that are too long or not Unicode."""
        if len(texts) > self.limits.max_queue:
            raise HTTPException(413, self._too_many(len(texts)))
        for text in texts:
            if len(text) > self.limits.max_characters:
                raise HTTPException(400, self._too_long("characters"))
            try:
                text.encode()
            except UnicodeEncodeError:
                raise HTTPException(
                    400, "a text has half of a surrogate pair"
                ) from None

    def _too_many(self, count: int) -> str:
        return (
            f"{count} sentences in a request; at most {self.limits.max_queue} are "
            "allowed (--max_queue)"
        )

    def _too_long(self, unit: str) -> str:
        return (
            f"a sentence has more than {self.limits.max_characters} {unit} "
            "(--max_characters)"
        )

    def _check_beam(self, model: ServedModel, **counts: int | None) -> None:
        most = max(self.limits.max_beam_size, model.beam_size)
        for name, count in counts.items():
            if count is not None and count > most:
                raise HTTPException(
                    400,
                    f"{name} is {count}; at most {most} is allowed (--max_beam_size)",
                )

    async def _answer(
        self, request: Request, model: ServedModel, call: Call, values: Sequence[Any]
    ) -> list[Any]:
        """Returns the results for values, unless the client leaves or it takes long."""
        batcher = self._batchers[model.name]
        work = asyncio.create_task(batcher.submit(call, values))
        gone = asyncio.create_task(_disconnected(request))
        passed = time.monotonic() - request.scope["t2t.start"]
        left = max(self.limits.timeout_seconds - passed, 0)
        try:
            await asyncio.wait(
                {work, gone}, timeout=left, return_when=asyncio.FIRST_COMPLETED
            )
            if work.done():
                return work.result()
            if gone.done():
                raise HTTPException(_CLIENT_LEFT, "the client has left")
            raise HTTPException(
                504,
                f"no answer within {self.limits.timeout_seconds:g} seconds "
                "(--timeout_seconds)",
            )
        finally:
            for task in (work, gone):
                task.cancel()

    async def _json(self, request: Request) -> Any:
        """Returns the body as JSON, whatever its declared type, as `curl -d` needs."""
        try:
            return json.loads(await self._body(request))
        except (ValueError, RecursionError) as error:
            raise HTTPException(400, f"the body is not JSON: {error}") from None

    async def _form_or_json(self, request: Request) -> Any:
        """Returns the body of a request that is JSON or a form."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/x-www-form-urlencoded":
            return await self._json(request)
        try:
            text = (await self._body(request)).decode()
            return dict(urllib.parse.parse_qsl(text, True, errors="strict"))
        except ValueError:
            raise HTTPException(400, "the form is not UTF-8") from None

    async def _body(self, request: Request) -> bytes:
        """Reads the body, up to the limits of size and time."""
        most = self.limits.max_body_bytes
        body = bytearray()
        if int(request.headers.get("content-length", 0)) <= most:
            try:
                async with asyncio.timeout(self.limits.timeout_seconds):
                    async for chunk in request.stream():
                        body += chunk
                        if len(body) > most:
                            break
                    else:
                        return bytes(body)
            except ClientDisconnect:
                raise HTTPException(_CLIENT_LEFT, "the client has left") from None
            except TimeoutError:
                raise HTTPException(408, "the body took too long to arrive") from None
        raise HTTPException(
            413, f"the body has more than {most:,} bytes (--max_body_bytes)"
        )

    def _observer(self, name: str) -> Callable[[int, float], None]:
        sentences = self._batch_sentences.labels(name)
        seconds = self._batch_seconds.labels(name)

        def observe(size: int, duration: float) -> None:
            sentences.observe(size)
            seconds.observe(duration)

        return observe


class _Measured:
    """Middleware that counts and times requests, by the name of the endpoint."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["t2t.start"] = start = time.monotonic()
        status = 500

        async def measured(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, measured)
        finally:
            endpoint = getattr(scope.get("endpoint"), "__name__", "none")
            self._service.count(endpoint, status, time.monotonic() - start)


class _KnownHosts:
    """Middleware that refuses requests whose header `Host` has an unknown name.

    It protects a server at the loopback address from web pages: the name of a page's
    server can be made to lead to 127.0.0.1 (DNS rebinding), and then the browser lets
    the page read what this server answers. An IP address is no name.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        header = Headers(scope=scope).get("host", "") if scope["type"] == "http" else ""
        if self._is_known(header):
            await self._app(scope, receive, send)
        else:
            refusal = f"'{header}' is not a host of this server; see --allowed_host"
            await JSONResponse({"error": refusal}, 421)(scope, receive, send)

    def _is_known(self, header: str) -> bool:
        try:
            name = urllib.parse.urlsplit(f"//{header}").hostname or ""
            if name in ("", *self._hosts) or f".{name}".endswith(".localhost"):
                return True
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def make_app(
    models: Sequence[ServedModel], limits: Limits, hosts: Collection[str] | None = None
) -> FastAPI:
    """Returns the application; its `state.service` is a `Service`.

    Args:
        models: the models.
        limits: the limits.
        hosts: names that requests may have as `Host`, beside localhost and IP
            addresses; None: any.
    """
    service = Service(models, limits)
    app = FastAPI(lifespan=service.lifespan, openapi_url=None)
    app.state.service = service
    model = "/v1/models/{name}"
    version = model + "/versions/{version}"
    for path, endpoint, method in (
        ("/", service.page, "GET"),
        ("/health", service.health, "GET"),
        ("/metrics", service.metrics, "GET"),
        ("/api/models", service.models, "GET"),
        ("/api/translate", service.texts, "POST"),
        ("/api/attention", service.attention, "POST"),
        ("/attention", service.attention_page, "GET"),
        ("/languages", service.languages, "GET"),
        ("/translate", service.translate, "POST"),
        ("/detect", service.detect, "POST"),
        (f"{model}:predict", service.predict, "POST"),
        (f"{version}:predict", service.predict, "POST"),
        (f"{model}/metadata", service.metadata, "GET"),
        (f"{version}/metadata", service.metadata, "GET"),
        (model, service.status, "GET"),
        (version, service.status, "GET"),
    ):
        app.add_api_route(path, endpoint, methods=[method])
    if hosts is not None:
        app.add_middleware(_KnownHosts, hosts=hosts)
    app.add_middleware(_Measured, service=service)

    def fail(status: int, message: str, **headers: str) -> Response:
        return JSONResponse({"error": message}, status, headers)

    @app.exception_handler(StarletteHTTPException)
    async def refused(request: Request, error: StarletteHTTPException) -> Response:
        return fail(error.status_code, str(error.detail), **(error.headers or {}))

    @app.exception_handler(RequestValidationError)
    async def incomplete(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        return fail(400, f"{first['loc'][-1]}: {first['msg']}")

    @app.exception_handler(UserError)
    async def mistaken(request: Request, error: UserError) -> Response:
        return fail(400, str(error))

    @app.exception_handler(Overloaded)
    async def overloaded(request: Request, error: Overloaded) -> Response:
        return fail(503, str(error), **{"Retry-After": "1"})

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        return fail(500, "the server failed; its log tells why")

    return app


class _Server(uvicorn.Server):
    """A server that refuses further requests as soon as a signal stops it."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.config.app.state.service.stop()  # type: ignore[union-attr]
        super().handle_exit(sig, frame)


def serve(app: FastAPI, address: socket.socket) -> None:
    """Serves until SIGTERM or Ctrl-C; then answers the requests that it has.

    Args:
        app: what `make_app` returned.
        address: a socket that is bound to an address.
    """
    make_server(app).run(sockets=[address])


def make_server(app: FastAPI) -> uvicorn.Server:
    """Returns the server of an application, which is not started."""
    seconds = math.ceil(app.state.service.limits.timeout_seconds) + 1
    return _Server(
        uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            use_colors=False if os.environ.get("NO_COLOR") else None,  # at terminals
            server_header=False,
            timeout_graceful_shutdown=seconds,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        )
    )


async def _disconnected(request: Request) -> None:
    """Returns when the client has closed the connection; the body is read already."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _parsed(kind: type[_Body], body: Any, missing: str = "{} is missing") -> _Body:
    """Returns a body as a model of pydantic; the first mistake is a 400."""
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"])) or "the body"
        if first["type"] == "missing":
            raise HTTPException(400, missing.format(field)) from None
        raise HTTPException(400, f"{field}: {first['msg']}") from None


def _output(model: ServedModel, output: Any) -> dict[str, Any]:
    """Returns an output as JSON; the score is null if no output was possible."""
    score = output.score if math.isfinite(output.score) else None
    found = {"text": output.text, "score": score}
    tokens = model.tokens(output)
    return found if tokens is None else found | {"tokens": tokens, "ids": output.ids}


def _joined(lines: Sequence[Sequence[Any]], n: int) -> list[str]:
    """Returns the n best translations of a text of several lines.

    The k-th one has the k-th output of every line, or the last of a line with fewer.
    """
    most = min(n, max(map(len, lines)))
    return [
        "\n".join(outputs[min(k, len(outputs) - 1)].text for outputs in lines)
        for k in range(most)
    ]


def _tensor_json(name: str, info: Any) -> dict[str, Any]:
    """Returns an input or output as TensorFlow Serving's metadata describe it."""
    dims = [{"size": "-1", "name": ""} for _ in range(info.rank)]
    return {
        "name": name,
        "dtype": {"float32": "DT_FLOAT"}.get(info.dtype, f"DT_{info.dtype.upper()}"),
        "tensor_shape": {"dim": dims, "unknown_rank": False},
    }


def _rows(signature: Any, instances: Any) -> list[dict[str, Any]]:
    """Returns the rows of a request in row format."""
    names = signature.rows
    if not names or len(names) < len(signature.inputs):
        raise HTTPException(
            400, "instances: this signature has scalar inputs or none; give 'inputs'"
        )
    if not isinstance(instances, list) or not instances:
        raise HTTPException(400, "instances must be a list that is not empty")
    rows = []
    for number, row in enumerate(instances):
        place = f"instances[{number}]"
        if len(names) == 1 and not (isinstance(row, dict) and "b64" not in row):
            row = {names[0]: row}
        if not isinstance(row, dict) or row.keys() != set(names):
            raise HTTPException(400, f"{place} must have the inputs {', '.join(names)}")
        rows.append(
            {
                name: request_value(
                    row[name], signature.inputs[name], f"{place}.{name}"
                )
                for name in names
            }
        )
    return rows


def _columns(
    signature: Any, inputs: Any
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Returns the rows and the scalars of a request in column format."""
    if len(signature.inputs) == 1 and not isinstance(inputs, dict):
        inputs = dict.fromkeys(signature.inputs, inputs)
    names = signature.rows
    if not isinstance(inputs, dict) or not (
        {*names} <= inputs.keys() <= signature.inputs.keys()
    ):
        wanted = ", ".join(signature.inputs) or "none"
        raise HTTPException(400, f"inputs: this signature has the inputs {wanted}")
    scalars = {  # those that are left out have the model's defaults
        name: request_value(inputs[name], info, f"inputs.{name}")
        for name, info in signature.inputs.items()
        if not info.rank and name in inputs
    }
    for name in names:
        if not isinstance(inputs[name], list):
            raise HTTPException(400, f"inputs.{name} must be a list")
    if len({len(inputs[name]) for name in names}) > 1:
        raise HTTPException(400, f"inputs: {', '.join(names)} must be of equal length")
    rows = [
        {
            name: request_value(value, signature.inputs[name], f"inputs.{name}[{i}]")
            for name, value in zip(names, values, strict=True)
        }
        for i, values in enumerate(zip(*(inputs[n] for n in names), strict=True))
    ]
    return (rows if names else [{}]), scalars


def _predictions(
    signature: Any, found: list[dict[str, Any]], in_rows: bool
) -> dict[str, Any]:
    """Returns the answer to a request in row or column format."""
    if any(info.rank == 3 for info in signature.outputs.values()):
        # The width of ids depends on what else was in the batch.
        width = max((n for row in found for n in row["lengths"]), default=0)
        for row in found:
            row["ids"] = [(ids + [0] * width)[:width] for ids in row["ids"]]
    elif "token_log_probs" in signature.outputs:  # likewise
        width = max((row["tokens"] for row in found), default=0)
        for row in found:
            for name in ("ids", "token_log_probs"):
                row[name] = (row[name] + [0] * width)[:width]
    if in_rows:
        single = len(signature.outputs) == 1
        rows = [next(iter(x.values())) for x in found] if single else found
        return {"predictions": rows}
    if not signature.rows:
        return {"outputs": found[0]}
    return {"outputs": {k: [row[k] for row in found] for k in signature.outputs}}

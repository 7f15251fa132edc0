"""uvicorn with a time limit for headers, and a limit of connections."""

import asyncio
import functools
import math
import os
import resource
import socket
from types import FrameType
from typing import Any

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

_HEADER_SECONDS = 10
# Longer than clients and proxies keep a connection that is idle (httpx 5 seconds, nginx
# 60): a request on a connection that the server closes just then would be lost.
_KEEP_ALIVE_SECONDS = 75
_ACCEPTED_AT_ONCE = 16
_ROUNDS = 5  # of accepting, until one that is closed has given back its descriptor
_OTHER_FILES = 64  # descriptors for all else, beyond those that are open at the start
_BACKLOG = 1024


class _Protocol(H11Protocol):
    """A connection.

    If there are too many, the one that has waited longest for headers is closed.

    Args:
        most: the most connections.
        waiting: the connections that wait for headers; the oldest is first.
        **rest: what uvicorn gives.
    """

    def __init__(
        self, most: int, waiting: "dict[_Protocol, None]", **rest: Any
    ) -> None:
        super().__init__(**rest)
        self._most = most
        self._waiting = waiting
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > self._most:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]  # the next one closes another
            oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:  # the headers are incomplete
            self._wait()
        else:
            self._end_wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_wait()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing() and self.conn.their_state is h11.IDLE:
            self._waiting[self] = None  # idle, with the time limit of uvicorn

    def _wait(self) -> None:
        if self._timer is None and not self.transport.is_closing():
            self._waiting.pop(self, None)
            self._waiting[self] = None
            self._timer = self.loop.call_later(_HEADER_SECONDS, self.transport.abort)

    def _end_wait(self) -> None:
        self._waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Server(uvicorn.Server):
    """The server of an application.

    It refuses further requests as soon as a signal stops it, and ends if a model cannot
    be loaded.

    Args:
        app: what `make_app` returned.
    """

    def __init__(self, app: Starlette) -> None:
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        used = len(os.listdir("/dev/fd")) + _ROUNDS * _ACCEPTED_AT_ONCE + _OTHER_FILES
        self.service = app.state.service
        self.service.on_failure = functools.partial(setattr, self, "should_exit", True)
        protocol: Any = functools.partial(_Protocol, max(files - used, 16), {})
        super().__init__(
            uvicorn.Config(
                app,
                http=protocol,
                log_level="error",
                access_log=False,
                use_colors=False
                if os.environ.get("NO_COLOR")
                else None,  # at terminals
                server_header=False,
                backlog=_ACCEPTED_AT_ONCE,
                timeout_graceful_shutdown=math.ceil(self.service.limits.timeout_seconds)
                + 1,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begins to serve."""
        await super().startup(sockets)
        for address in sockets or ():
            address.listen(_BACKLOG)  # uvicorn has one number for both

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Ends the server at a signal."""
        self.service.stop()
        super().handle_exit(sig, frame)

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serves until SIGTERM or Ctrl-C; then answers the requests that it has.

        Raises:
            UserError: a model cannot be loaded.
        """
        super().run(sockets)
        if self.service.failure is not None:
            raise self.service.failure

"""uvicorn with a time limit for headers."""

import asyncio
import functools
import math
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


class _Protocol(H11Protocol):
    """A connection, which is closed if headers take too long."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._timer = self.loop.call_later(_HEADER_SECONDS, transport.abort)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:  # the headers are complete
            self._end_wait()
        elif self._timer is None:
            self._timer = self.loop.call_later(_HEADER_SECONDS, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_wait()
        super().connection_lost(exc)

    def _end_wait(self) -> None:
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
        self.service = app.state.service
        self.service.on_failure = functools.partial(setattr, self, "should_exit", True)
        seconds = self.service.limits.timeout_seconds
        super().__init__(
            uvicorn.Config(
                app,
                http=_Protocol,
                ws="none",  # uvicorn sets no time limit for WebSocket handshakes
                log_level="error",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=math.ceil(seconds) + 1,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            )
        )

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

"""uvicorn with limits on connections."""

import functools
import math
import socket
import sys
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from .connections import Connection

# Clients and proxies must close idle connections before the server does (httpx after 5
# seconds, nginx after 60): a request that meets a closing connection is lost.
_KEEP_ALIVE_SECONDS = 75
# libuv accepts one connection of each listening socket in a turn of the event loop.
# With a single socket, a client would wait a turn for each connection of a burst.
_ACCEPTS = 8
# How long threads that parse or translate keep Python's lock while the event loop waits
# for it, as it does after nearly every system call. Python's default, 5 ms, doubles the
# time that accepting a burst of 250 clients takes.
_SWITCH_SECONDS = 0.0005


class Server(uvicorn.Server):
    """The server of an application.

    It refuses further requests as soon as a signal stops it, and ends if a model cannot
    be loaded.

    Args:
        app: what `make_app` returned.
    """

    def __init__(self, app: Starlette) -> None:
        self.service = app.state.service
        self.service.manager.on_failure = functools.partial(
            setattr, self, "should_exit", True
        )
        seconds = self.service.limits.timeout_seconds
        connection = functools.partial(Connection, self.service.connections)
        super().__init__(
            uvicorn.Config(
                app,
                http=connection,  # type: ignore[arg-type]  # which uvicorn calls
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
        self.service.manager.stop()
        super().handle_exit(sig, frame)

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serves until SIGTERM or Ctrl-C; answers the requests that have arrived.

        Raises:
            UserError: a model cannot be loaded.
        """
        if sockets is not None:
            sockets = [
                *sockets,
                *(x.dup() for x in sockets for _ in range(_ACCEPTS - 1)),
            ]
        switch_seconds = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_SECONDS)
        try:
            super().run(sockets)
        finally:
            sys.setswitchinterval(switch_seconds)
        if self.service.manager.failure is not None:
            raise self.service.manager.failure

"""uvicorn, as it runs an application: sockets, signals and warnings."""

import asyncio
import contextlib
import functools
import logging
import math
import socket
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette

from t2t_keras.errors import quantity

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
_LOGGER = logging.getLogger(__name__)
_WARNING_SECONDS = 60.0  # the time between two equal warnings


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
        limits = self.service.limits
        super().__init__(
            uvicorn.Config(
                app,
                http="h11",  # also where the faster httptools is installed: one parser
                ws="none",  # uvicorn sets no time limit for WebSocket handshakes
                log_level="error",
                access_log=False,
                server_header=False,
                # uvicorn refuses the request that reaches the limit.
                limit_concurrency=limits.max_connections + 1,
                timeout_graceful_shutdown=math.ceil(limits.timeout_seconds) + 1,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            )
        )

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Ends the server at a signal."""
        self.service.manager.stop()
        super().handle_exit(sig, frame)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serves; an error that a client causes is one line in the log."""
        asyncio.get_running_loop().set_exception_handler(_log_failure)
        await super().serve(sockets)

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


def _log_failure(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Logs the failure of a connection in one line, others as asyncio does."""
    if "protocol" in context:
        _LOGGER.warning("a connection was closed: %r", context.get("exception"))
    else:
        loop.default_exception_handler(context)


class OnceAMinute(logging.Filter):
    """Passes each message once, and then at most once a minute.

    Clients cause warnings, for example of truncated inputs, and could fill the disk
    with them. Messages are compared without their arguments.

    Args:
        clock: returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        # For each message, the time when it passed, and how often it has been
        # dropped since then.
        self._passed: dict[object, float] = {}
        self._dropped: dict[object, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Returns whether a record passes; it tells how many have been dropped."""
        message = record.msg
        seconds = self._clock()
        dropped = self._dropped.get(message, 0)
        if seconds < self._passed.get(message, -math.inf) + _WARNING_SECONDS:
            self._dropped[message] = dropped + 1
            return False
        self._passed[message] = seconds
        self._dropped[message] = 0
        if dropped:
            dropped_lines = quantity(dropped, "more such lines")
            record.msg = f"{record.msg}; {dropped_lines} left out"
        return True


@contextlib.contextmanager
def few_warnings() -> Iterator[None]:
    """Logs the package's warnings on standard error, each at most once a minute."""
    logger = logging.getLogger("t2t_keras")
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.addFilter(OnceAMinute())
    propagate = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate

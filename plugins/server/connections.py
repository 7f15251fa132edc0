"""The connections of `t2t serve`, with their limits.

uvicorn limits neither the number of connections nor the time of clients that send or
read nothing. A connection waits for its client, which must send a request or read an
answer, or for the server, which computes an answer. Connections that wait for their
clients are closed after a time limit. The oldest of them is also closed to make room
for another connection, but never one whose request is with a model.
"""

import asyncio
import collections
import contextlib
import enum
import json
import os
import resource
import socket
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from .requests import Limits

_HEADER_SECONDS = 10.0
# How long a client may send the rest of a request that was refused before its end. If
# the server closed the connection at once, the client could not read the answer.
_REFUSED_SECONDS = 2.0
_SWEEP_SECONDS = 0.25  # the time between two checks of the limits
# In each `timeout_seconds` a client must read this many bytes, or everything.
_MIN_READ_BYTES = 32_768
# Descriptors that connections leave to files and sockets opened later.
_SPARE_DESCRIPTORS = 16
# The share of the connections that may have a request in the queue or in a batch. The
# others wait for their clients, so there is always one that can make room.
_BUSY_SHARE = 3 / 4
# The key that the application sets in the scope of a request that is with a model.
BUSY = "t2t_busy"
_ANSWER_START = b"HTTP/1.1 "
_TCP_CLOSE = 7  # the state of a TCP connection after a reset, in Linux's TCP_INFO


class _Phase(enum.Enum):
    """What a connection waits for."""

    IDLE = enum.auto()  # the first byte of a request
    HEADERS = enum.auto()  # the rest of the headers
    BODY = enum.auto()  # the rest of the body
    ANSWER = enum.auto()  # the server's answer
    REFUSED = enum.auto()  # the client to close, after an answer to what is not HTTP
    REST = enum.auto()  # the rest of a body after the last answer, discarded


class Connections:
    """The open connections of a server.

    Args:
        limits: the limits.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._open: set[Connection] = set()
        self._body_bytes = 0  # in unfinished bodies
        self._deferred: collections.deque[Connection] = collections.deque()
        self._max_open = limits.max_connections

    @property
    def max_busy(self) -> int:
        """The number of requests that may wait for their answers at the same time."""
        return max(int(_BUSY_SHARE * self._max_open), 1)

    async def watch(self) -> None:
        """Checks the limits, until it is cancelled."""
        while True:
            self._max_open = min(self.limits.max_connections, self._free_descriptors())
            for connection in list(self._open):
                connection.check_time()
            self._make_room(
                lambda connection: connection.unread,
                self.limits.max_unread_bytes,
            )
            await asyncio.sleep(_SWEEP_SECONDS)

    def add(self, connection: "Connection") -> bool:
        """Adds a connection; if necessary, the oldest waiting one is closed.

        Returns:
            Whether there is room.
        """
        if len(self._open) >= self._max_open and not self._close_oldest(self._open):
            return False
        self._open.add(connection)
        return True

    def remove(self, connection: "Connection") -> None:
        """Removes a connection, which may have been removed before."""
        self._open.discard(connection)
        self.release(connection)

    def defer(self, connection: "Connection") -> None:
        """Lets requests of other clients go before the next one of a connection.

        libuv accepts one connection in each turn of the event loop. If each turn also
        started a request of every client that sends many at once, other clients would
        have to wait.
        """
        self._deferred.append(connection)
        if len(self._deferred) == 1:
            connection.loop.call_soon(self._start_deferred)

    def _start_deferred(self) -> None:
        connection = self._deferred.popleft()
        if self._deferred:
            connection.loop.call_soon(self._start_deferred)
        connection.start_next()

    def hold(self, connection: "Connection", size: int) -> None:
        """Counts bytes of an unfinished body; the oldest connections make room."""
        connection.body_bytes += size
        self._body_bytes += size
        if self._body_bytes > self.limits.max_unfinished_bytes:
            self._make_room(
                lambda connection: connection.body_bytes,
                self.limits.max_unfinished_bytes,
            )

    def release(self, connection: "Connection") -> None:
        """Forgets the bytes of a body, which is complete or lost."""
        self._body_bytes -= connection.body_bytes
        connection.body_bytes = 0

    def _make_room(self, size_of: "Callable[[Connection], int]", limit: int) -> None:
        """Closes the oldest connections until their sizes are within the limit."""
        sizes = {x: size for x in self._open if (size := size_of(x))}
        while sum(sizes.values()) > limit and (
            closed := self._close_oldest(set(sizes))
        ):
            del sizes[closed]

    def _close_oldest(self, among: "set[Connection]") -> "Connection | None":
        """Closes the connection that has waited longest, if any, and returns it.

        Connections that wait for their clients are closed before others.
        """
        idle = [connection for connection in among if not connection.is_busy]
        if not idle:
            return None
        oldest = min(idle, key=lambda x: (not x.awaits_client, x.since))
        oldest.abort()
        return oldest

    def _free_descriptors(self) -> int:
        """Returns how many connections the limit of file descriptors allows."""
        soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft_limit == resource.RLIM_INFINITY:
            return self.limits.max_connections
        try:
            other_files = len(os.listdir("/dev/fd")) - len(self._open)
        except OSError:  # no descriptor is free to read the directory
            return self._max_open
        return max(soft_limit - other_files - _SPARE_DESCRIPTORS, 1)


class Connection(H11Protocol):
    """A connection with time limits, whose errors are JSON.

    Args:
        connections: all connections of the server.
        *args: arguments of uvicorn.
        **kwargs: arguments of uvicorn.

    Attributes:
        since: when its phase began; for requests that arrived together, when they
            arrived.
        body_bytes: the bytes of its unfinished body.
    """

    def __init__(self, connections: Connections, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._connections = connections
        self._limits = connections.limits
        self._phase = _Phase.HEADERS
        self._is_half_closed = False
        self._discarded_bytes = 0  # of the body of a request that is answered
        self._last_unread = 0  # the unread bytes at the last check
        # An upper bound on the bytes that the client has read since `_read_since`.
        self._read = 0
        self._read_since = 0.0
        self.since = 0.0
        self.body_bytes = 0

    @property
    def unread(self) -> int:
        """The number of unread bytes, without those that the system buffers."""
        return self.transport.get_write_buffer_size()

    @property
    def awaits_client(self) -> bool:
        """Whether the client must send or read something."""
        return self._phase is not _Phase.ANSWER or self.unread > 0

    @property
    def is_busy(self) -> bool:
        """Whether its request is with a model."""
        is_answered = self.cycle is None or self.cycle.response_complete
        return not (self.awaits_client or is_answered) and BUSY in self.cycle.scope

    @property
    def _is_refused(self) -> bool:
        return self._phase is _Phase.REFUSED

    def connection_made(  # type: ignore[override]
        self, transport: asyncio.Transport
    ) -> None:
        """Adds the connection; if there is no room, the client gets an error."""
        super().connection_made(transport)
        self.since = self.loop.time()
        if not self._connections.add(self):
            self._refuse(503, "there are too many connections; try again later")
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        """Receives a part of a request, or of several."""
        if self._phase is _Phase.REST:
            self._discard(len(data))
            return
        if not self._is_refused:
            super().data_received(data)
        if not self._is_refused:
            self._update_phase(len(data))

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Keeps the connection open while the client waits for an answer.

        A client that has closed it completely looks the same. So the start of the
        answer is sent: such a client responds with a reset.
        """
        if self._phase is not _Phase.ANSWER:
            return None
        if self._is_half_closed:
            return True
        self._is_half_closed = True
        if self.conn.our_state is h11.SEND_RESPONSE:
            self.transport.write(_ANSWER_START)
            self.cycle.transport = _BegunAnswer(self.transport)  # type: ignore[assignment]
        return True

    def on_response_complete(self) -> None:
        """Starts the next request; others go before if it arrived before the answer."""
        if self.conn.their_state is h11.DONE and self.conn.trailing_data[0]:
            self._connections.defer(self)
        else:
            self.start_next()

    def start_next(self) -> None:
        """Starts the next request if a part of it has arrived."""
        super().on_response_complete()
        is_next = not self.cycle.response_complete
        self._update_phase(len(self.cycle.body) if is_next else 0)
        if self._is_half_closed and self._phase is not _Phase.ANSWER:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Removes the connection."""
        self._connections.remove(self)
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuses what is not HTTP."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._refuse(
                400, "this is not a valid HTTP/1.1 request, without encryption"
            )
        else:
            self.transport.close()  # an answer has been sent in part

    def abort(self) -> None:
        """Closes the connection at once."""
        self._connections.remove(self)
        self.transport.abort()

    def check_time(self) -> None:
        """Closes the connection if the client has taken too long."""
        current_time = self.loop.time()
        seconds = self._limits.timeout_seconds
        allowed = {
            _Phase.HEADERS: _HEADER_SECONDS,
            # The application has refused the request before, at the time limit.
            _Phase.BODY: seconds + _REFUSED_SECONDS,
            _Phase.REST: seconds + _REFUSED_SECONDS,
            _Phase.REFUSED: _REFUSED_SECONDS,
        }
        is_late = current_time - self.since > allowed.get(self._phase, float("inf"))
        if is_late or self._is_unread(current_time) or self._is_reset():
            self.abort()

    def _update_phase(self, received: int = 0) -> None:
        """Enters the phase that h11 is in.

        Args:
            received: number of bytes that have just been received.
        """
        state = self.conn.their_state
        if self._phase is _Phase.REST:
            return
        if state is h11.SEND_BODY:
            if self._phase is not _Phase.BODY:
                self._enter(_Phase.BODY)
                self.cycle.transport = _BodyTransport(self)  # type: ignore[assignment]
            if self.conn.our_state is h11.DONE:  # the answer did not wait for the body
                self._discard(received)
            else:
                self._connections.hold(self, received)
        elif state is not h11.IDLE:
            since = self.since
            self._enter(_Phase.ANSWER)
            if not received:
                self.since = since
        elif not self.conn.trailing_data[0]:
            self._enter(_Phase.IDLE)
        elif self._phase is not _Phase.HEADERS:
            self._enter(_Phase.HEADERS)

    def close(self) -> None:
        """Closes the connection after the last answer.

        If the request's body is unfinished, the rest of it is received first.
        """
        if self.conn.their_state is h11.SEND_BODY and self.transport.can_write_eof():
            self._enter(_Phase.REST)
            self.transport.write_eof()
        else:
            self.transport.close()

    def _discard(self, size: int) -> None:
        """Counts discarded bytes of a body whose request is answered.

        Many clients read the answer only after they have sent the whole body, and lose
        it if the connection is closed earlier.
        """
        self._connections.release(self)
        self._discarded_bytes += size
        if self._discarded_bytes > self._limits.max_unfinished_bytes:
            self.abort()

    def _enter(self, phase: _Phase) -> None:
        self._phase = phase
        self.since = self.loop.time()
        self._discarded_bytes = 0
        if self.body_bytes:
            self._connections.release(self)

    def _refuse(self, status: int, message: str) -> None:
        """Sends an error without the application; the client closes the connection."""
        body = json.dumps({"error": message}).encode()
        headers = [("content-type", "application/json"), ("connection", "close")]
        headers.append(("content-length", str(len(body))))
        reason = {400: "Bad Request", 503: "Service Unavailable"}[status]
        for event in (
            h11.Response(status_code=status, headers=headers, reason=reason),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self._enter(_Phase.REFUSED)
        self.transport.write_eof()

    def _is_unread(self, current_time: float) -> bool:
        """Returns whether the client has read too little for too long."""
        unread = self.unread
        if self._last_unread == 0:
            self._read = 0
            self._read_since = current_time
        self._read += max(self._last_unread - unread, 0)
        self._last_unread = unread
        if current_time - self._read_since <= self._limits.timeout_seconds:
            return False
        is_slow = self._read < _MIN_READ_BYTES
        self._read = 0
        self._read_since = current_time
        return is_slow

    def _is_reset(self) -> bool:
        """Returns whether a client that seemed half-closed has left."""
        if not self._is_half_closed or not hasattr(socket, "TCP_INFO"):
            return False
        with contextlib.suppress(OSError):
            client = self.transport.get_extra_info("socket")
            info = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
            return bool(info[0] == _TCP_CLOSE)
        return False


class _BodyTransport:
    """The transport of an answer that may end before the body of its request.

    Args:
        connection: the connection, which closes itself.
    """

    def __init__(self, connection: Connection) -> None:
        self.write = connection.transport.write
        self.is_closing = connection.transport.is_closing
        self.close = connection.close


class _BegunAnswer:
    """A transport to which the start of an answer has been written.

    Args:
        transport: the transport.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._has_started = False

    def write(self, data: bytes) -> None:
        """Writes a part of the answer, without the start that has been written."""
        if not self._has_started:
            data = data.removeprefix(_ANSWER_START)
        self._has_started = True
        self._transport.write(data)

    def is_closing(self) -> bool:
        """Returns whether it is being closed."""
        return self._transport.is_closing()

    def close(self) -> None:
        """Closes it after what has been written."""
        self._transport.close()

"""Looks for a network, before a library tries for minutes to download."""

import contextlib
import socket
import urllib.parse
import urllib.request
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed

_SECONDS = 10  # for a connection; over a slow network it takes one or two
_PORTS = {"http": 80, "https": 443, "ftp": 21}
_PROXIES = {"all", *_PORTS}


def is_reachable(urls: Iterable[str]) -> bool:
    """Returns whether the host of one of the URLs accepts a connection.

    With a proxy, it is always true: a proxy may reach hosts that this machine cannot.
    """
    if not _PROXIES.isdisjoint(urllib.request.getproxies()):
        return True
    addresses = {_address(url) for url in urls}
    executor = ThreadPoolExecutor(max(len(addresses), 1))
    try:
        answers = [executor.submit(_accepts, *address) for address in addresses]
        return any(answer.result() for answer in as_completed(answers))
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


def _address(url: str) -> tuple[str, int]:
    """Returns the host and the port of a URL."""
    parts = urllib.parse.urlsplit(url)
    return parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 443)


def _accepts(host: str, port: int) -> bool:
    """Returns whether a host accepts a connection."""
    with contextlib.suppress(OSError, UnicodeError):  # or not a host name
        socket.create_connection((host, port), _SECONDS).close()
        return True
    return False

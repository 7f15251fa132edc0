"""Which requests are refused unread: those of other sites, and ambiguous ones.

This protects a server at the loopback address from web pages. The owner of a page can
make the name of its site resolve to 127.0.0.1 (DNS rebinding), and then the browser
lets the page read the answers of this server: the name in `Host` must be allowed. Any
page can also send a form to this server: `Origin`, which browsers add, must be this
server.
"""

import re
from collections.abc import Collection

from starlette.requests import Request
from starlette.responses import Response

from .responses import error_response

# A name or address, and a port. Names with other characters, such as the "@" of a user,
# are not those of hosts.
_HOST = re.compile(r"([\w.-]*|\[[\da-f:.]+\])(?::\d*)?", re.ASCII | re.IGNORECASE)


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

"""A server of files on 127.0.0.1, which breaks connections off on demand."""

import functools
import http.server
import threading
from collections.abc import Mapping
from typing import Self


class FileServer:
    """Serves contents by their paths, with ranges; a context manager.

    Attributes:
        files: the contents by path, such as "/x.tgz".
        breaks: the bytes after which the next connections are broken off.
        ranges: the ranges that were asked for.
        ignores_ranges: whether each answer is the whole content.
    """

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = files
        self.breaks: list[int] = []
        self.ranges: list[str] = []
        self.ignores_ranges = False

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        handler = functools.partial(_Handler, self)
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    def __init__(self, file_server: FileServer, *args: object) -> None:
        self.file_server = file_server
        super().__init__(*args)  # which answers the request

    def do_GET(self):
        server = self.file_server
        content = server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        asked = self.headers["Range"]
        server.ranges.append(asked)
        start = 0 if server.ignores_ranges else int(asked[6:-1])
        if start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.end_headers()
            return
        self.send_response(200 if server.ignores_ranges else 206)
        rest = content[start:]
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        self.wfile.write(rest[: server.breaks.pop(0)] if server.breaks else rest)

    def log_message(self, *args):
        pass

"""A stand-in of the Hugging Face Hub on this machine, and of other servers."""

import contextlib
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

COMMIT = "35bbec8" + "0" * 33


class Hub(ThreadingHTTPServer):
    """Serves repositories, and files at any other path.

    Attributes:
        repositories: name -> file -> content; or the code of an error.
        files: path -> content, a code of an error, or another address.
        tags: the tags of all repositories.
        cut: files of which only half is sent.
        after_half: is called when half of such a file was sent.
        requests: the paths that were asked for.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.repositories: dict[str, dict[str, bytes] | str] = {}
        self.files: dict[str, bytes | int | str] = {}
        self.tags = ["marian", "license:cc-by-4.0"]
        self.cut: set[str] = set()
        self.after_half: Callable[[], None] = lambda: None
        self.requests: list[str] = []


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.server.requests.append(path)
        if path in self.server.files:
            return self.answer_file(self.server.files[path], path)
        words = path.strip("/").split("/")
        if words[:2] == ["api", "models"]:
            words = words[2:]
        elif words[2:3] != ["resolve"]:
            return self.answer(b"", 404, {})
        name, rest = "/".join(words[:2]), words[2:]
        files = self.server.repositories.get(name, "RepoNotFound")
        if isinstance(files, str):
            status = {"GatedRepo": 403, "500": 500}.get(files, 401)
            return self.answer(b"", status, {"X-Error-Code": files})
        revision = unquote(rest[1]) if len(rest) > 1 else "main"
        if revision not in ("main", "refs/pr/1", COMMIT):
            return self.answer(b"", 404, {"X-Error-Code": "RevisionNotFound"})
        if rest[:1] == ["resolve"]:
            if rest[2] not in files:
                return self.answer(b"", 404, {"X-Error-Code": "EntryNotFound"})
            etag = hashlib.sha1(files[rest[2]]).hexdigest()
            headers = {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT}
            return self.answer(files[rest[2]], 200, headers, rest[2] in self.server.cut)
        entries = [
            {"type": "file", "path": name, "size": len(content), "oid": "0" * 40}
            for name, content in files.items()
        ]
        if rest[:1] != ["tree"]:
            siblings = [{"rfilename": e["path"], "size": e["size"]} for e in entries]
            entries = {"id": name, "sha": COMMIT, "siblings": siblings}
            entries["tags"] = self.server.tags
        self.answer(json.dumps(entries).encode(), 200, {})

    do_HEAD = do_GET

    def answer_file(self, content: bytes | int | str, path: str) -> None:
        if isinstance(content, bytes):
            return self.answer(content, 200, {}, path in self.server.cut)
        if isinstance(content, str):
            return self.answer(b"", 302, {"Location": content})
        self.answer(b"", content, {})

    def answer(
        self, content: bytes, status: int, headers: dict[str, str], cut: bool = False
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content[: len(content) // 2] if cut else content)
        if cut:
            self.wfile.flush()
            self.server.after_half()
            self.close_connection = True


@contextlib.contextmanager
def hub() -> Iterator[Hub]:
    """Runs a stand-in in the block."""
    server = Hub()
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()

"""Chromium without a window, driven through its debugging pipe, for tests of pages."""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update"),
    *("--no-first-run", "--disable-sync", "--remote-debugging-pipe"),
)


class Browser:
    """A page; it speaks the DevTools protocol."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back, self._rest = to, back, b""
        self._number = 0
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self.events: list[dict[str, Any]] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            if "method" in answer and self._session:
                self.events.append(answer)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            chunk = os.read(self._back, 1 << 16)
            assert chunk, "chromium ended"
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\0")
        return json.loads(line)

    def open(self, url: str, width: int, height: int, dark: bool = False) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1}
        phone = {"mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size, **phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, condition: str, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not self.run(condition):
            text = "document.body.innerText"
            assert time.monotonic() < end, f"{condition}: {self.run(text)}"
            time.sleep(0.05)

    def submit(self) -> None:
        """Presses Ctrl and Enter."""
        key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13}
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, modifiers=2, **key)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def errors(self) -> list[Any]:
        """What the console has as errors, and exceptions."""
        kinds = "Runtime.exceptionThrown", "Log.entryAdded"
        found = [x["params"] for x in self.events if x["method"] in kinds]
        return [x for x in found if x.get("entry", {}).get("level") in (None, "error")]

    def hosts(self) -> set[str]:
        """The origins that were asked for something."""
        kind = "Network.requestWillBeSent"
        asked = [x["params"]["request"] for x in self.events if x["method"] == kind]
        urls = [x["url"] for x in asked if x["url"].startswith("http")]
        return {"/".join(url.split("/")[:3]) for url in urls}


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """Starts Chromium with a profile that is thrown away."""
    to_read, to_write = os.pipe()
    back_read, back_write = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # Chromium reads from descriptor 3 and writes to 4.
        command = f'exec "$@" 3<&{to_read} 4>&{back_write} >/dev/null 2>&1'
        flags = [CHROMIUM, *_FLAGS, f"--user-data-dir={profile}"]
        process = subprocess.Popen(
            ["bash", "-c", command, "bash", *flags], pass_fds=(to_read, back_write)
        )
        os.close(to_read)
        os.close(back_write)
        try:
            yield Browser(to_write, back_read)
        finally:
            process.terminate()
            process.wait()
            os.close(to_write)
            os.close(back_read)

"""Chromium without a window, driven through its debugging pipe, for tests of pages."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="needs chromium (Debian: apt-get install chromium)"
)

_KEY_CODES = {
    **{"Tab": 9, "Enter": 13, "Escape": 27, "j": 74},
    **{"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40},
}

_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update"),
    *("--no-first-run", "--disable-sync", "--remote-debugging-pipe"),
)


class Page:
    """A page with its own cookies and storage; it speaks the DevTools protocol."""

    def __init__(self, to: int, back: int) -> None:
        self._to = to
        self._back = back
        self._rest = b""
        self._session: dict[str, str] = {}
        self.errors: list[str] = []  # of scripts, since `open`
        self._profile = self.call("Target.createBrowserContext")
        blank = {"url": "about:blank"} | self._profile
        target = self.call("Target.createTarget", **blank)["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Runtime", "Log", "Animation"):
            self.call(f"{domain}.enable")
        self.call("Animation.setPlaybackRate", playbackRate=20)

    def close(self) -> None:
        self._session = {}
        self.call("Target.disposeBrowserContext", **self._profile)

    def call(self, method: str, **params: object) -> dict[str, Any]:
        """Calls a method and returns its answer; keeps the errors among the events."""
        message = {"id": 1, "method": method, "params": params} | self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        answer: dict[str, Any] = {}
        while "id" not in answer:
            while b"\0" not in self._rest:
                chunk = os.read(self._back, 1 << 16)
                assert chunk, "chromium ended"
                self._rest += chunk
            line, _, self._rest = self._rest.partition(b"\0")
            answer = json.loads(line)
            self._keep_error(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def _keep_error(self, message: dict[str, Any]) -> None:
        """Keeps an exception that no script caught, or an error in the log."""
        params = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"]))
        entry = params.get("entry", {})
        if message.get("method") == "Log.entryAdded" and entry["level"] == "error":
            self.errors.append(entry["text"])

    def open(self, url: str, width: int, *, dark: bool = False) -> None:
        size = {"width": width, "height": 800, "deviceScaleFactor": 1}
        mobile = width < 600
        mode = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setDeviceMetricsOverride", **size, mobile=mobile)
        self.call("Emulation.setEmulatedMedia", features=[mode])
        self.errors.clear()
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def picture(self, path: Path) -> None:
        """Writes a PNG of the whole page."""
        options = {"format": "png", "captureBeyondViewport": True}
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {**size, "x": 0, "y": 0, "scale": 1}
        data = self.call("Page.captureScreenshot", **options, clip=clip)["data"]
        path.write_bytes(base64.b64decode(data))

    def run(self, script: str) -> object:
        response = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in response, response
        return response["result"].get("value")

    def wait(self, condition: str) -> None:
        deadline = time.monotonic() + 60
        while not self.run(condition):
            assert time.monotonic() < deadline, self.run("document.body.innerText")
            time.sleep(0.02)

    def submit(self, text: str) -> None:
        """Types a text, and presses Ctrl and Enter."""
        self.call("Input.insertText", text=text)
        self.press("Enter", modifiers=2)

    def press(self, name: str, modifiers: int = 0) -> None:
        """Presses a key that writes no character."""
        key = {"key": name, "code": name, "windowsVirtualKeyCode": _KEY_CODES[name]}
        for event in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=event, modifiers=modifiers, **key)

    def point(self, selector: str) -> None:
        """Moves the mouse to the middle of an element, which is scrolled into view."""
        x, y = self.run(
            f"""(() => {{
              const element = document.querySelector({json.dumps(selector)});
              element.scrollIntoView({{ block: "center", inline: "center" }});
              const box = element.getBoundingClientRect();
              return [box.left + box.width / 2, box.top + box.height / 2];
            }})()"""
        )
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)


class Chromium:
    """A running browser."""

    def __init__(self, to: int, back: int) -> None:
        self._pipes = (to, back)

    @contextlib.contextmanager
    def page(self) -> Iterator[Page]:
        """Opens a page, the only one at a time."""
        with contextlib.closing(Page(*self._pipes)) as page:
            yield page


@contextlib.contextmanager
def started() -> Iterator[Chromium]:
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
            yield Chromium(to_write, back_read)
        finally:
            process.terminate()
            process.wait()
            os.close(to_write)
            os.close(back_read)

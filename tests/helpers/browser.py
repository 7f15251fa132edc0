"""Chromium without a window, driven through its debugging pipe, for tests of pages."""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator

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
        self._session: dict[str, str] = {}
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}

    def call(self, method: str, **params: object) -> dict[str, object]:
        """Calls a method and returns its answer; skips events."""
        message = {"id": 1, "method": method, "params": params} | self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        answer: dict[str, object] = {}
        while "id" not in answer:
            while b"\0" not in self._rest:
                chunk = os.read(self._back, 1 << 16)
                assert chunk, "chromium ended"
                self._rest += chunk
            line, _, self._rest = self._rest.partition(b"\0")
            answer = json.loads(line)
        assert "error" not in answer, answer
        return answer["result"]

    def open(self, url: str, width: int) -> None:
        size = {"width": width, "height": 800, "deviceScaleFactor": 1}
        mobile = width < 600
        self.call("Emulation.setDeviceMetricsOverride", **size, mobile=mobile)
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def run(self, script: str) -> object:
        response = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in response, response
        return response["result"].get("value")

    def wait(self, condition: str) -> None:
        deadline = time.monotonic() + 60
        while not self.run(condition):
            assert time.monotonic() < deadline, self.run("document.body.innerText")
            time.sleep(0.05)

    def submit(self, text: str) -> None:
        """Types a text, and presses Ctrl and Enter."""
        self.call("Input.insertText", text=text)
        key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13}
        for event in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=event, modifiers=2, **key)


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

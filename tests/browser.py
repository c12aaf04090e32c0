"""A headless Chromium, driven through its debugging pipe; no driver and no library is needed."""

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
TIMEOUT_S = 60.0


class Browser:
    """One page of a browser."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, os.fdopen(answers, "rb", buffering=0)
        self._unread = b""
        self._number = 0
        self._session = ""
        self.console: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the browser and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + TIMEOUT_S
        while time.monotonic() < until:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return dict(answer["result"])
            if answer.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.console.append(json.dumps(answer["params"])[:400])
        raise TimeoutError(f"the browser does not answer {method}")

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            piece = self._answers.read(1 << 20)
            assert piece, "the browser ended"
            self._unread += piece
        text, _, self._unread = self._unread.partition(b"\0")
        return dict(json.loads(text))

    def size(self, width: int, height: int, dark: bool = False) -> None:
        """Set the size of the screen and its colour scheme."""
        phone = width < 600
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
        self.call("Emulation.setDeviceMetricsOverride", **screen)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        """Open a page and wait until it is loaded."""
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """Evaluate an expression in the page."""
        options = {"returnByValue": True, "awaitPromise": True}
        result = self.call("Runtime.evaluate", expression=script, **options)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, script: str) -> None:
        """Wait until an expression is true."""
        until = time.monotonic() + TIMEOUT_S
        while not self.run(f"!!({script})"):
            assert time.monotonic() < until, f"not true in time: {script}"
            time.sleep(0.05)

    def picture(self, file: Path) -> None:
        """Save a picture of the screen."""
        data = self.call("Page.captureScreenshot")["data"]
        file.write_bytes(base64.b64decode(data))


@contextmanager
def open_browser(folder: Path) -> Iterator[Browser]:
    """Start a browser with an empty profile; always stop it."""
    assert CHROMIUM is not None
    read_commands, commands = os.pipe()
    answers, write_answers = os.pipe()
    options = (
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"),
        *("--no-first-run", "--disable-background-networking", f"--user-data-dir={folder}"),
    )
    script = f'exec "$0" "$@" 3<&{read_commands} 4>&{write_answers}'
    process = subprocess.Popen(
        ["bash", "-c", script, CHROMIUM, *options],
        pass_fds=(read_commands, write_answers),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(read_commands)
    os.close(write_answers)
    try:
        yield Browser(commands, answers)
    finally:
        process.terminate()
        process.wait(300)
        os.close(commands)

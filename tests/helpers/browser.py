"""A headless Chromium driven over its debugging pipe: no driver, no port, nothing to install beside it."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

BINARIES = ("chromium", "chromium-browser", "google-chrome")
SECONDS = 60.0
READY = "document.body && document.body.dataset.ready == 'yes'"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)


def find_chromium() -> str | None:
    return next((path for name in BINARIES if (path := shutil.which(name))), None)


class Browser:
    """One page in a Chromium of its own. `problems` lists what its console complained of."""

    def __init__(self, binary: str) -> None:
        self.folder = tempfile.mkdtemp(prefix="sparsefactor-chromium-")
        to_read, self.write_end = os.pipe()
        self.read_end, to_write = os.pipe()

        def place_pipes() -> None:  # Chromium reads commands from 3 and writes answers to 4
            low = [os.dup2(fd, 100 + i) for i, fd in enumerate((to_read, to_write))]
            for target, fd in zip((3, 4), low, strict=True):
                os.dup2(fd, target, inheritable=True)

        self.process = subprocess.Popen(
            [binary, *FLAGS, f"--user-data-dir={self.folder}", "about:blank"],
            preexec_fn=place_pipes,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_read)
        os.close(to_write)
        self.buffer, self.number = b"", 0
        self.session: str | None = None
        self.problems: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Page"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.write_end)
        os.close(self.read_end)
        shutil.rmtree(self.folder, ignore_errors=True)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; events that come meanwhile are looked at."""
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": params}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return dict(answer["result"])

    def open(
        self,
        path: Path,
        *,
        width: int = 1200,
        height: int = 900,
        ready: str = READY,
    ) -> None:
        """Open a file and wait until it is ready; a page of ours says so itself, and may not complain."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        self.call("Page.navigate", url=path.resolve().as_uri())
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            if self.run(ready):
                return
            if self.problems and ready == READY:
                break
            time.sleep(0.05)
        raise AssertionError(f"{path} did not become ready: {self.problems}")

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def screenshot(self, path: Path) -> None:
        import base64

        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]))

    def capture(self, path: Path) -> None:
        """What is seen on the screen, without what lies below."""
        import base64

        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def mouse(self, kind: str, x: float, y: float) -> None:
        button = "none" if kind == "mouseMoved" else "left"
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, clickCount=1)

    def key(self, name: str) -> None:
        """Press a key: Tab, or a character."""
        more = {"text": name} if len(name) == 1 else {"code": name, "windowsVirtualKeyCode": 9}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=name, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=name)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read_end], [], [], SECONDS)
            chunk = os.read(self.read_end, 1 << 20) if ready else b""
            if not chunk:
                raise TimeoutError("Chromium does not answer")
            self.buffer += chunk
        line, self.buffer = self.buffer.split(b"\0", 1)
        message = dict(json.loads(line))
        self._look(message)
        return message

    def _look(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            self.problems.append(str(params["exceptionDetails"]))
        elif message.get("method") == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.problems.append(str(params["args"]))
        elif message.get("method") == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(str(params["entry"]))

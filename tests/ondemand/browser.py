"""Headless Chromium, used as a person uses a browser: it is looked at, clicked and typed into (DevTools protocol)."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import websocket
from PIL import Image

WIDTH, HEIGHT = 1280, 760
SHIFT = 8  # the protocol's bit for that key
COLOURS = 48  # of a picture: a page is small then


class ProtocolError(AssertionError):
    """The browser refused a command."""


class Browser:
    """One page of a browser, which answers within `patience` seconds."""

    def __init__(self, url: str, patience: float = 120) -> None:
        self._socket = websocket.create_connection(url, timeout=patience, suppress_origin=True)
        self._patience = patience
        self._sent = 0
        self._page = ""  # id of the page in use
        self._session = ""
        self.turn()

    def open(self, url: str) -> None:
        self._call("Page.navigate", url=url)
        self.until("document.readyState == 'complete'")

    def turn(self) -> None:
        """Use another page than now: the first one, or a tab that has just been opened."""

        def other_page() -> str | None:
            targets = self._call("Target.getTargets")["targetInfos"]
            pages = [target["targetId"] for target in targets if target["type"] == "page"]
            return next((page for page in pages if page != self._page), None)

        self._session = ""
        self._page = self._wait(other_page, "another page")
        self._session = self._call("Target.attachToTarget", targetId=self._page, flatten=True)["sessionId"]
        self._call("Page.bringToFront")  # JupyterLab waits for the focus with its status bar and menus
        self._call("Emulation.setFocusEmulationEnabled", enabled=True)
        screen = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", **screen)

    def value(self, expression: str) -> Any:
        """What `expression`, in JavaScript, is on the page now."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise ProtocolError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def until(self, expression: str, patience: float = 0) -> Any:
        """Wait for `expression` to become true; its value then."""
        return self._wait(lambda: self._true(expression), expression, patience)

    def click(self, selector: str, text: str = "", until: str = "true") -> None:
        """Click on the first visible element of that kind with such a text; again, until `until` is true.

        A page that is still being built may move what one aims at.
        """
        place = (
            f"(() => {{ const box = [...document.querySelectorAll({json.dumps(selector)})].filter("
            f"(one) => one.innerText.trim().startsWith({json.dumps(text)})).map((one) => one.getBoundingClientRect())"
            ".find((box) => box.width); return box && [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )

        def clicked() -> bool:
            x, y = self.until(place)
            self._call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
            for kind in ("mousePressed", "mouseReleased"):
                self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
            time.sleep(0.3)
            return self._true(until)

        self._wait(clicked, f"{until}, clicking on {selector} {text}")

    def write(self, text: str) -> None:
        self._call("Input.insertText", text=text)

    def enter(self, modifiers: int = 0) -> None:
        key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "modifiers": modifiers}
        self._call("Input.dispatchKeyEvent", type="keyDown", text="\r", **key)
        self._call("Input.dispatchKeyEvent", type="keyUp", **key)

    def photograph(self, path: Path, height: int = HEIGHT) -> None:
        """The upper part of the screen now, as a small PNG."""
        part = {"x": 0, "y": 0, "width": WIDTH, "height": height, "scale": 1}
        data = base64.b64decode(self._call("Page.captureScreenshot", clip=part)["data"])
        path.parent.mkdir(exist_ok=True)
        Image.open(io.BytesIO(data)).convert("RGB").quantize(COLOURS).save(path, optimize=True)

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._sent += 1
        message = {"id": self._sent, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._socket.send(json.dumps(message))
        while (answer := json.loads(self._socket.recv())).get("id") != self._sent:
            pass  # an event
        if "error" in answer:
            raise ProtocolError(f"{method}: {answer['error']}")
        return answer["result"]

    def _true(self, expression: str) -> Any:
        with contextlib.suppress(ProtocolError):  # one page has gone, the next is not there yet
            return self.value(expression)

    def _wait(self, condition: Callable[[], Any], what: str, patience: float = 0) -> Any:
        end = time.monotonic() + (patience or self._patience)
        while not (value := condition()):
            if time.monotonic() > end:
                shown = self._true("document.body.innerText.slice(0, 3000)") if self._session else None
                raise AssertionError(f"waited in vain for {what}; the page shows:\n{shown}")
            time.sleep(0.2)
        return value


@contextlib.contextmanager
def started(program: str, profile: Path) -> Iterator[Browser]:
    """Chromium with an empty `profile`; all its processes end with the block."""
    command = [
        program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
        "--disable-breakpad", f"--user-data-dir={profile}", "--remote-debugging-port=0", "about:blank",
    ]  # fmt: skip
    process = subprocess.Popen(
        command, env=os.environ | {"HOME": str(profile)}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        ready = profile / "DevToolsActivePort"  # two lines: the port and a path
        end = time.monotonic() + 60
        while not (ready.exists() and ready.read_text().count("\n")):
            assert time.monotonic() < end and process.poll() is None, "Chromium did not start"
            time.sleep(0.1)
        port, path = ready.read_text().splitlines()
        yield Browser(f"ws://127.0.0.1:{port}{path}")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

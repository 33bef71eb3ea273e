"""Headless Chromium, used as a person uses a browser: it is looked at, clicked and typed into (DevTools protocol)."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import websocket

SHIFT = 8  # the protocol's bit for that key


class ProtocolError(AssertionError):
    """The browser refused a command."""


class Browser:
    """A browser with a profile of its own; `close` ends all its processes.

    Args:
        program: Chromium. profile: an empty folder. patience: seconds that an answer or a condition may take.
    """

    def __init__(self, program: str, profile: Path, patience: float = 90):
        self._patience = patience
        self._sent = 0
        self._page = ""  # id of the page that is used
        self._session = ""
        self._process = subprocess.Popen(
            [
                program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
                "--disable-background-networking", "--disable-component-update", "--disable-sync",
                "--disable-dev-shm-usage", "--disable-breakpad", "--window-size=1280,900",
                f"--user-data-dir={profile}", "--remote-debugging-port=0", "about:blank",
            ],
            env=os.environ | {"HOME": str(profile)},  # its crash reporter writes there
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            port, path = self._wait(lambda: _two_lines(profile / "DevToolsActivePort"), "Chromium's start")
            url = f"ws://127.0.0.1:{port}{path}"
            self._socket = websocket.create_connection(url, timeout=patience, suppress_origin=True)
            self.turn()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def open(self, url: str) -> None:
        self._call("Page.navigate", url=url)
        self.until("document.readyState == 'complete'")

    def turn(self) -> None:
        """Use another page than now: the first one, or a tab that has just been opened."""

        def other() -> str | None:
            pages = [target for target in self._call("Target.getTargets")["targetInfos"] if target["type"] == "page"]
            return next((page["targetId"] for page in pages if page["targetId"] != self._page), None)

        self._session = ""
        self._page = self._wait(other, "another page")
        self._session = self._call("Target.attachToTarget", targetId=self._page, flatten=True)["sessionId"]

    def value(self, expression: str) -> Any:
        """What `expression`, in JavaScript, is on the page now."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise ProtocolError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def until(self, expression: str) -> Any:
        """Wait for `expression` to become true; what it is then."""
        return self._wait(lambda: self._true(expression), expression)

    def click(self, selector: str, until: str = "true") -> None:
        """Click into the middle of the first element of that kind that can be seen; again, until `until` is true.

        A page that is still being built may move what one aims at.
        """
        place = (
            f"(() => {{ const found = document.querySelector({json.dumps(selector)});"
            "found?.scrollIntoView({block: 'nearest'}); const box = found?.getBoundingClientRect();"
            "return box?.width ? [box.x + box.width / 2, box.y + box.height / 2] : null; })()"
        )

        def clicked() -> bool:
            x, y = self.until(place)
            for kind in ("mousePressed", "mouseReleased"):
                self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
            time.sleep(0.2)
            return self._true(until)

        self._wait(clicked, f"{until}, clicking on {selector}")

    def write(self, text: str) -> None:
        self._call("Input.insertText", text=text)

    def enter(self, modifiers: int = 0) -> None:
        key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "modifiers": modifiers}
        self._call("Input.dispatchKeyEvent", type="keyDown", text="\r", **key)
        self._call("Input.dispatchKeyEvent", type="keyUp", **key)

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

    def _wait(self, condition: Callable[[], Any], what: str) -> Any:
        end = time.monotonic() + self._patience
        while not (found := condition()):
            if time.monotonic() > end:
                shown = self._true("document.body.innerText.slice(0, 3000)") if self._session else None
                raise AssertionError(f"waited {self._patience} s in vain for {what}; the page shows:\n{shown}")
            time.sleep(0.1)
        return found


def _two_lines(path: Path) -> list[str] | None:
    """What Chromium writes when it is ready; None before."""
    lines = path.read_text().splitlines() if path.exists() else []
    return lines if len(lines) == 2 else None

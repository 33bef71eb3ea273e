"""A page in a real browser: headless Chromium, which CI must have."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

WATCH = """<script>
window.problems = [];
addEventListener("error", (event) => problems.push(event.message));
addEventListener("securitypolicyviolation", (event) => problems.push(event.blockedURI));
</script>"""


def scripted(page: str, script: str) -> str:
    """`page` with a script that tries it, and a watch on its errors (`problems`)."""
    return page.replace("<head>", "<head>" + WATCH).replace("</body>", script + "</body>")


def browser() -> str:
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None and os.environ.get("CI") == "true" and sys.platform == "linux":
        pytest.fail("no Chromium on PATH: the CI installs it, so that the report is tried in a real browser")
    return found or pytest.skip("no Chromium on PATH: the report is not tried in a real browser")


def opened(page: Path, profile: Path, size: str = "1280,900", at: str = "") -> tuple[BeautifulSoup, list[str]]:
    """`page` (at an anchor) after its scripts ran in headless Chromium, and what the console said."""
    command = [
        browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
        "--enable-logging=stderr", f"--user-data-dir={profile}", f"--window-size={size}", "--dump-dom", page.as_uri() + at,
    ]  # fmt: skip
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        out, err = process.communicate(timeout=120)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert process.returncode == 0, err
    return BeautifulSoup(out, "html.parser"), [line for line in err.splitlines() if "CONSOLE" in line]

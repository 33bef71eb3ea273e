"""A page in a real browser: headless Chromium, which CI must have."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

WATCH = """<script>
window.problems = [];
addEventListener("error", (event) => problems.push(event.message));
addEventListener("unhandledrejection", (event) => problems.push(String(event.reason)));
addEventListener("securitypolicyviolation", (event) => problems.push(event.blockedURI));
</script>"""
TRY = """
const early = document.documentElement.scrollWidth > innerWidth; // as without scripts
(async () => {
  const seen = {};
  const settled = () => new Promise((done) => setTimeout(done, 50)); // an address changes a moment later
  %s;
  seen.overflow = early || document.documentElement.scrollWidth > innerWidth;
  seen.requests = performance.getEntriesByType("resource").map((entry) => entry.name).filter((name) => !/^(data|blob):/.test(name));
  seen.problems = problems;
  document.title = JSON.stringify(seen);
})();
"""


def digest(script: str) -> str:
    """The source of an inline script as a content security policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def tried(page: Path, profile: Path, script: str, at: str = "", size: str = "1280,900") -> dict:
    """What `script` notes in `seen`, in a copy of `page`; that page makes no error, no request, and fits the screen."""
    copy = page.with_name("tried.html")
    script = TRY % script
    text = (
        page.read_text().replace("<head>", "<head>" + WATCH).replace("script-src ", f"script-src {digest(script)} ")
    )
    copy.write_text(text.replace("</body>", f"<script>{script}</script></body>"))
    dom, console = opened(copy, profile, size, at)
    assert console == []
    seen = json.loads(dom.title.get_text())
    assert (seen.pop("problems"), seen.pop("requests"), seen.pop("overflow")) == ([], [], False)
    return seen


def browser() -> str:
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None and os.environ.get("CI") == "true" and sys.platform == "linux":
        pytest.fail("no Chromium on PATH: the CI installs it, so that the report is tried in a real browser")
    return found or pytest.skip("no Chromium on PATH: the report is not tried in a real browser")


def opened(
    page: Path, profile: Path, size: str = "1280,900", at: str = "", more: Sequence[str] = ()
) -> tuple[BeautifulSoup, list[str]]:
    """`page` (at an anchor) after its scripts ran in headless Chromium, with `more` options, and what the console said."""
    command = [
        browser(), "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=10000", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
        "--enable-logging=stderr", f"--user-data-dir={profile}", f"--window-size={size}", "--dump-dom", *more, page.as_uri() + at,
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

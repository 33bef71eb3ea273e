"""A session as it is lived: submitted to a real Slurm, opened as the portal's card does, ended."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from urllib.parse import urlencode

import jupyter_client.session
import pytest
import websocket
from bs4 import BeautifulSoup

from hpc_utils.rehearsal import Cluster
from tests.support import wait_for

from .conftest import APP, dashboard, submitted

# A name that a shell would trip over; JupyterLab and the scripts must not.
CLONE = """my "clone"; touch $(touch here) 'quoted'"""
# What a careless user may have set for other servers: read first, it must not open this one.
CARELESS = {
    "ServerApp": {"allow_unauthenticated_access": True, "disable_check_xsrf": True, "password": ""},
    "IdentityProvider": {"token": "known"},
    "PasswordIdentityProvider": {"hashed_password": "", "password_required": False},
}
ENVIRONMENT = """
export HOME={home} JUPYTER_TOKEN=known
export PATH={programs}:"$PATH"
"""


@dataclass(frozen=True)
class Session:
    """A running session: job id, its folder, the user's clone and home, address, and what connection.yml says."""

    job: str
    folder: Path
    clone: Path
    home: Path
    address: str
    host: str
    port: int
    password: str

    def ask(
        self, method: str, path: str, body: dict[str, str] | str | None = None, **headers: str
    ) -> tuple[int, dict[str, str], str]:
        """Status, headers and body of an answer of the server; `path` is what follows /node/<host>/<port>."""
        connection = http.client.HTTPConnection(self.address, self.port, timeout=60)
        headers = {"Host": f"{self.host}:{self.port}"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        if isinstance(body, dict):
            headers["Content-Type"] = "application/x-www-form-urlencoded"
            body = urlencode(body)
        url = f"/node/{self.host}/{self.port}{path}"
        with contextlib.closing(connection):
            connection.request(method, url, body=body, headers=headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode(errors="replace")


@pytest.fixture(scope="module")
def session(cluster: Cluster, slurm, launch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    top = tmp_path_factory.mktemp("user")
    clone, home = top / CLONE, top / "home"
    for folder in (clone / "jobs", clone / "notebooks", home / ".jupyter"):
        folder.mkdir(parents=True)
    (clone / "notebooks/00_start_here.ipynb").write_text("{}")
    (clone / "jobs/environment.sh").write_text(
        ENVIRONMENT.format(home=quote(str(home)), programs=quote(str(Path(sys.executable).parent)))
    )
    (home / ".jupyter/jupyter_config.json").write_text(json.dumps(CARELESS))

    folder, arguments = launch(clone)
    with submitted(slurm, folder, arguments) as (job, node, connection):
        yield Session(job, folder, clone, home, cluster.address(node), **connection)


def processes(marks: tuple[str, ...]) -> dict[int, str]:
    """Command line and environment of each process that has one of `marks` in them."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            text = "".join((folder / name).read_bytes().decode(errors="replace") for name in ("cmdline", "environ"))
            if any(mark in text for mark in marks):
                found[int(folder.name)] = text
    return found


def test_the_card_s_form_opens_jupyterlab_whose_cells_run_in_the_job(session: Session) -> None:
    form = BeautifulSoup(dashboard("view", APP, session.folder), "html.parser").form
    assert (form["method"], form["action"]) == ("post", f"/node/{session.host}/{session.port}/login")
    fields = {field["name"]: field["value"] for field in form.select("input")}
    status, headers, _ = session.ask("POST", "/login", fields, X_Forwarded_Proto="https", Origin="https://portal.org")
    assert status == 302
    cookie = headers["Set-Cookie"]
    assert all(part in cookie for part in ("HttpOnly", "Secure", "SameSite=Strict"))
    cookie = cookie.partition(";")[0]
    assert session.ask("GET", "/", Cookie=cookie)[1]["Location"].endswith("/notebooks/00_start_here.ipynb?")
    # Requests that change something need the page's own token, too.
    assert session.ask("POST", "/api/kernels", Cookie=cookie)[0] == 403
    token = session.ask("GET", "/lab", Cookie=cookie)[1]["Set-Cookie"].partition(";")[0]
    kernel = {"name": "python3", "path": "notebooks/00_start_here.ipynb"}
    page = {"Cookie": f"{cookie}; {token}", "X_XSRFToken": token.partition("=")[2]}
    status, _, answer = session.ask("POST", "/api/kernels", json.dumps(kernel), **page)
    assert status == 201, answer
    said = executed(
        session,
        json.loads(answer)["id"],
        cookie,
        "import os, sys; print(sys.prefix, os.environ['SLURM_JOB_ID'], os.getcwd())",
    )
    assert said == f"{sys.prefix} {session.job} {session.clone / 'notebooks'}\n"


def executed(session: Session, kernel: str, cookie: str, code: str) -> str:
    """What a cell prints in a kernel of the session."""
    node = f"{session.host}:{session.port}"
    url = f"ws://{session.address}:{session.port}/node/{session.host}/{session.port}/api/kernels/{kernel}/channels"
    with contextlib.closing(websocket.create_connection(url, timeout=90, host=node, cookie=cookie)) as channels:
        request = jupyter_client.session.Session().msg("execute_request", {"code": code})
        channels.send(json.dumps(request | {"channel": "shell"}, default=str))
        while (message := json.loads(channels.recv()))["msg_type"] != "stream":
            assert message["msg_type"] != "error", message["content"]
        return message["content"]["text"]


def test_without_the_password_access_is_denied(session: Session) -> None:
    status, headers, _ = session.ask("GET", "/lab")
    assert (status, headers["Location"].partition("?")[0]) == (302, f"/node/{session.host}/{session.port}/login")
    for path in ("/api/contents", "/api/kernels", "/api/contents?token=known", "/api/contents?token=", "/files/jobs"):
        assert session.ask("GET", path)[0] in (302, 403), path
    assert session.ask("GET", "/api/kernels", Authorization="token known")[0] == 403
    assert session.ask("POST", "/api/kernels")[0] == 403
    socket = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec_WebSocket_Key": "x" * 22 + "==",
        "Sec_WebSocket_Version": "13",
    }
    for path in ("/terminals/websocket/1", "/lsp/ws/any"):  # an extension's own, too
        assert session.ask("GET", path, **socket)[0] == 403, path
    for password in ("", "known", "wrong", (session.folder / "password_hash").read_text()):
        status, headers, _ = session.ask("POST", "/login", {"password": password})
        assert status == 401, password
        assert "username-" not in headers.get("Set-Cookie", "")


def test_nothing_in_the_session_s_folder_is_readable_by_others(session: Session) -> None:
    paths = [session.folder, *session.folder.rglob("*")]
    assert {"connection.yml", "password_hash", "output.log", "runtime"} <= {path.name for path in paths}
    assert [path.name for path in paths if path.stat().st_mode & 0o077] == []
    holders = [path.name for path in paths if path.is_file() and session.password in path.read_text(errors="replace")]
    assert holders == ["connection.yml"]
    assert not (
        session.home / ".local/share/jupyter/runtime"
    ).exists()  # keys of kernels and cookies: in the folder too


def test_the_password_is_in_no_process_and_the_folder_s_name_was_no_command(session: Session) -> None:
    server = processes((str(session.folder / "jupyter_config.py"),))
    assert server and not any("SLURM_EXPORT_ENV" in text for text in server.values())
    assert processes((session.password,)) == {}
    assert not [path for folder in (session.folder, session.clone, session.home) for path in folder.rglob("here*")]


def test_cancelled_it_leaves_nothing_running(session: Session, slurm) -> None:
    """The last test of the session."""
    marks = (str(session.folder), str(session.clone))
    assert processes(marks)
    slurm("scancel", session.job)
    wait_for(lambda: not processes(marks), seconds=60, every=0.2)
    with pytest.raises(OSError):
        session.ask("GET", "/login")
    assert os.listdir(session.clone / "notebooks")  # what was saved stays

"""The doctor as a job on two nodes, as a newcomer to a cluster calls it."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from hpc_utils import paths

from .conftest import Desk


@pytest.fixture(scope="module")
def asked(cluster, tmp_path_factory: pytest.TempPathFactory) -> tuple[Desk, subprocess.CompletedProcess]:
    desk = Desk(tmp_path_factory.mktemp("doctor"), cluster)
    return desk, desk.hpc("doctor", "--cluster", "rehearsal", check=False)


@pytest.fixture(scope="module")
def report(asked) -> dict:
    """What is archived with the study."""
    desk, said = asked
    kept = list((desk.results / "doctor").glob("*/doctor.json"))
    assert len(kept) == 1, said.stdout + said.stderr
    return json.loads(kept[0].read_text())


def test_the_answer_is_shown_and_is_the_exit_code(asked, report: dict) -> None:
    _, said = asked
    assert said.returncode == (1 if report["verdict"] == "fail" else 0), said.stderr
    assert "waiting for it to start and end" in said.stderr
    for check in report["checks"]:
        assert check["name"] in said.stdout
    page = (paths.root() / "docs/cluster.md").read_text()
    shown = set(re.findall(r"^[✔✘?–] (\S.*?)  ", page, re.M))
    assert len(shown) > 5 and shown <= {check["name"] for check in report["checks"]}


def test_the_nodes_are_distinguished_and_slurm_answers_on_them(asked, report: dict) -> None:
    assert (report["nodes"], report["hosts"]) == (2, ["node1", "node2"])
    assert report["provenance"]["job"]["nodelist"] == "node[1-2]"
    verdicts = {check["name"]: check["verdict"] for check in report["checks"]}
    for name in ("ranks", "names", "process group", "shared results", "clock skew", "time limit"):
        assert verdicts[name] == "pass", asked[1].stdout

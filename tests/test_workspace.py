"""The environment of a process: what users and launchers say in it, and how it is passed on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpc_utils import paths, workspace
from hpc_utils.workspace import Launch, Profiler

RECORD = Launch("owner", "/r/runs/a", 7, "why", Profiler("nsys", "cuda", 8, 0o22))


def test_a_record_arrives_as_it_was_sent() -> None:
    assert Launch.of(RECORD.variables) == RECORD
    assert Launch.of(Launch().variables) == Launch.of({}) == Launch()


@pytest.mark.parametrize("text", ["7", "{", '{"profiler": {"tool": "nsys"}}'])
def test_a_damaged_record_is_none(text: str) -> None:
    assert Launch.of({"HPC_LAUNCH": text}) == Launch()


def test_variables_of_a_block_hold_for_what_is_read_and_started_in_it(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HPC_RESULTS", "/mine")
    monkeypatch.setenv("RANK", "3")
    before = dict(os.environ)
    with workspace.using(HPC_RESULTS=str(tmp_path)):
        assert paths.results() == tmp_path
        assert workspace.child_environment()["HPC_RESULTS"] == str(tmp_path)
        assert "RANK" not in workspace.child_environment()
        assert dict(os.environ) == before
    assert paths.results() == Path("/mine")


def test_a_child_s_imports_start_no_threads_unless_the_user_asks(monkeypatch) -> None:
    assert workspace.child_environment()["JE_ARROW_MALLOC_CONF"] == "background_thread:false"
    monkeypatch.setenv("JE_ARROW_MALLOC_CONF", "background_thread:true")
    assert workspace.child_environment()["JE_ARROW_MALLOC_CONF"] == "background_thread:true"


def test_what_a_rank_starts_inherits_the_owner_alone() -> None:
    code = """
import os
from hpc_utils import workspace
record = workspace.adopt()
assert record.run == "/r/runs/a" and workspace.launch() == record
print(workspace.Launch.of(os.environ) == workspace.Launch("owner"))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | RECORD.variables, capture_output=True, text=True
    )
    assert done.stdout.strip() == "True", done.stderr

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from hpc_utils.provenance.tools import number, read_text, run_tool
from tests.support import wait_for


def test_a_failing_tool_is_named_and_a_missing_one_is_no_fault(tool: Callable[[str, str], None]) -> None:
    faults: list[str] = []
    assert run_tool("no-such-tool-anywhere", faults=faults) is None and faults == []
    tool("nvidia-smi", "echo 'NVIDIA-SMI has failed because it could not reach the driver.'; exit 9")
    assert run_tool("nvidia-smi", faults=faults) is None
    assert faults == ["nvidia-smi failed: NVIDIA-SMI has failed because it could not reach the driver."]


def test_a_tool_that_cannot_start_is_named(tool: Callable[[str, str], None], tmp_path: Path) -> None:
    faults: list[str] = []
    (tmp_path / "bin/nvidia-smi").write_bytes(b"\x7fELF for another machine")
    (tmp_path / "bin/nvidia-smi").chmod(0o755)
    assert run_tool("nvidia-smi", faults=faults) is None
    assert faults and faults[0].startswith("nvidia-smi cannot be started")


@pytest.mark.parametrize("script", ["sleep 60 & wait", "trap '' TERM; sleep 60"])
def test_a_hanging_tool_is_ended_with_its_children(
    script: str, tool: Callable[[str, str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPC_PROBE_TIMEOUT", "0.2")
    tool("nvidia-smi", f"echo $$ > {tmp_path}/pid\n{script}")
    faults: list[str] = []
    start = time.monotonic()
    assert run_tool("nvidia-smi", faults=faults) is None
    assert time.monotonic() - start < 40
    assert faults == ["nvidia-smi did not answer within 0.2 s"]
    wait_for(lambda: not living(int((tmp_path / "pid").read_text())))


def living(group: int) -> list[str]:
    """The group's processes; the dead that nobody has collected yet do not count."""
    names = []
    for process in psutil.process_iter(["name", "status"]):
        with suppress(OSError):
            if os.getpgid(process.pid) == group and process.info["status"] != psutil.STATUS_ZOMBIE:
                names.append(process.info["name"])
    return names


def test_read_and_number(tmp_path: Path) -> None:
    (tmp_path / "speed").write_text("25000\n")
    assert number(read_text(tmp_path / "speed")) == 25_000
    assert read_text(tmp_path / "absent") is None
    assert read_text(tmp_path) is None
    assert [number(text) for text in ("-1", "[N/A]", None, "inf", "nan", "16.0")] == [None] * 5 + [16]

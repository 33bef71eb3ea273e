"""What the room lets in: rooms that DESIGN allows it, and torch only where a rank needs it."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "never"),
    [
        ("hpc_utils.probe.plan", {"launch", "analyze", "publish", "cli", "rehearsal"}),
        ("hpc_utils.probe.__main__", {"launch", "analyze", "publish", "cli", "rehearsal", "train"}),
    ],
)
def test_rooms_that_it_does_not_enter(module, never) -> None:
    loaded = modules(module)
    assert not {name for name in loaded if name.startswith(tuple(f"hpc_utils.{room}" for room in never))}


@pytest.mark.parametrize(
    "module", ["hpc_utils.probe.__main__", "hpc_utils.probe.names", "hpc_utils.probe.surroundings"]
)
def test_what_must_work_before_torch_does_needs_none(module) -> None:
    assert "torch" not in modules(module)


def modules(name: str) -> set[str]:
    code = f"import {name}, sys; print(*sys.modules)"
    return set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )

"""What the room needs before an engine runs."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["engines", "host", "member"])
def test_the_notebooks_side_needs_no_torch(module: str) -> None:
    code = f"import hpc_utils.interactive.{module}, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(done.stdout.split())
    assert not loaded & {"torch", "pandas", "matplotlib", "hpc_utils.train", "hpc_utils.publish"}
    if module == "host":  # it stays as long as the engines do
        assert "ipyparallel" not in loaded

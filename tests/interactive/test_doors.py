"""What the room needs before an engine runs."""

from __future__ import annotations

import subprocess
import sys


def test_the_notebooks_side_needs_no_torch() -> None:
    code = "import hpc_utils.interactive.engines, sys; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    modules = set(result.stdout.split())
    assert not modules & {"torch", "pandas", "matplotlib", "hpc_utils.train", "hpc_utils.publish"}

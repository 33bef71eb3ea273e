"""Commands in the pages of the project: read, executed where a reader works, and compared with the outputs that the pages show."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from hpc_utils import paths
from hpc_utils.launch.slurm_commands import clean_environment

ROOT = paths.root()
# The README and the pages that lead from it, whose commands test_readme.py executes.
GUIDES = ("README.md", "docs/quickstart.md", "docs/your-model.md", "docs/read-a-profile.md", "docs/results.md")
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.M | re.S)
NEEDS = re.compile(r"needs a (cluster|GPU)")  # behind a command that is only tried as a dry run
MEASURED = r"\S*results/|\b[0-9a-f]{8,12}\b|\d[\d,.:]*"  # in an output: folders, digests and numbers


def commands(text: str, kind: str) -> dict[str, str]:
    """{command: what stands behind its #} of the fences of a kind, in their order."""
    parts = [
        line.partition(" #") for fence, block in FENCE.findall(text) if fence == kind for line in block.splitlines()
    ]
    return {command.strip(): about.strip() for command, _, about in parts if command.strip()}


def outputs(text: str) -> dict[str, str]:
    """{command: its output}: a fence without a language below a block of commands is the output of the last one."""
    pairs = re.findall(r"^```sh[^\n]*\n(.*?)^```\n[^`]*?^```\n(.*?)^```$", text, re.M | re.S)
    return {block.splitlines()[-1].partition(" #")[0].strip(): output for block, output in pairs}


def require_shown(shown: str, printed: str, *, exact: bool = False) -> None:
    """Each line that a page shows is printed, with any numbers, digests and folders in place of its own, unless `exact`; `...` and
    HOST stand for anything."""

    def masked(text: str) -> list[str]:
        return [" ".join((line if exact else re.sub(MEASURED, "#", line)).split()) for line in text.splitlines()]

    real = "\n".join(masked(printed))
    for line in masked(shown.replace("HOST", "...")):
        assert re.search(re.escape(line).replace(r"\.\.\.", ".*"), real), f"{line}\nis not in\n{real}"


class Desk:
    """A folder where a reader works: beside the notebooks and committed sets, with results, data and clusters of its own."""

    def __init__(self, folder: Path, clusters: str) -> None:
        self.folder = folder
        self.results = folder / "results"
        self.results.mkdir()
        (folder / "notebooks").symlink_to(ROOT / "notebooks")
        (self.results / "reference").symlink_to(paths.reference())
        self.environment = clean_environment() | {
            "HPC_REHEARSAL": clusters,
            "TMPDIR": clusters,  # has the lock of the cores: no other test's runs are waited for
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HPC_RESULTS": str(self.results),
            "HPC_DATA": str(folder / "data"),
            "HPC_SHARED": "",  # figures are drawn of these runs
        }

    def run(self, command: str, folder: Path | None = None, **environment: str) -> subprocess.CompletedProcess:
        """A command as a reader types it; `make` with the environment that runs this test, so that it installs nothing."""
        program, *arguments = shlex.split(command)
        if program == "make":
            for stamp in (".installed", ".installed-dev"):
                (Path(sys.prefix) / stamp).touch()
            folder = ROOT
            arguments.append(f"VENV={sys.prefix}")
        return subprocess.run(
            [program, *arguments],
            cwd=folder or self.folder,
            env=self.environment | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=3500,
        )

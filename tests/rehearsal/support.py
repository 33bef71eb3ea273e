"""What these tests do with a cluster: call Slurm's tools, wait, look for what is left of one."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from pathlib import Path

from hpc_utils.rehearsal import Cluster, host, network

# A job of an outer Slurm must not be taken for one of the cluster's.
OUTSIDE = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH", "SRUN"))}


def slurm(cluster: Cluster, *command: str, cwd: Path | None = None) -> str:
    """What one of Slurm's tools says, run as a user would."""
    env = OUTSIDE | cluster.environment()
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


def state(cluster: Cluster, job: str) -> str:
    """The job's state as sacct has it; "" until it has."""
    said = slurm(cluster, "sacct", "-X", "-n", "-P", "-j", job, "-o", "State")
    return said.splitlines()[-1].split()[0] if said else ""


def left_of(folder: Path, *markers: str) -> list[str]:
    """Processes that mention `folder` or a marker, its interfaces, its mounts, and itself."""
    left = [str(folder)] if folder.exists() else []
    left += [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(folder) in line]
    left += [link["ifname"] for link in links() if link.get("ifalias") == str(folder)]
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            if any(marker.encode() in words for marker in (f"{folder}/", *markers)):
                left.append(words.replace(b"\0", b" ").decode(errors="replace")[:200])
    return left


def links() -> list[dict]:
    try:
        return json.loads(network.ip("-j", "link", "show", "type", "veth").stdout or "[]")
    except FileNotFoundError:  # flat clusters need no `ip`
        return []


def path_without(program: str, folder: Path) -> str:
    """A PATH on which everything is found but `program`."""
    folder.mkdir()
    for place in host.path().split(os.pathsep):
        for one in Path(place).glob("*"):
            if one.name != program and not (folder / one.name).exists():
                (folder / one.name).symlink_to(one)
    return str(folder)

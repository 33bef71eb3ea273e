"""What a cluster needs of this host: programs, the right to make namespaces; and the errors that name what is missing."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

DEBIAN = (
    "munge slurmctld slurmd slurm-client slurm-wlm-basic-plugins slurmdbd mariadb-server slurm-wlm-mysql-plugin "
    "iproute2 util-linux"
)
SLURM = ("slurmctld", "slurmd", "slurmdbd", "scontrol", "sinfo", "sbatch", "srun", "squeue", "sacct", "sacctmgr")
REQUIRED = ("munged", "munge", *SLURM, "mariadbd", "mariadb-install-db", "setpriv")
FOR_NAMESPACES = ("ip", "tc", "unshare", "nsenter", "mount")
ADMIN_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")  # of daemons; not on an ordinary user's PATH

# Network, host name, shared memory segments, mounts (the host's later ones still arrive) and process ids. When the first
# process inside ends, or `unshare` itself, the kernel ends all others at once.
UNSHARE = ["unshare", "--net", "--uts", "--ipc", "--mount", "--propagation=slave", "--pid", "--fork", "--kill-child"]
UNSHARE += ["--mount-proc"]


class ClusterError(RuntimeError):
    """The cluster cannot be started, found or changed; the message has the reason and what to do."""

    exit_code = 2


class KilledError(ClusterError):
    """The cluster was killed; `down` and `up` remove what it left."""


def tail(log: Path, lines: int = 12) -> str:
    """The last lines of `log`, indented, under its path; only the path where it is empty or missing."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    return "\n".join([f"{log}:", *(f"    {line}" for line in text.splitlines()[-lines:])])


def path() -> str:
    """PATH with the administrators' folders."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join([*folders, *(folder for folder in ADMIN_FOLDERS if folder not in folders)])


def require(flat: bool) -> None:
    """ClusterError that names every missing program and the command that installs it."""
    if sys.platform != "linux":
        raise ClusterError("a rehearsal cluster needs Linux: start it in a virtual machine or a container")
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        raise ClusterError(f"user id {os.geteuid()} has no name, and Slurm needs one: see `getent passwd`") from None
    wanted = REQUIRED if flat else REQUIRED + FOR_NAMESPACES
    if missing := [program for program in wanted if not shutil.which(program, path=path())]:
        sudo = "" if os.geteuid() == 0 else "sudo "
        raise ClusterError(
            f"missing: {', '.join(missing)}\n"
            f"On Debian or Ubuntu: {sudo}apt-get install --no-install-recommends {DEBIAN}\n"
            "Elsewhere: the packages of munge, Slurm (slurmctld, slurmd, slurmdbd with its MySQL plugin), the MariaDB "
            "server, iproute2 and util-linux."
        )


def has_namespaces() -> bool:
    """Whether this process may create namespaces and their network: root may, and a container with the capability."""
    if not shutil.which("unshare", path=path()):
        return False
    probe = [*UNSHARE, "ip", "link", "add", "left", "type", "veth", "peer", "name", "right"]
    return subprocess.run(probe, env={"PATH": path()}, capture_output=True).returncode == 0

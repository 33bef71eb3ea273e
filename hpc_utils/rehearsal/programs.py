"""Which programs a rehearsal cluster is made of, and the command that installs what is missing."""

from __future__ import annotations

import os
import pwd
import shutil
import sys

from .errors import ClusterError

DEBIAN = (
    "munge slurmctld slurmd slurm-client slurm-wlm-basic-plugins slurmdbd mariadb-server slurm-wlm-mysql-plugin "
    "iproute2 util-linux"
)
SLURM = ("slurmctld", "slurmd", "slurmdbd", "scontrol", "sinfo", "sbatch", "srun", "squeue", "sacct", "sacctmgr")
REQUIRED = ("munged", "munge", *SLURM, "mariadbd", "mariadb-install-db", "setpriv")
FOR_NAMESPACES = ("ip", "tc", "unshare", "nsenter", "mount")
ADMIN_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")  # daemons live there, outside an ordinary user's PATH


def path() -> str:
    """PATH with the administrators' folders."""
    given = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join([*given, *(folder for folder in ADMIN_FOLDERS if folder not in given)])


def require(flat: bool) -> None:
    """ClusterError that names every missing program and what installs it."""
    if sys.platform != "linux":
        raise ClusterError("a rehearsal cluster needs Linux: start it in a virtual machine or a container")
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        raise ClusterError(f"user id {os.geteuid()} has no name, and Slurm needs one: see `getent passwd`") from None
    wanted = REQUIRED if flat else REQUIRED + FOR_NAMESPACES
    missing = [program for program in wanted if not shutil.which(program, path=path())]
    if missing:
        raise ClusterError(f"missing: {', '.join(missing)}\n{installation()}")


def installation() -> str:
    """How to install everything."""
    sudo = "" if os.geteuid() == 0 else "sudo "
    return (
        f"On Debian or Ubuntu: {sudo}apt-get install --no-install-recommends {DEBIAN}\n"
        "Elsewhere: the packages of munge, Slurm (slurmctld, slurmd, slurmdbd with its MySQL plugin), the MariaDB "
        "server, iproute2 and util-linux."
    )

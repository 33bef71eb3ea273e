"""Namespaces: what a cluster, and each node in it, has for itself."""

from __future__ import annotations

import shutil
import subprocess

from . import programs

# Network, host name, shared memory segments, mounts (those of the host still arrive) and process ids. When the first
# process inside ends, or `unshare` itself, the kernel ends all others at once.
UNSHARE = ["unshare", "--net", "--uts", "--ipc", "--mount", "--propagation=slave", "--pid", "--fork", "--kill-child"]
UNSHARE += ["--mount-proc"]
CAP_NET_ADMIN = 12  # linux/capability.h


def work() -> bool:
    """Whether they can be had: root can, and so can a container that was given the right."""
    if not _may_administer_the_network() or not shutil.which("unshare", path=programs.path()):
        return False
    probe = [*UNSHARE, "ip", "link", "add", "left", "type", "veth", "peer", "name", "right"]
    return subprocess.run(probe, env={"PATH": programs.path()}, capture_output=True).returncode == 0


def _may_administer_the_network() -> bool:
    with open("/proc/self/status") as status:
        effective = next(line.split()[1] for line in status if line.startswith("CapEff:"))
    return bool(int(effective, 16) >> CAP_NET_ADMIN & 1)

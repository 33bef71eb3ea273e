"""Without root: several slurmd on one host."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import hpc_utils
from hpc_utils import rehearsal
from hpc_utils.rehearsal import ClusterError, plan

from .support import left_of, slurm

pytestmark = pytest.mark.usefixtures("slurm_installed")
NOBODY = 65534
ABLE = (
    "import os, sys, hpc_utils.provenance; assert sys.version_info >= (3, 11) and os.access(sys.executable, os.X_OK)"
)
AS_NOBODY = """
import os, subprocess
from hpc_utils import rehearsal
cluster = rehearsal.up("flat", lasting=False)
assert cluster.flat
print(subprocess.run(["srun", "-N2", "--gpus-per-node=1", "bash", "-c", "echo $SLURMD_NODENAME $(id -u) $CUDA_VISIBLE_DEVICES"],
    env=os.environ | cluster.environment(), capture_output=True, text=True).stdout)
cluster.down()
"""


@pytest.mark.soak
def test_nodes_that_share_a_core_say_so_and_lose_power_alone(tmp_path: Path) -> None:
    usable = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(usable)})
    try:
        cluster = rehearsal.up(f"flat-{os.getpid()}", nodes=2, flat=True, lasting=False)
    finally:
        os.sched_setaffinity(0, usable)
    try:
        assert cluster.oversubscribed
        slurm(cluster, "sbatch", "--wait", "--output=out", "--wrap", "echo $HPC_NODE_CORES", cwd=tmp_path)
        assert (tmp_path / "out").read_text() == "0.45\n", "a batch script is not told"
        assert slurm(cluster, "srun", "-N2", "bash", "-c", "echo $HPC_NODE_CORES") == "0.45\n0.45"
        with pytest.raises(ClusterError, match="no links"):
            cluster.shape("1gbit")
        cluster.kill_node("node2")
        assert cluster.status().nodes["node2"] == "no power"
        assert slurm(cluster, "srun", "--nodelist=node1", "echo", "alive") == "alive"
        cluster.revive_node("node2")
        assert slurm(cluster, "srun", "--nodelist=node2", "echo", "again") == "again"
    finally:
        cluster.down()
    assert left_of(cluster.folder) == []


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.2"), (socket.AF_INET6, "::1")])
def test_a_port_in_use_on_any_address_is_not_free(family: socket.AddressFamily, address: str) -> None:
    try:
        server = socket.create_server((address, 0), family=family)
    except OSError as error:
        pytest.skip(f"{address} cannot be listened on here: {error}")
    with server:
        assert not plan.is_free(server.getsockname()[1])


def test_an_ordinary_user_gets_a_flat_one() -> None:
    """As root this test becomes nobody; otherwise it is an ordinary user already."""
    package = Path(hpc_utils.__file__).parents[1]
    with tempfile.TemporaryDirectory(prefix="hpc-") as home:
        become: list[str] = []
        if os.geteuid() == 0:
            os.chown(home, NOBODY, NOBODY)
            become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        env = {"HOME": home, "PATH": os.defpath + ":/usr/sbin", "PYTHONPATH": str(package), "HPC_REHEARSAL": home}
        for python in (sys.executable, "/usr/bin/python3"):
            able = [*become, python, "-P", "-c", ABLE]
            if subprocess.run(able, env=env, cwd="/", capture_output=True).returncode == 0:
                break
        else:
            pytest.skip("an ordinary user can start no Python 3.11 here, or not read this checkout")
        command = [*become, python, "-P", "-c", AS_NOBODY]
        done = subprocess.run(command, env=env, cwd="/", capture_output=True, text=True, timeout=120)
        user = NOBODY if become else os.getuid()
        assert sorted(done.stdout.split("\n")[:2]) == [f"node1 {user} 0", f"node2 {user} 0"], done.stderr
        assert left_of(Path(home) / "flat") == []

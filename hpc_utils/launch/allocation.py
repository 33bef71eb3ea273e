"""What a job asks Slurm for: nodes of one of a cluster's types, and the environment that its scripts read."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hpc_utils import paths, provenance
from hpc_utils.workspace import Workspace, environment

from . import job_environment, slurm_commands
from .cluster import Cluster
from .request import Layout
from .resources import NodeType


def ranks_per_node(cluster: Cluster, node: NodeType) -> int:
    """The most ranks that a node holds, one a device."""
    if cluster.share:
        return 1
    if cluster.rehearsal:  # its nodes share this machine: Slurm does not know their real cores
        return max(1, len(provenance.core_groups()) // len(slurm_commands.nodes(node.partition)))
    return max(1, node.ranks)


def options(cluster: Cluster, node: NodeType, layout: Layout, *, devices: bool = True) -> list[str]:
    """sbatch's options, each an argument of its own; without `devices` for a job that only reads."""
    site = {"partition": node.partition, "account": cluster.slurm.account, "qos": cluster.slurm.qos}
    options = [f"--{name}={value}" for name, value in site.items() if value]
    options += [f"--chdir={paths.root()}", "--export=ALL", f"--nodes={layout.nodes}", "--ntasks-per-node=1"]
    most = ranks_per_node(cluster, node)
    options.append(f"--cpus-per-task={max(1, (node.cores or most) * layout.ranks_per_node // most)}")
    if devices:
        if node.gpus and node.gres:
            options.append(f"--gres={node.gres}:{layout.ranks_per_node}")
        elif node.gpus:
            options.append(f"--gpus-per-node={layout.ranks_per_node}")
        options += ["--exclusive"] if node.exclusive else []
        options += [f"--mem={node.memory}"] if node.memory else []
        options += [f"--licenses={node.licenses}"] if node.licenses else []
    return options + list(cluster.slurm.options)


def write_environment(folder: Path, cluster: Cluster, node: NodeType) -> None:
    """`folder`/environment.sh, which the job scripts source."""
    python = Path(sys.executable) if cluster.rehearsal else None  # on this machine, with what runs here
    text = job_environment.render(cluster, node, root=paths.root(), python=python)
    (folder / "environment.sh").write_text(text)


def variables(folder: Path, layout: Layout) -> dict[str, str]:
    """What the job scripts read: variables, never parts of a command, since paths may hold any character."""
    here = Workspace.current()
    ours = {"HPC_JOB_ENVIRONMENT": str(folder / "environment.sh"), "RANKS_PER_NODE": str(layout.ranks_per_node)}
    if Path.cwd() != here.project:  # jobs run in the clone; a user's own workload lies where they submit from
        inherited = environment().get("PYTHONPATH")
        ours["PYTHONPATH"] = os.pathsep.join([str(Path.cwd()), *([inherited] if inherited else [])])
    return here.variables | ours


def literal(folder: Path) -> str:
    """A path for --output, in which Slurm reads % as a pattern."""
    return os.fspath(folder).replace("%", "%%")

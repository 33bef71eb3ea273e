"""What a job gets on a cluster: nodes of one type, and an environment that its scripts source.

The environment is a bash file that a person can read, written by `job_environment.sh.j2`. It exports HPC_CLUSTER,
HPC_RESULTS, HPC_DATA and, where nodes have a disk, HPC_NODE_LOCAL; puts `python` and `hpc` on the PATH; and sets the
array `in_container`, the command before the ranks' Python: empty without a container. Text of a cluster file is never
code: it is quoted, and of `$`, only `$NAME` and `${NAME}` are expanded.
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from string import Template
from typing import Any

from hpc_utils import capability, paths, provenance, workspace

from . import slurm_commands
from .cluster import Cluster, ClusterError, NodeType
from .request import Layout

# $NAME or ${NAME}; or else a character that bash would interpret between double quotes.
_SPECIAL = re.compile(r"""\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})|["$`\\]""", re.ASCII)


def ranks_per_node(cluster: Cluster, node: NodeType, share: float | None = None) -> int:
    """The largest number of ranks on a node, one per device; `share`: of a core, that a rehearsal's device is."""
    if cluster.machine.share:
        return 1
    if cluster.rehearsal:  # its nodes share this machine: Slurm does not know their real cores
        cores = max(1, len(provenance.core_groups()) // len(slurm_commands.nodes(node.partition)))
        return cores * math.floor(capability.largest_share(1, 1) / share) if share else cores
    return max(1, node.ranks)


def options(cluster: Cluster, node: NodeType, layout: Layout, *, devices: bool = True, threads: int = 1) -> list[str]:
    """sbatch's options, each an argument of its own; without `devices` for a job that only reads. A rank has its
    share of the node's cores, and at least one for each of its `threads`."""
    most = ranks_per_node(cluster, node)
    wanted = {
        "partition": node.partition,
        "account": cluster.slurm.account,
        "qos": cluster.slurm.qos,
        "chdir": paths.root(),
        "export": "ALL",
        "nodes": layout.nodes,
        "ntasks-per-node": 1,
        "cpus-per-task": max(threads * layout.ranks_per_node, (node.cores or most) * layout.ranks_per_node // most),
    }
    wanted["licenses"] = node.licenses  # also of a job that only reads: it would disturb a measurement beside it
    if devices:
        wanted["mem"] = node.memory
        if node.gpus and node.gres:
            wanted["gres"] = f"{node.gres}:{layout.ranks_per_node}"
        elif node.gpus:
            wanted["gpus-per-node"] = layout.ranks_per_node
    exclusive = ["--exclusive"] if devices and node.exclusive else []
    return [*(f"--{name}={value}" for name, value in wanted.items() if value), *exclusive, *cluster.slurm.options]


def variables(folder: Path, layout: Layout) -> dict[str, str]:
    """The values that job scripts read: variables, never parts of a command, since paths may contain any
    character."""
    ours = {"HPC_JOB_ENVIRONMENT": str(folder / "environment.sh"), "RANKS_PER_NODE": str(layout.ranks_per_node)}
    # Jobs run in the clone; a user's own workload is in the folder of the submission.
    if Path.cwd() != workspace.project():
        ours["PYTHONPATH"] = os.pathsep.join(
            filter(None, [str(Path.cwd()), workspace.environment().get("PYTHONPATH")])
        )
    return workspace.variables() | ours


def output(folder: Path, name: str) -> str:
    """The option that has Slurm write a job's log; % in a folder's name is no pattern."""
    return f"--output={os.fspath(folder).replace('%', '%%')}/logs/{name}.log"


def write_environment(folder: Path, cluster: Cluster, node: NodeType) -> None:
    """Write `folder`/environment.sh."""
    python = Path(sys.executable) if cluster.rehearsal else None  # its jobs run on this machine
    (folder / "environment.sh").write_text(render(cluster, node, root=paths.root(), python=python))


def render(cluster: Cluster, node: NodeType, *, root: Path, python: Path | None = None) -> str:
    """The file's text.

    Args:
        root: the clone. python: the interpreter to use instead of the cluster file's environment.
    """

    def text(value: str, key: str) -> str:
        """Bash for `value`: its variables are expanded where the job runs, which stops if one is not set."""
        missing = f"not set here, and {key} of {cluster.name} needs it"

        def expand(match: re.Match[str]) -> str:
            return f"${{{match[1] or match[2]}:?{missing}}}" if match.lastindex else f"\\{match[0]}"

        return f'"{_SPECIAL.sub(expand, value)}"'

    def path(value: str, key: str) -> str:
        """Bash for a path: one that begins with neither / nor a variable is in the clone."""
        value = _at_home(value)
        return ("" if value.startswith(("/", "$")) else f"{quote(str(root))}/") + text(value, key)

    return render_template(
        Path(__file__).with_name("job_environment.sh.j2"),
        {"quote": quote, "text": text, "path": path},
        cluster=cluster,
        node=node,
        root=str(root),
        python=python,
    )


def render_template(path: Path, filters: Mapping[str, Any] | None = None, /, **values: Any) -> str:
    """The template at `path` with its values."""
    import jinja2

    templates = jinja2.Environment(keep_trailing_newline=True, undefined=jinja2.StrictUndefined)
    templates.filters.update(filters or {})
    return templates.from_string(path.read_text()).render(values)


def folders(cluster: Cluster) -> dict[str, str]:
    """HPC_RESULTS and HPC_DATA as the cluster's jobs will have them, where the environment does not set them already.

    Raises:
        ClusterError: a variable that the cluster file uses is not set.
    """
    inherited = workspace.environment()
    assignments = {}
    for name, key in {"HPC_RESULTS": "results", "HPC_DATA": "data"}.items():
        if (path := getattr(cluster.storage, key)) and not inherited.get(name):
            template = Template(_at_home(path))
            if missing := [variable for variable in template.get_identifiers() if not inherited.get(variable)]:
                raise ClusterError(f"${missing[0]} is not set here, and storage.{key} of {cluster.name} needs it")
            assignments[name] = str(paths.root() / template.safe_substitute(inherited))
    return assignments


def _at_home(path: str) -> str:
    return "$HOME" + path[1:] if path == "~" or path.startswith("~/") else path

"""The environment of a cluster's jobs, as a bash file that a person can read and the job scripts source.

It exports HPC_CLUSTER, HPC_RESULTS, HPC_DATA and, where nodes have a disk, HPC_NODE_LOCAL; puts `python` and `hpc` on
the PATH; and sets the array `in_container`, which stands in front of what the ranks run: empty without a container.
What a cluster file says is never code: it is quoted, and of `$`, only `$NAME` and `${NAME}` mean anything.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from hpc_utils import paths
from hpc_utils.workspace import Launch, environment

from . import warm
from .cluster import Cluster, ClusterError
from .resources import NodeType

_VARIABLE = re.compile(r"\$(?:(?P<plain>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)\})", re.ASCII)
_GPU_FLAG = {"amd": ["--rocm"], "nvidia": ["--nv"], "": []}

# Where sites put the module system's start-up file, which a batch shell has not read.
_MODULE_HOOKS = (
    '"${LMOD_PKG:-}/init/bash" "${MODULESHOME:-}/init/bash" /etc/profile.d/modules.sh /etc/profile.d/lmod.sh '
    "/etc/profile.d/z00_lmod.sh"
)


def render(cluster: Cluster, node: NodeType, *, root: Path, python: Path | None = None) -> str:
    """The file's text.

    Args:
        root: the clone. python: the interpreter to use instead of the cluster file's environment.
    """
    parts = [_head(cluster, node), _modules(cluster), _python(cluster, root, python), _storage(cluster, root)]
    parts += [_network(cluster, node), _container(cluster, node, root)]
    return "\n\n".join("\n".join(lines) for part in parts if (lines := list(part))) + "\n"


def folders(cluster: Cluster) -> dict[str, str]:
    """HPC_RESULTS and HPC_DATA as the cluster's jobs will have them, where the environment does not set them already.

    Raises:
        ClusterError: a variable that the cluster file uses is not set.
    """
    here, root = environment(), paths.root()
    wanted = {"HPC_RESULTS": ("results", cluster.storage.results), "HPC_DATA": ("data", cluster.storage.data)}
    return {
        name: str(root / _expanded(cluster, f"storage.{key}", _homeward(text), here))
        for name, (key, text) in wanted.items()
        if text and not here.get(name)
    }


def _head(cluster: Cluster, node: NodeType) -> Iterator[str]:
    yield "# shellcheck shell=bash"
    yield f"# Environment of jobs on {cluster.name}, nodes of type {node.name}: {cluster.title}"
    yield "# Written from the cluster file: change that one, not this."
    yield "hpc_stop() {"
    yield '    echo "error: $1" >&2'
    yield "    exit 2"
    yield "}"
    yield f"export HPC_CLUSTER={shlex.quote(cluster.hardware_id(node.name))}"
    if not cluster.software.warm_start:
        yield "\n".join(f"export {n}={shlex.quote(v)}" for n, v in Launch(warm=warm.OFF).variables.items())


def _modules(cluster: Cluster) -> Iterator[str]:
    software = cluster.software
    if not software.modules:
        return
    wanted = " ".join(software.modules)
    yield "# Modules. Their own scripts use unset variables."
    yield "hpc_nounset=$(shopt -po nounset || true)"
    yield "set +u"
    yield "if ! command -v module >/dev/null; then"
    yield f"    for hpc_hook in {_MODULE_HOOKS}; do"
    yield "        # shellcheck disable=SC1090"
    yield '        if [ -r "$hpc_hook" ]; then source "$hpc_hook" || true; fi'
    yield "        if command -v module >/dev/null; then break; fi"
    yield "    done"
    yield "fi"
    complaint = f"{cluster.name} needs the modules {wanted}, but there is no module command on this node"
    yield f"command -v module >/dev/null || hpc_stop {shlex.quote(complaint)}"
    for folder in software.module_use:
        yield f"module use {_quoted(cluster, 'software.module_use', folder)}"
    for name in software.modules:
        complaint = f"cannot load the module {name} (software.modules of {cluster.name}): see module avail {name}"
        yield f"module load {shlex.quote(name)} || hpc_stop {shlex.quote(complaint)}"
    yield 'eval "$hpc_nounset"'


def _python(cluster: Cluster, root: Path, python: Path | None) -> Iterator[str]:
    named = cluster.software.environment
    if not (python or named):
        return
    yield "# Python"
    if python:
        yield f'export PATH={shlex.quote(str(python.parent))}:"$PATH"'
        return
    yield f"export VIRTUAL_ENV={_path(cluster, 'software.environment', named, root)}"
    yield '[ -x "$VIRTUAL_ENV/bin/python" ] ||'
    yield (
        f'    hpc_stop "no Python environment $VIRTUAL_ENV (software.environment of {cluster.name}): make it here, '
        'with these modules loaded"'
    )
    yield 'export PATH="$VIRTUAL_ENV/bin:$PATH"'


def _storage(cluster: Cluster, root: Path) -> Iterator[str]:
    storage = cluster.storage
    yield "# Storage; what is set already stays."
    for variable, key, default in (("HPC_RESULTS", "results", "results"), ("HPC_DATA", "data", "data")):
        folder = _path(cluster, f"storage.{key}", getattr(storage, key) or default, root)
        yield f'if [ -z "${{{variable}:-}}" ]; then {variable}={folder}; fi'
    yield "export HPC_RESULTS HPC_DATA"
    if storage.node_local:
        yield f"export HPC_NODE_LOCAL={_quoted(cluster, 'storage.node_local', storage.node_local)}"


def _network(cluster: Cluster, node: NodeType) -> Iterator[str]:
    interface = cluster.network.interface
    variables = {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface} if interface else {}
    variables |= node.variables
    if variables:
        yield "# Network and libraries"
    for name, value in variables.items():
        yield f"export {name}={_quoted(cluster, f'nodes.{node.name}.variables', value)}"


def _container(cluster: Cluster, node: NodeType, root: Path) -> Iterator[str]:
    software = cluster.software
    yield "# What stands in front of the ranks' Python"
    if not software.container:
        yield "# shellcheck disable=SC2034"
        yield "in_container=()"
        return
    yield "hpc_apptainer=$(command -v apptainer || command -v singularity) ||"
    complaint = f"{cluster.name} runs in a container, but there is neither apptainer nor singularity on this node"
    yield f"    hpc_stop {shlex.quote(complaint)}"
    yield f"hpc_image={_path(cluster, 'software.container', software.container, root)}"
    yield (
        f'[ -e "$hpc_image" ] || hpc_stop "no container $hpc_image (software.container of {cluster.name}): '
        'env/ says how to build it"'
    )
    yield 'mkdir -p "$HPC_RESULTS" "$HPC_DATA"'
    clone = shlex.quote(str(root))
    yield f'hpc_pythonpath={clone}"${{PYTHONPATH:+:$PYTHONPATH}}"'  # where a workload of the user's lies
    yield 'export APPTAINERENV_PYTHONPATH="$hpc_pythonpath" SINGULARITYENV_PYTHONPATH="$hpc_pythonpath"'
    paths = [clone, '"$HPC_RESULTS"', '"$HPC_DATA"']
    paths += ['"$HPC_NODE_LOCAL"'] if cluster.storage.node_local else []
    paths += [_path(cluster, "software.bind", path, root) for path in software.bind]
    yield "# shellcheck disable=SC2034"
    yield "in_container=("
    yield " ".join(['    "$hpc_apptainer" exec', *_GPU_FLAG[node.vendor]])
    yield from (f"    --bind {path}" for path in paths)
    yield '    "$hpc_image"'
    yield ")"


def _path(cluster: Cluster, key: str, path: str, root: Path) -> str:
    """Bash for a path of the cluster file: one that begins at neither / nor a variable lies in the clone."""
    path = _homeward(path)
    front = "" if path.startswith(("/", "$")) else f"{shlex.quote(str(root))}/"
    return front + _quoted(cluster, key, path)


def _homeward(path: str) -> str:
    return "$HOME" + path[1:] if path == "~" or path.startswith("~/") else path


def _quoted(cluster: Cluster, key: str, text: str) -> str:
    """Bash for `text`: its variables are expanded where the job runs, which stops if one is not set."""
    if not _VARIABLE.search(text):
        return shlex.quote(text)
    missing = f"not set here, and {key} of {cluster.name} needs it"
    parts, end = [], 0
    for match in _VARIABLE.finditer(text):
        parts += [_escaped(text[end : match.start()]), f"${{{match['plain'] or match['braced']}:?{missing}}}"]
        end = match.end()
    return f'"{"".join(parts)}{_escaped(text[end:])}"'


def _escaped(text: str) -> str:
    """`text` inside double quotes."""
    return re.sub(r'(["$`\\])', r"\\\1", text)


def _expanded(cluster: Cluster, key: str, text: str, environment: Mapping[str, str]) -> str:
    """`text` with its variables' values, as bash would make it of `_quoted`."""

    def value(match: re.Match[str]) -> str:
        name = match["plain"] or match["braced"]
        if not environment.get(name):
            raise ClusterError(f"${name} is not set here, and {key} of {cluster.name} needs it")
        return environment[name]

    return _VARIABLE.sub(value, text)

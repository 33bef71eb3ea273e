"""The environment of a cluster's jobs, as a bash file that a person can read and the job scripts source.

It exports HPC_CLUSTER, HPC_RESULTS, HPC_DATA and, where nodes have a disk, HPC_NODE_LOCAL; puts `python` and `hpc` on
the PATH; and sets the array `in_container`, which stands in front of what the ranks run: empty without a container.
What a cluster file says is never code: it is quoted, and of `$`, only `$NAME` and `${NAME}` mean anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from hpc_utils import paths
from hpc_utils.workspace import Launch, environment

from . import warm
from .cluster import Cluster, ClusterError
from .resources import NodeType

_VARIABLE = re.compile(r"\$(?:(?P<plain>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)\})", re.ASCII)
_GPU_FLAG = {"amd": " --rocm", "nvidia": " --nv", "": ""}
_CONTAINER_PATHS = ('"$HPC_RESULTS"', '"$HPC_DATA"')

# Where sites put the module system's start-up file, which a batch shell has not read.
_MODULES = """\
# Modules. Their own scripts use unset variables.
hpc_nounset=$(shopt -po nounset || true)
set +u
if ! command -v module >/dev/null; then
    for hpc_hook in "${LMOD_PKG:-}/init/bash" "${MODULESHOME:-}/init/bash" /etc/profile.d/modules.sh \\
        /etc/profile.d/lmod.sh /etc/profile.d/z00_lmod.sh; do
        # shellcheck disable=SC1090
        if [ -r "$hpc_hook" ]; then source "$hpc_hook" || true; fi
        if command -v module >/dev/null; then break; fi
    done
fi"""


def render(cluster: Cluster, node: NodeType, *, root: Path, python: Path | None = None) -> str:
    """The file's text.

    Args:
        root: the clone. python: the interpreter to use instead of the cluster file's environment.
    """
    own = _Text(cluster, node, root)
    parts = [own.head(), own.modules(), own.python(python), own.storage(), own.variables(), own.container()]
    return "\n\n".join(filter(None, parts)) + "\n"


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


@dataclass(frozen=True)
class _Text:
    """The parts of the file, each empty if the cluster does not need it."""

    cluster: Cluster
    node: NodeType
    root: Path

    def head(self) -> str:
        cluster, node = self.cluster, self.node
        exported = {"HPC_CLUSTER": cluster.hardware_id(node.name)}
        if not cluster.software.warm_start:
            exported |= Launch(warm=warm.OFF).variables
        exports = "\n".join(f"export {name}={quote(value)}" for name, value in exported.items())
        return f"""\
# shellcheck shell=bash
# Environment of jobs on {cluster.name}, nodes of type {node.name}: {cluster.title}
# Written from the cluster file: change that one, not this.
hpc_stop() {{
    echo "error: $1" >&2
    exit 2
}}
{exports}"""

    def modules(self) -> str:
        software, name = self.cluster.software, self.cluster.name
        if not software.modules:
            return ""
        wanted = " ".join(software.modules)
        missing = quote(f"{name} needs the modules {wanted}, but there is no module command on this node")
        lines = [_MODULES, f"command -v module >/dev/null || hpc_stop {missing}"]
        lines += [f"module use {self._quoted('software.module_use', folder)}" for folder in software.module_use]
        for module in software.modules:
            failed = quote(f"cannot load the module {module} (software.modules of {name}): see module avail {module}")
            lines.append(f"module load {quote(module)} || hpc_stop {failed}")
        return "\n".join([*lines, 'eval "$hpc_nounset"'])

    def python(self, python: Path | None) -> str:
        if python:
            return f'# Python\nexport PATH={quote(str(python.parent))}:"$PATH"'
        if not (named := self.cluster.software.environment):
            return ""
        return f"""\
# Python
export VIRTUAL_ENV={self._path("software.environment", named)}
[ -x "$VIRTUAL_ENV/bin/python" ] ||
    hpc_stop "no Python environment $VIRTUAL_ENV (software.environment of {self.cluster.name}): make it here, with these modules loaded"
export PATH="$VIRTUAL_ENV/bin:$PATH\""""

    def storage(self) -> str:
        own = self.cluster.storage
        results, data = (
            self._path("storage.results", own.results or "results"),
            self._path("storage.data", own.data or "data"),
        )
        local = (
            f"\nexport HPC_NODE_LOCAL={self._quoted('storage.node_local', own.node_local)}" if own.node_local else ""
        )
        return f"""\
# Storage; what is set already stays.
if [ -z "${{HPC_RESULTS:-}}" ]; then HPC_RESULTS={results}; fi
if [ -z "${{HPC_DATA:-}}" ]; then HPC_DATA={data}; fi
export HPC_RESULTS HPC_DATA{local}"""

    def variables(self) -> str:
        interface, key = self.cluster.network.interface, f"nodes.{self.node.name}.variables"
        variables = {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface} if interface else {}
        lines = [
            f"export {name}={self._quoted(key, value)}" for name, value in (variables | self.node.variables).items()
        ]
        return "\n".join(["# Network and libraries", *lines]) if lines else ""

    def container(self) -> str:
        software, name, clone = self.cluster.software, self.cluster.name, quote(str(self.root))
        if not software.container:
            return "# What stands in front of the ranks' Python\n# shellcheck disable=SC2034\nin_container=()"
        bound = [clone, *_CONTAINER_PATHS, *(['"$HPC_NODE_LOCAL"'] if self.cluster.storage.node_local else [])]
        bound += [self._path("software.bind", path) for path in software.bind]
        binds = "\n".join(f"    --bind {path}" for path in bound)
        missing = quote(f"{name} runs in a container, but there is neither apptainer nor singularity on this node")
        return f"""\
# What stands in front of the ranks' Python
hpc_apptainer=$(command -v apptainer || command -v singularity) ||
    hpc_stop {missing}
hpc_image={self._path("software.container", software.container)}
[ -e "$hpc_image" ] || hpc_stop "no container $hpc_image (software.container of {name}): env/ says how to build it"
mkdir -p "$HPC_RESULTS" "$HPC_DATA"
hpc_pythonpath={clone}"${{PYTHONPATH:+:$PYTHONPATH}}" # where a user's own workload lies
export APPTAINERENV_PYTHONPATH="$hpc_pythonpath" SINGULARITYENV_PYTHONPATH="$hpc_pythonpath"
# shellcheck disable=SC2034
in_container=(
    "$hpc_apptainer" exec{_GPU_FLAG[self.node.vendor]}
{binds}
    "$hpc_image"
)"""

    def _path(self, key: str, path: str) -> str:
        """Bash for a path of the cluster file: one that begins with neither / nor a variable lies in the clone."""
        path = _homeward(path)
        front = "" if path.startswith(("/", "$")) else f"{quote(str(self.root))}/"
        return front + self._quoted(key, path)

    def _quoted(self, key: str, text: str) -> str:
        """Bash for `text`: its variables are expanded where the job runs, which stops if one is not set."""
        if not _VARIABLE.search(text):
            return quote(text)
        missing = f"not set here, and {key} of {self.cluster.name} needs it"
        parts, end = [], 0
        for match in _VARIABLE.finditer(text):
            parts += [_escaped(text[end : match.start()]), f"${{{match['plain'] or match['braced']}:?{missing}}}"]
            end = match.end()
        return f'"{"".join(parts)}{_escaped(text[end:])}"'


def _homeward(path: str) -> str:
    return "$HOME" + path[1:] if path == "~" or path.startswith("~/") else path


def _escaped(text: str) -> str:
    """`text` inside double quotes."""
    return re.sub(r'(["$`\\])', r"\\\1", text)


def _expanded(cluster: Cluster, key: str, text: str, variables: Mapping[str, str]) -> str:
    """`text` with its variables' values, as bash expands what `render` writes."""

    def value(match: re.Match[str]) -> str:
        name = match["plain"] or match["braced"]
        if not variables.get(name):
            raise ClusterError(f"${name} is not set here, and {key} of {cluster.name} needs it")
        return variables[name]

    return _VARIABLE.sub(value, text)

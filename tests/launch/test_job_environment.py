"""The jobs' environment file, sourced by a real bash: what it sets, where it stops, and that no text in it is code."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpc_utils import paths, workspace
from hpc_utils.launch import cluster as clusters
from hpc_utils.launch import job_environment
from hpc_utils.launch.request import Layout

FULL = """
title = "Everything: 'quotes', $dollars and `ticks`"
[nodes.gpu]
partition = "gpu"
gpus = 8
gpu = "mi250x"
precisions = ["fp32"]
[nodes.gpu.variables]
NCCL_SOCKET_IFNAME = "hsn0,hsn1"
CACHE = "/tmp/$USER-${NUMBER}/cache"
[software]
module_use = ["$HOME/mine"]
modules = ["LUMI/24.03", "rocm"]
environment = ".venv"
container = "$WORK/image.sif"
bind = ["/scratch"]
[network]
interface = "hsn0"
[storage]
results = "$WORK/my results"
data = "shared/data"
node_local = "${TMPDIR}"
"""
SIMPLE = 'title = "S"\n[nodes.c]\npartition = "c"\ncores = 2\nprecisions = ["fp32"]\n'


def _cluster(text: str) -> clusters.Cluster:
    found = clusters.Cluster(**tomllib.loads(text))
    found._source = "site"
    return found


def _render(text: str, root: Path, **more) -> str:
    found = _cluster(text)
    return job_environment.render(found, found.node(), root=root, **more)


def _source(script: str, after: str = "", before: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """Source it as the job scripts do, then run `after`."""
    clean = {"PATH": "/usr/bin:/bin", "HOME": "/home/me"} | variables
    command = ["bash", "--norc", "-c", f"set -euo pipefail\n{before}\nsource /dev/stdin\n{after}"]
    return subprocess.run(command, input=script, env=clean, capture_output=True, text=True, timeout=60)


def test_a_simple_cluster_needs_nothing(tmp_path: Path) -> None:
    show = 'printf "%s\\n" "$HPC_CLUSTER" "$HPC_RESULTS" "$HPC_DATA" "${#in_container[@]}" "${HPC_NODE_LOCAL-none}"'
    done = _source(_render(SIMPLE, tmp_path), show)
    assert done.stdout.split("\n")[:5] == ["site-c", f"{tmp_path}/results", f"{tmp_path}/data", "0", "none"]
    assert done.stderr == ""


def test_a_rank_has_its_share_of_the_cores_and_one_for_each_thread() -> None:
    site = _cluster(SIMPLE.replace("cores = 2", "cores = 8\nranks = 4"))
    for threads, cpus in ((1, 4), (3, 6)):
        assert f"--cpus-per-task={cpus}" in job_environment.options(site, site.node(), Layout(1, 2), threads=threads)


def test_a_variable_that_is_not_set_stops_the_job_and_is_named(tmp_path: Path) -> None:
    done = _source(_render(SIMPLE + '[storage]\nresults = "$SCRATCH/x"\n', tmp_path), "echo reached")
    assert done.returncode != 0 and "reached" not in done.stdout
    assert "SCRATCH: not set here, and storage.results of site needs it" in done.stderr


def test_the_login_side_finds_the_same_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORK", "STUDY", "HPC_RESULTS", "HPC_DATA"):
        monkeypatch.delenv(name, raising=False)
    site = _cluster(SIMPLE + '[storage]\nresults = "$WORK/my ${STUDY}"\ndata = "shared"\n')
    script = job_environment.render(site, site.node(), root=paths.root())
    variables = {"WORK": "/work", "STUDY": "s"}
    given = {"HPC_RESULTS": "/r", "HPC_DATA": "/d"}
    for more, folders in (({}, ["/work/my s", f"{paths.root()}/shared"]), (given, ["/r", "/d"])):
        done = _source(script, 'printf "%s\\n" "$HPC_RESULTS" "$HPC_DATA"', **variables, **more)
        assert done.stdout.splitlines() == folders
        with workspace.using(**variables, **more):
            assert [*job_environment.folders(site).values()] == ([] if more else folders)
    with pytest.raises(clusters.ClusterError, match=r"\$WORK is not set here, and storage\.results of site needs it"):
        job_environment.folders(site)


def test_python_comes_from_the_environment_in_the_clone(tmp_path: Path) -> None:
    text = SIMPLE + '[software]\nenvironment = ".venv"\n'
    missing = _source(_render(text, tmp_path), "echo reached")
    assert missing.returncode == 2
    assert f"no Python environment {tmp_path}/.venv (software.environment of site)" in missing.stderr
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    there = _source(_render(text, tmp_path), "command -v python")
    assert there.stdout.strip() == f"{tmp_path}/.venv/bin/python"


MODULE = """
module() {  # what a module system puts into the shell
    if [ "$1" = use ]; then places=$2; return; fi
    [ "$2" != missing ] || { echo "unknown module"; return 1; }
    : "$UNSET_AS_MODULE_SYSTEMS_DO"
    loaded="${loaded:-} $2"
}
"""


def test_modules_are_loaded_in_order_and_a_missing_one_stops_the_job(tmp_path: Path) -> None:
    text = SIMPLE + '[software]\nmodule_use = ["$HOME/mine"]\nmodules = ["LUMI/24.03", "rocm"]\n'
    done = _source(_render(text, tmp_path), 'echo "$places:$loaded"; [[ $- == *u* ]] && echo strict', MODULE)
    assert done.stdout.splitlines() == ["/home/me/mine: LUMI/24.03 rocm", "strict"], done.stderr
    done = _source(_render(text.replace("rocm", "missing"), tmp_path), "echo reached", MODULE)
    assert (done.returncode, "reached" in done.stdout) == (2, False)
    assert "cannot load the module missing (software.modules of site)" in done.stderr


def test_ranks_stand_behind_the_container(tmp_path: Path) -> None:
    for folder in ("work", "bin", ".venv/bin"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "work" / "image.sif").touch()
    for program in (tmp_path / "bin" / "singularity", tmp_path / ".venv" / "bin" / "python"):
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    variables = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "WORK": f"{tmp_path}/work", "USER": "me", "NUMBER": "7"}
    variables |= {"TMPDIR": "/local disk"}
    show = 'IFS=,; echo "${in_container[*]}"; echo "$APPTAINERENV_PYTHONPATH $GLOO_SOCKET_IFNAME $NCCL_SOCKET_IFNAME"'
    done = _source(_render(FULL, tmp_path), show, MODULE, **variables)
    binds = [tmp_path, f"{tmp_path}/work/my results", f"{tmp_path}/shared/data", "/local disk", "/scratch"]
    command = [f"{tmp_path}/bin/singularity,exec,--rocm", *(f"--bind,{bind}" for bind in binds)]
    command.append(f"{tmp_path}/work/image.sif")
    assert done.stdout.splitlines() == [",".join(command), f"{tmp_path} hsn0 hsn0,hsn1"], done.stderr
    (tmp_path / "work" / "image.sif").unlink()
    gone = _source(_render(FULL, tmp_path), "echo reached", MODULE, **variables)
    assert (gone.returncode, "reached" in gone.stdout) == (2, False)
    assert "image.sif (software.container of site)" in gone.stderr


# Text as it may stand in a file: everything that one line can hold, and what shells read something into.
HOSTILE = st.text(st.characters(categories=["L", "N", "P", "S", "Zs"], min_codepoint=32), max_size=30)
HOSTILE |= st.sampled_from(["$(echo x)", "`echo x`", '"; echo x; "', "'; echo x; '", "\\", "$", "${", "!!", "~", "*"])


@settings(max_examples=25)
@given(st.lists(HOSTILE.filter(str.isprintable), min_size=1, max_size=12))
def test_no_text_is_code(values: list[str]) -> None:
    """Every value arrives as it was written, but for the variable in it."""
    values = [value.replace("$", "$ ") for value in values]  # here none names a variable but ours
    written = [*values, *(f"{value}${{HOME}}{value}" for value in values)]
    lines = [f"V{number} = {json.dumps(value, ensure_ascii=False)}" for number, value in enumerate(written)]
    script = _render("\n".join([SIMPLE, "[nodes.c.variables]", *lines]), Path("/a $(echo x) 'clone'"))
    show = "\n".join(f'printf "%s\\0" "$V{number}"' for number in range(len(written)))
    done = _source(script, show, LC_ALL="C.UTF-8")
    assert done.stderr == ""
    assert done.stdout.split("\0")[:-1] == [*values, *(f"{value}/home/me{value}" for value in values)]

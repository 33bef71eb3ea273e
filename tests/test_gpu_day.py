"""The GPU day, rehearsed on the CPU from a bundle: on a machine that pieces reach one after another, and that is taken away."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from importlib import metadata
from pathlib import Path

import pytest

from hpc_utils import paths, records
from hpc_utils.launch.slurm_commands import clean_environment
from hpc_utils.provenance import git
from hpc_utils.records.folder import read_json

pytest.importorskip("companions.documents", reason="the companion of `hpc release` was deleted")
from benchmarks.gpu_day import bundle
from companions.documents.release.crate import ReleaseRefused

ROOT = paths.root()
STEPS = [
    "doctor",
    "gpu-tests",
    "speed",
    "ddp",
    "ddp-64",
    "precisions",
    "to-accuracy-1",
    "profiles",
    "accuracy-kept",
    "to-accuracy",
    "to-96",
    "compute",
    "bench-optimizations",
    "bench-overhead",
    "bench-loaders",
]
ABSENT = "papermill"  # what the other machine lacks: pure Python, and found by an entry point


def installed() -> dict[str, str]:
    return {one.metadata["Name"]: one.version for one in metadata.distributions()}


def machine(packages: dict[str, str] | None = None) -> bundle.Machine:
    """One like this, by default without `ABSENT`."""
    if packages is None:
        packages = {name: version for name, version in installed().items() if name != ABSENT}
    return bundle.Machine(f"{sys.version_info.major}.{sys.version_info.minor}", "2.28", "x86_64", packages)


def start(folder: Path, work: Path, *options: str) -> subprocess.Popen:
    """`start.sh` on a machine without a compiler."""
    environment = clean_environment() | {"PYTHON": sys.executable, "CXX": "/nonexistent", "HPC_SHARED": ""}
    places = ["--work", work, "--output", folder.parent / "out"]
    command = ["bash", folder / "start.sh", *places, "--size", "1", *options]
    return subprocess.Popen(
        command, env=environment, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle for a machine like this one, without `ABSENT`."""
    out = tmp_path_factory.mktemp("day") / "bundle"
    try:
        bundle.make(out, ["digits"], machine(), 2**19, print)
    except ReleaseRefused as error:
        pytest.skip(f"not a clone: {error}")
    return out


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_the_day_survives_its_machines(packed: Path, tmp_path: Path) -> None:
    pieces = sorted(packed.glob("bundle.tar.gz.*"))
    assert len(pieces) > 1 and all(piece.stat().st_size <= 2**19 for piece in pieces)
    first, second, lot = tmp_path / "first", tmp_path / "second", tmp_path / "lot"
    lot.mkdir()
    for piece in (pieces[0], packed / "SHA256SUMS", packed / "start.sh"):
        shutil.copy(piece, lot)
    waiting = start(lot, first, "--rehearse")
    assert pieces[1].name in waiting.communicate(timeout=60)[0]
    assert waiting.returncode == 75

    begun = start(packed, first, "--rehearse")  # with all pieces
    deadline = time.monotonic() + 240
    while len(done := runs(first)) < 2:
        assert begun.poll() is None and time.monotonic() < deadline, begun.communicate()[0]
        time.sleep(0.2)
    begun.send_signal(signal.SIGTERM)
    said = begun.communicate(timeout=60)[0]
    assert begun.returncode == 143, said
    assert (first / f"site/{ABSENT}").is_dir()

    again = start(packed, second, "--rehearse")  # a fresh machine, to which the packed results came along
    said = again.communicate(timeout=400)[0]
    assert again.returncode == 0, said
    assert all(size <= 2**20 for path in packed.parent.glob("out/*") if (size := path.stat().st_size))

    archive = b"".join(path.read_bytes() for path in sorted(packed.parent.glob("out/results.tar.gz.*")))
    with tarfile.open(fileobj=io.BytesIO(archive)) as brought:
        brought.extractall(tmp_path / "home", filter="data")
    results = tmp_path / "home/results/gpu-day-rehearsal"
    steps = {path.stem for path in (results / "gpu-day").glob("*.done")}
    assert steps >= {*STEPS}
    assert len([step for step in steps if step.startswith("verdict-")]) == 2, "the textbook's loop, and the fast one"
    found = records.load(results)
    assert not found.refused and not found.unfinished
    assert done.items() <= runs(tmp_path / "home").items(), "not made again"
    assert set(found.runs.commit) == {git.commit()}
    for study in ("gpu-speed", "gpu-ddp", "gpu-precisions", "gpu-profiles", "cifar10-gpu", "optimization"):
        assert records.read_study(f"{study}-tiny", results).run_ids <= set(found.runs.run_id)


def runs(work: Path) -> dict[str, str]:
    """{run: when it started} of the complete runs there."""
    states = {path.parent: read_json(path) or {} for path in work.glob("results/*/runs/*/status.json")}
    return {run.name: states[run]["started"] for run in states if states[run].get("state") == "complete"}


def test_a_day_without_time_says_that_there_is_more(tmp_path: Path) -> None:
    environment = clean_environment() | {"PYTHON": "/bin/false", "HPC_RESULTS": str(tmp_path)}
    command = [ROOT / "benchmarks/gpu_day/gpu-day.sh", "--rehearse"]
    done = subprocess.run([*command, "--minutes", "0"], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 75 and "doctor" in done.stdout
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "bench-loaders" in done.stdout, "a step that fails holds up none of the others"
    assert "companions/mpi/tests/test_cuda.py" in done.stdout, "tests of companions that need a GPU are tried, too"
    assert not list(tmp_path.rglob("*.done"))


def test_what_is_missing_there() -> None:
    everything = bundle.missing(machine(packages={}))
    assert {name.partition("==")[0] for name in everything} >= {"numpy", "papermill", "pytest", "pydantic-core"}
    assert not [name for name in everything if name.startswith(("torch==", "torchvision", "jupyterlab=="))]
    assert bundle.missing(machine()) == [f"{ABSENT}=={metadata.version(ABSENT)}"]
    assert bundle.missing(machine(packages=installed() | {"tqdm": "4.0"})) == [f"tqdm=={metadata.version('tqdm')}"]
    assert not bundle.missing(machine(packages=dict.fromkeys(installed(), "")))
    without_numba = {name: version for name, version in installed().items() if name not in ("numba", "mpi4py")}
    wheels = bundle.missing(machine(packages=without_numba), extras=["mpi"])
    assert {name.partition("==")[0] for name in wheels} >= {"numba", "mpi4py"}
    assert not bundle.missing(machine(packages=without_numba))
    beside_torch = {name: version for name, version in installed().items() if name != "numba-cuda"}
    wheels = bundle.missing(machine(packages=beside_torch | {"cuda-bindings": "13.0.3"}), extras=["cuda"])
    assert not [name for name in wheels if name.startswith("cuda-bindings")], "torch's build says which"
    assert machine().tags[0] == "manylinux_2_28_x86_64"


def test_no_bundle_over_another_nor_without_wheels(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(bundle.BundleError, match="not empty"):
        bundle.make(tmp_path, [], machine(), 2**20, print)
    with pytest.raises(bundle.BundleError, match="no-such-package"):
        bundle.download(["no-such-package-anywhere==1"], tmp_path, machine())


def test_a_shell_finds_no_fault_in_the_scripts() -> None:
    if (checker := shutil.which("shellcheck")) is None and not os.environ.get("CI"):
        pytest.skip("no shellcheck here")
    scripts = [ROOT / "benchmarks/gpu_day/gpu-day.sh", ROOT / "benchmarks/gpu_day/start.sh"]
    assert subprocess.run([checker, *scripts], capture_output=True, text=True, timeout=60).stdout == ""

"""Every command of the README and of the pages that lead from it is executed, as it stands there, in a folder of its own.

Fences: `sh` in CI, `sh long` in `make soak`. Commands of both that need a cluster or a GPU say so behind `#`; test_pages.py tries
them as a dry run. A fence without a language below such a block is the output of its last command, and a command in another one has a placeholder.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from hpc_utils import paths, provenance
from hpc_utils.launch.slurm_commands import clean_environment

from . import pages
from .support import soak

HPC = [sys.executable, "-m", "hpc_utils.cli"]
ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "docs/quickstart.md", "docs/your-model.md", "docs/read-a-profile.md", "docs/results.md")
TEXT = "\n".join((ROOT / page).read_text() for page in PAGES)
PYTHON = [block for kind, block in pages.FENCE.findall(TEXT) if kind == "python"]
INLINE = re.findall(r"`([^`\n]+)`", pages.FENCE.sub("", TEXT))
REPRODUCED = (ROOT / "REPRODUCE.md").read_text()  # its long commands are executed by tests/test_reproduce.py
SHORT, LONG, SHOWN = pages.commands(TEXT, "sh"), pages.commands(TEXT, "sh long"), pages.outputs(TEXT)
ELSEWHERE = ("make ", "source ")
OWN = "my-model"  # the reader's own study
NEEDY = [
    command for command, about in SHORT.items() if pages.NEEDS.match(about)
]  # tried as a dry run by test_pages.py
EXECUTED = [
    *(one for one in SHORT if one not in NEEDY and not one.startswith(ELSEWHERE)),
    *(soak(one) for one in LONG if f"\n{one}" not in REPRODUCED),
    *(soak(f"{one.replace('NAME', 'lumi-g')} --dry-run") for one in NEEDY if OWN in one),
]
MAKE = {match[1] for one in (*SHORT, *LONG, *INLINE) if (match := re.match(r"make ([a-z-]+)", one))}
STUDY = ("study", "STUDY=--repeats 1 -p epochs=4")  # for `make`
RUNS = 4 if provenance.emulates_bf16() else 8  # of `STUDY`; bf16's half is left out where it is emulated


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder where a reader works: the pages' own files, the notebooks and committed sets beside them, clusters of its own."""
    folder = tmp_path_factory.mktemp("desk")
    (folder / "notebooks").symlink_to(ROOT / "notebooks")
    (folder / "my_study.py").write_text(PYTHON[0])
    (folder / "my_loop.py").write_text(PYTHON[1])
    (folder / "results").mkdir()
    (folder / "results/reference").symlink_to(paths.reference())
    with tempfile.TemporaryDirectory(prefix="hpc-") as clusters:  # short: sockets lie in it
        (folder / "clusters").symlink_to(clusters)
        yield folder
        subprocess.run([*HPC, "cluster", "down"], env=environment(folder), check=False, timeout=60)


def environment(desk: Path) -> dict[str, str]:
    """For commands in `desk`."""
    clusters = str((desk / "clusters").resolve())
    return clean_environment() | {
        "HPC_REHEARSAL": clusters,
        "TMPDIR": clusters,  # has the lock of the cores: no other test's runs are waited for
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HPC_RESULTS": str(desk / "results"),
        "HPC_DATA": str(desk / "data"),
        "HPC_SHARED": "",  # figures are drawn of these runs
    }


@pytest.fixture(scope="module")
def clone(desk: Path) -> Path:
    """A copy of the clone with the reader's model, for commands that add files to the clone."""
    copy = desk / "clone"
    for name in ("hpc_utils", "jobs", "notebooks", "paper"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for file in (ROOT / "pyproject.toml", desk / "my_study.py"):
        shutil.copy(file, copy)
    return copy


def need_mirror(name: str) -> None:
    if not os.environ.get("HPC_DATA_MIRROR"):
        if os.environ.get("CI"):
            pytest.fail("CI sets HPC_DATA_MIRROR to a folder with the data sets")
        pytest.skip(f"{name} would be downloaded: set HPC_DATA_MIRROR to a local copy")


@pytest.mark.timeout(1860)
@pytest.mark.parametrize("command", EXECUTED)
def test_the_command_works(command: str, desk: Path, request: pytest.FixtureRequest) -> None:
    if data := next((name for name in ("cifar10", "tiny-imagenet") if name in command), None):
        need_mirror(data)
    if "cluster" in command:
        request.getfixturevalue("slurm_installed")
    folder, surroundings = desk, environment(desk)
    if OWN in command:
        folder = request.getfixturevalue("clone")
        surroundings = environment(desk) | {"PYTHONPATH": str(folder)}
    done = subprocess.run(
        shlex.split(command), cwd=folder, env=surroundings, capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages.require_shown(SHOWN.get(command, ""), done.stdout + done.stderr, exact=command.startswith("hpc explain"))


def test_the_runs_of_the_commands_pass_the_checks(desk: Path) -> None:
    """After the commands above: both kinds of the user's own training stand beside ours, and pass the checks."""
    if not (desk / "results/csv/runs.csv").exists():
        pytest.skip("the commands were not run (selected by hand?)")
    from hpc_utils import records

    found = records.load(desk / "results")
    assert not found.refused
    assert not found.unfinished
    kinds = set(found.runs.workload)
    assert {"cnn", "my_study:mlp", "my-loop"} <= kinds
    own = found.runs[found.runs.parameters < 100_000].query("workload == 'my_study:mlp'").iloc[0]
    assert (own.world_size, own.parameters) == (2, 257 * 128 + 129 * 128 + 129 * 2)


@pytest.mark.soak
def test_the_readers_own_study_has_a_figure_with_its_numbers_a_verdict_and_a_page(desk: Path) -> None:
    """After the commands above."""
    if not (desk / f"results/studies/{OWN}.json").exists():
        pytest.skip("the commands were not run (selected by hand?)")
    from hpc_utils import records
    from hpc_utils.publish import exports

    starts = records.load(desk / "results", study=OWN).runs.sort_values("started").repeat.tolist()
    assert starts == sorted(starts) and len(set(starts)) == 3, "repeats are interleaved in time"
    found = exports.read(desk / "results")
    figure = desk / f"results/figures/{OWN}-efficiency.png"
    assert figure.stat().st_size > 5_000 and f"{OWN}-efficiency" in found.figures
    points = found.frame(f"{OWN}-efficiency").query("baseline == 'none' and world_size == 2").set_index("kind")
    assert set(points.index) == {"strong", "weak"} and (points.repeats == 3).all()
    assert (
        (points.efficiency_low > 0)
        & (points.efficiency_low < points.efficiency)
        & (points.efficiency < points.efficiency_high)
    ).all()
    assert all(len(runs.split()) == 3 for runs in points.runs)
    assert (desk / f"clone/paper/build/{OWN}.pdf").stat().st_size > 5_000
    judged = found.frame(f"{OWN}-targets")
    assert set(judged.kind) == {"strong", "weak"} and set(judged.verdict) <= {"met", "missed", "undecided"}


def test_the_chapter_has_the_model_of_the_page() -> None:
    cells = json.loads((ROOT / "notebooks/12_your_model.ipynb").read_text())["cells"]
    assert PYTHON[0].strip() in [("".join(cell["source"]).partition("\n")[2]) for cell in cells]


def test_every_other_command_is_tried_elsewhere() -> None:
    """`make` by the tests below, tests/test_docs.py, tests/test_gpu_day.py and tests/test_reproduce.py."""
    assert sorted(MAKE) == ["bench", "data", "docs", "gpu-day", "help", "lab", "paper", "study", "test"]
    done = subprocess.run(["make", "-n", "test"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert "-m pytest" in done.stdout and "ruff check" in done.stdout


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= 800


def make(desk: Path, *arguments: str, timeout: float = 250) -> subprocess.CompletedProcess:
    """`make` with the environment that runs this test, so that it installs nothing."""
    installed = [Path(sys.prefix) / name for name in (".installed", ".installed-dev")]
    for stamp in installed:
        stamp.touch()
    command = ["make", f"VENV={sys.prefix}", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment(desk), capture_output=True, text=True, timeout=timeout)


def test_make_data(desk: Path) -> None:
    need_mirror("CIFAR-10")
    done = make(desk, "data")
    assert done.returncode == 0, done.stderr
    assert {"cifar10", "mnist"} <= {path.name for path in (desk / "data").iterdir()}


@pytest.mark.soak
def test_make_bench(desk: Path) -> None:
    done = make(desk, "bench", "BENCH=--quick startup traces records nsys start")  # the others: tests/test_gpu_day.py
    assert done.returncode == 0, done.stderr
    assert list((desk / "results/bench").rglob("*.csv"))


@pytest.fixture(scope="module")
def study(desk: Path) -> tuple[subprocess.CompletedProcess, Path]:
    return make(desk, *STUDY, timeout=900), desk / "results"


@pytest.mark.timeout(960)
def test_make_study_trains_and_draws(study: tuple[subprocess.CompletedProcess, Path]) -> None:
    """The first command: real runs, all complete, whose figures and report exist."""
    done, results = study
    assert done.returncode == 0, done.stdout + done.stderr
    pages.require_shown(SHOWN["make study"], done.stdout + done.stderr)
    from hpc_utils import records
    from hpc_utils.analyze import scaling

    found = records.load(results, study="laptop")
    assert len(found.runs) == RUNS
    assert not found.refused
    assert not found.unfinished
    assert set(zip(found.runs.parallel, found.runs.world_size, found.runs.global_batch, strict=True)) == {
        ("none", 1, 512), ("ddp", 1, 512), ("ddp", 2, 512), ("ddp", 2, 1024),
    }  # fmt: skip
    assert (found.runs.groupby(["parallel", "world_size", "global_batch", "precision"]).size() == 1).all()
    assert found.runs.test_accuracy.min() > 0.9, "it learns"
    if not found.runs.oversubscribed.any():
        table = scaling.efficiency(found.runs)
        assert set(table.kind) == {"strong", "weak"}
        names = ("throughput", "accuracy", "efficiency")
        for figure in (results / "figures" / f"laptop-{n}.{k}" for n in names for k in ("pdf", "png")):
            assert figure.stat().st_size > 5_000
    report = (results / "report/laptop/index.html").read_text()
    assert 'id="stale"' not in report
    for title in ("Start here", "The baseline", "Data-parallel training", "The paper's figures"):
        assert title in report.replace("’", "'").replace("&#39;", "'")
    assert report.count("data:image/png;base64") >= 6
    assert (results / "SYSTEM.md").exists()


@pytest.mark.soak  # tests/launch/test_study.py runs a complete study again
@pytest.mark.timeout(300)
def test_make_study_again_finds_everything_done(study: tuple[subprocess.CompletedProcess, Path], desk: Path) -> None:
    _, results = study
    before = {path: path.stat().st_mtime for path in results.glob("runs/*/epochs.csv")}
    done = make(desk, *STUDY)
    assert done.returncode == 0, done.stderr
    assert f"{RUNS} runs, {RUNS} complete" in done.stderr
    assert {path: path.stat().st_mtime for path in results.glob("runs/*/epochs.csv")} == before, "trained again"


def test_make_lab_serves_the_chapters(desk: Path) -> None:
    """JupyterLab starts on loopback with a token, knows our kernel, and lists the notebooks."""
    (Path(sys.prefix) / ".installed").touch()
    options = "LAB=--no-browser --allow-root --port=0 --ServerApp.port_retries=0"
    command = ["make", f"VENV={sys.prefix}", "lab", options]
    runtime = desk / "jupyter"
    server = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment(desk) | {"JUPYTER_RUNTIME_DIR": str(runtime)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        about = _wait_for_server(runtime)
        assert about["hostname"] in ("localhost", "127.0.0.1")
        assert about["token"]
        assert {"00_start_here.ipynb", "06_paper_figures.ipynb"} <= {
            item["name"] for item in _get(about, "api/contents")["content"]
        }
        assert "scaling-compendium" in _get(about, "api/kernelspecs")["kernelspecs"]
    finally:
        family = psutil.Process(server.pid).children(recursive=True)
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(60)
        _, left = psutil.wait_procs(family, timeout=60)
        for process in left:
            process.kill()


def _wait_for_server(runtime: Path) -> dict:
    until = time.monotonic() + 150
    while time.monotonic() < until:
        for path in runtime.glob("jpserver-*.json"):
            try:
                about = json.loads(path.read_text())
                _get(about, "api")
                return about
            except (OSError, json.JSONDecodeError):
                continue
        time.sleep(0.2)
    raise AssertionError("JupyterLab did not answer")


def _get(about: dict, path: str) -> dict:
    with urllib.request.urlopen(f"{about['url']}{path}?token={about['token']}", timeout=60) as answer:
        return json.load(answer)

"""Every command of the README and of the pages that lead from it is executed, as it stands there, in a folder of its own.

Fences: `sh` in CI, `sh long` in `make soak`. Commands of both that need a cluster or a GPU say so behind `#`; test_pages.py tries
them as a dry run. A fence without a language below such a block is the output of its last command, and a command in another one has a placeholder.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from hpc_utils import provenance, records
from hpc_utils.analyze import scaling
from hpc_utils.publish import exports

from . import pages
from .pages import ROOT, Desk
from .support import soak

TEXT = "\n".join((ROOT / page).read_text() for page in pages.GUIDES)
PYTHON = [block for kind, block in pages.FENCE.findall(TEXT) if kind == "python"]
INLINE = re.findall(r"`([^`\n]+)`", pages.FENCE.sub("", TEXT))
REPRODUCED = (ROOT / "REPRODUCE.md").read_text()  # its long commands are executed by tests/test_reproduce.py
SHORT, LONG, SHOWN = pages.commands(TEXT, "sh"), pages.commands(TEXT, "sh long"), pages.outputs(TEXT)
OWN = "my-model"  # the reader's own study of a workload
LOOP = "my-loop"  # and of a loop
DRY = [command for command, about in SHORT.items() if pages.NEEDS.match(about)]  # by test_pages.py
EXECUTED = [
    *(command for command in SHORT if command not in DRY and not command.startswith(("make ", "source "))),
    *(soak(command) for command in LONG if f"\n{command}" not in REPRODUCED),
    *(soak(f"{command.replace('NAME', 'lumi-g')} --dry-run") for command in DRY if OWN in command),
]
MAKE = {match[1] for command in (*SHORT, *LONG, *INLINE) if (match := re.match(r"make ([a-z-]+)", command))}
STUDY = "make study STUDY='--repeats 1'"
RUNS = 4 if provenance.emulates_bf16() else 8  # of `STUDY`; bf16's half is left out where it is emulated


@pytest.fixture(scope="module")
def desk(desk: Desk) -> Desk:
    """With the reader's own files, as the pages show them."""
    (desk.folder / "my_study.py").write_text(PYTHON[0])
    (desk.folder / "my_loop.py").write_text(next(block for block in PYTHON if "Recorder(" in block))
    return desk


@pytest.fixture(scope="module")
def clone(desk: Desk) -> Path:
    """A copy of the clone with the reader's model, for commands that add files to the clone."""
    copy = desk.folder / "clone"
    for name in ("hpc_utils", "jobs", "notebooks", "paper"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for file in (ROOT / "pyproject.toml", desk.folder / "my_study.py", desk.folder / "my_loop.py"):
        shutil.copy(file, copy)
    return copy


@pytest.mark.timeout(1860)
@pytest.mark.parametrize("command", EXECUTED)
def test_the_command_works(command: str, execute: Callable, request: pytest.FixtureRequest) -> None:
    if OWN in command or LOOP in command:
        clone = request.getfixturevalue("clone")
        done = execute(command, clone, PYTHONPATH=str(clone))
    else:
        done = execute(command)
    pages.require_shown(SHOWN.get(command, ""), done.stdout + done.stderr, exact=command.startswith("hpc explain"))


def test_the_runs_of_the_commands_pass_the_checks(desk: Desk) -> None:
    """After the commands above: both kinds of the user's own training stand beside ours, and pass the checks."""
    if not (desk.results / "csv/runs.csv").exists():
        pytest.skip("the commands were not run (selected by hand?)")
    found = records.load(desk.results)
    assert not found.refused and not found.unfinished
    assert {"cnn", "my_study:mlp", "my-loop"} <= set(found.runs.workload)
    own = found.runs[found.runs.parameters < 100_000].query("workload == 'my_study:mlp'").iloc[0]
    assert (own.world_size, own.parameters) == (2, 257 * 128 + 129 * 128 + 129 * 2)


@pytest.mark.soak
@pytest.mark.parametrize("study", [OWN, LOOP])
def test_the_readers_own_study_has_a_figure_with_its_numbers_a_verdict_and_a_page(desk: Desk, study: str) -> None:
    """After the commands above."""
    if not (desk.results / f"studies/{study}.json").exists():
        pytest.skip("the commands were not run (selected by hand?)")
    starts = records.load(desk.results, study=study).runs.sort_values("started").repeat.tolist()
    assert starts == sorted(starts) and len(set(starts)) == 3, "repeats are interleaved in time"
    found = exports.read_exports(desk.results)
    assert f"{study}-efficiency" in found.figures
    points = found.frame(f"{study}-efficiency").query("baseline == 'none' and world_size == 2").set_index("kind")
    assert set(points.index) == {"strong", "weak"} and (points.repeats == 3).all()
    assert ((points.efficiency_low < points.efficiency) & (points.efficiency < points.efficiency_high)).all()
    assert (desk.folder / f"clone/paper/build/{study}.pdf").stat().st_size > 5_000
    assert set(found.frame(f"{study}-targets").verdict) <= {"met", "missed", "undecided"}


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


def test_the_pages_are_short_and_say_for_whom_they_are() -> None:
    texts = [
        page.read_text() for page in (*ROOT.glob("docs/*.md"), ROOT / "jobs/README.md", ROOT / "results/README.md")
    ]
    assert sum(len(text.split()) for text in texts) <= 20_000
    assert [text[:60] for text in texts if not re.match(r"# .+\n\n\*For .+\*\n", text)] == []


def test_make_data(desk: Desk, execute: Callable) -> None:
    execute("make data")
    assert {"cifar10", "mnist"} <= {path.name for path in (desk.folder / "data").iterdir()}


@pytest.mark.soak
def test_make_bench(desk: Desk, execute: Callable) -> None:
    execute("make bench BENCH='--quick startup traces records nsys start'")  # the others: tests/test_gpu_day.py
    assert list((desk.results / "bench").rglob("*.csv"))


@pytest.mark.timeout(960)
def test_make_study_trains_and_draws(desk: Desk, execute: Callable) -> None:
    """The first command: real runs, all complete, whose figures and report exist."""
    done = execute(STUDY)
    pages.require_shown(SHOWN["make study"], done.stdout + done.stderr)
    found = records.load(desk.results, study="laptop")
    assert len(found.runs) == RUNS and not found.refused and not found.unfinished
    assert set(zip(found.runs.parallel, found.runs.world_size, found.runs.global_batch, strict=True)) == {
        ("none", 1, 512), ("ddp", 1, 512), ("ddp", 2, 512), ("ddp", 2, 1024),
    }  # fmt: skip
    assert found.runs.test_accuracy.min() > 0.9, "it learns"
    if not found.runs.oversubscribed.any():
        assert set(scaling.efficiency(found.runs).kind) == {"strong", "weak"}
        figures = {path.name for path in (desk.results / "figures").iterdir()}
        assert {f"laptop-{name}.pdf" for name in ("throughput", "accuracy", "efficiency")} <= figures
    report = (desk.results / "report/laptop/index.html").read_text()
    assert 'id="stale"' not in report and report.count("data:image/png;base64") >= 6
    assert report.count("<article") == 4
    assert (desk.results / "SYSTEM.md").exists()


@pytest.mark.soak  # tests/launch/test_study.py runs a complete study again
@pytest.mark.timeout(960)
def test_make_study_again_finds_everything_done(desk: Desk, execute: Callable) -> None:
    execute(STUDY)
    before = {path: path.stat().st_mtime for path in desk.results.glob("runs/*/epochs.csv")}
    assert f"{RUNS} runs, {RUNS} complete" in execute(STUDY).stderr
    assert {path: path.stat().st_mtime for path in before} == before, "trained again"


def test_make_lab_serves_the_chapters(desk: Desk) -> None:
    """JupyterLab starts on loopback with a token, knows our kernel, and lists the notebooks."""
    (Path(sys.prefix) / ".installed").touch()
    options = "LAB=--no-browser --allow-root --port=0 --ServerApp.port_retries=0"
    runtime = desk.folder / "jupyter"
    server = subprocess.Popen(
        ["make", f"VENV={sys.prefix}", "lab", options],
        cwd=ROOT,
        env=desk.environment | {"JUPYTER_RUNTIME_DIR": str(runtime)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        about = wait_for_server(runtime)
        assert about["hostname"] in ("localhost", "127.0.0.1") and about["token"]
        served = {item["name"] for item in ask(about, "api/contents")["content"]}
        assert {"00_start_here.ipynb", "06_paper_figures.ipynb"} <= served
        assert "scaling-compendium" in ask(about, "api/kernelspecs")["kernelspecs"]
    finally:
        family = psutil.Process(server.pid).children(recursive=True)
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(60)
        _, left = psutil.wait_procs(family, timeout=60)
        for process in left:
            process.kill()


def wait_for_server(runtime: Path) -> dict:
    until = time.monotonic() + 150
    while time.monotonic() < until:
        for path in runtime.glob("jpserver-*.json"):
            try:
                about = json.loads(path.read_text())
                ask(about, "api")
                return about
            except (OSError, json.JSONDecodeError):
                continue
        time.sleep(0.2)
    raise AssertionError("JupyterLab did not answer")


def ask(about: dict, path: str) -> dict:
    with urllib.request.urlopen(f"{about['url']}{path}?token={about['token']}", timeout=60) as answer:
        return json.load(answer)

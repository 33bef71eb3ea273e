"""Every command of REPRODUCE.md is executed, in a folder of its own: the long ones in `make soak`, on one repeat."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpc_utils import paths, records

from . import pages, test_readme
from .support import soak
from .test_readme import HPC, ROOT, make, need_mirror

TEXT = (ROOT / "REPRODUCE.md").read_text()
BLOCKS = pages.FENCE.findall(TEXT)
FETCH = "hpc data fetch cifar10"
EXECUTED_THERE = {"make study", "make test"}  # by tests/test_readme.py, as they stand
RENEWED = "hpc chapter 06_paper_figures --results again-laptop -p study=laptop"  # by tests/publish/test_renewed.py
BUILT_THERE = "make paper"  # the documents, by tests/publish/documents/test_committed.py; through make in `make soak`


CHAPTERS = {  # command: (committed set, its copy, chapter)
    line: (origins[copy], copy, chapter)
    for origins in [{copy: kept for kept, copy in re.findall(r"^cp -r results/reference/(\S+) (\S+)$", TEXT, re.M)}]
    for line, chapter, copy in re.findall(r"^(hpc chapter (\S+) --results (\S+)[^#\n]*?) *(?:#.*)?$", TEXT, re.M)
}


def commands(fence: str) -> list[str]:
    apart = EXECUTED_THERE | CHAPTERS.keys()
    return [one for one in pages.commands(TEXT, fence) if one not in apart and not one.startswith("cp ")]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where a reader works, in place of the clone: the committed sets beside results that are empty."""
    folder = tmp_path_factory.mktemp("desk")
    (folder / "results").mkdir()
    (folder / "results/reference").symlink_to(paths.reference())
    with tempfile.TemporaryDirectory(prefix="hpc-") as clusters:  # short: sockets lie in it
        (folder / "clusters").symlink_to(clusters)
        yield folder
        subprocess.run([*HPC, "cluster", "down"], env=test_readme.environment(folder), check=False, timeout=60)


def execute(desk: Path, command: str, timeout: float) -> subprocess.CompletedProcess:
    environment = test_readme.environment(desk)
    done = subprocess.run(command.split(), cwd=desk, env=environment, capture_output=True, text=True, timeout=timeout)
    if not command.startswith("hpc verify"):
        assert done.returncode == 0, done.stdout + done.stderr
    else:
        require_learned(desk, command.split()[2], done)
    return done


def require_learned(desk: Path, run: str, done: subprocess.CompletedProcess) -> None:
    """What was verified was computed and learned as before; times are the machine's, here and now."""
    assert done.returncode in (0, 1, 4), done.stdout + done.stderr
    (path,) = (desk / "results/verify").glob(f"*{run}*.json")
    account = json.loads(path.read_text())
    times = ("throughput", "step_p50")
    verdicts = {one["quantity"]: one for one in account["judgements"] if one["quantity"] not in times}
    verdicts = {name: one["verdict"] for name, one in verdicts.items() if not name.startswith("peak ")}
    assert {"samples", "steps", "train_loss"} <= set(verdicts)
    assert set(verdicts.values()) == {"agree"}, account["judgements"]


@pytest.mark.parametrize("command", [soak(line) if line == BUILT_THERE else line for line in commands("sh")])
def test_the_command_works(command: str, desk: Path) -> None:
    if command == FETCH:
        need_mirror("CIFAR-10")
    if command.startswith("make "):
        done = make(desk, *command.split()[1:])
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Nothing to be done" not in done.stdout and "up to date" not in done.stdout, "no such target"
    else:
        execute(desk, command, 280)


@pytest.fixture(scope="module")
def copies(desk: Path) -> None:
    for line in re.findall(r"^cp -r .*$", TEXT, re.M):
        execute(desk, line, 60)


@pytest.mark.parametrize(
    "command",
    [
        command if "07_" in command else soak(command)
        for command, (_, _, chapter) in sorted(CHAPTERS.items())
        if command != RENEWED and (paths.notebooks() / f"{chapter}.ipynb").is_file()  # a companion may be deleted
    ],
)
def test_a_chapter_on_committed_records_gives_the_committed_tables(command: str, desk: Path, copies: None) -> None:
    """Nothing is measured, so nothing may differ but who analysed it."""
    kept, copy, chapter = CHAPTERS[command]
    written = desk / copy / "exports"
    before = {path.name: path.stat().st_mtime_ns for path in written.iterdir()}
    execute(desk, command, 280)
    (anew,) = [path for path in written.iterdir() if path.stat().st_mtime_ns != before.get(path.name)]
    assert anew.stem.endswith(chapter)
    ours, theirs = (json.loads(path.read_text()) for path in (anew, paths.reference() / kept / "exports" / anew.name))
    for part in ("tables", "runs", "files"):
        assert ours[part] == theirs[part], part


@pytest.fixture(scope="module")
def cifar10(desk: Path) -> None:
    need_mirror("CIFAR-10")
    execute(desk, FETCH, 280)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("command", commands("sh long"))
def test_the_long_command_works(command: str, desk: Path, cifar10: None, request: pytest.FixtureRequest) -> None:
    if "cluster" in command or "--against" in command:
        request.getfixturevalue("slurm_installed")
        if os.geteuid():
            pytest.skip("links can be limited with root only")
    execute(desk, once(command, desk), 3500)


def once(command: str, desk: Path) -> str:
    """The command with its study's file made one of a single repeat, as the page says."""
    match = re.match(r"hpc (?:study run|submit) (\S+)", command)
    if not match:
        return command
    copy = desk / f"{match[1]}.toml"
    text, changed = re.subn(r"^repeats = \d+", "repeats = 1", paths.study_files()[copy.stem].read_text(), flags=re.M)
    assert changed == 1, copy.name
    copy.write_text(text)
    return command.replace(f" {match[1]}", f" {copy.name}", 1)


@pytest.mark.soak
def test_the_long_commands_leave_complete_runs(desk: Path) -> None:
    found = records.load(desk / "results")
    if found.runs.empty:
        pytest.skip("the commands were not run (selected by hand?)")
    assert not found.refused and not found.unfinished
    assert {"optimization-cpu", "optimization-resnet-cpu", "sensitivity-cpu"} <= {
        path.stem for path in (desk / "results/studies").glob("*.json")
    }


def test_nothing_on_the_page_is_left_out() -> None:
    assert {kind for kind, _ in BLOCKS} == {"sh", "sh long", ""}
    assert {line.split()[1] for line in EXECUTED_THERE} <= set(test_readme.MAKE)
    apart = [line for kind, block in BLOCKS if not kind for line in block.splitlines()]
    assert all(line.startswith("git ") or " NAME" in line for line in apart), "what could be executed must be"
    assert {chapter for _, _, chapter in CHAPTERS.values()} >= {"05_optimization", "06_paper_figures", "07_proposal"}
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", TEXT, flags=re.M | re.S))
    sets = {path.name for path in paths.reference().iterdir()}
    assert sets <= set(inline), "each committed set has its section"

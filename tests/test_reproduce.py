"""Every command of REPRODUCE.md is executed, in a folder of its own: the long ones in `make soak`, on one repeat."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable

import pytest

from hpc_utils import paths, records

from . import pages
from .pages import ROOT, Desk
from .support import soak

TEXT = (ROOT / "REPRODUCE.md").read_text()
BLOCKS = pages.FENCE.findall(TEXT)
COPIES = {copy: kept for kept, copy in re.findall(r"^cp -r results/reference/(\S+) (\S+)$", TEXT, re.M)}
CHAPTERS = {  # command: (copy of a committed set, chapter)
    line: (copy, chapter)
    for line, chapter, copy in re.findall(r"^(hpc chapter (\S+) --results (\S+)[^#\n]*?) *(?:#.*)?$", TEXT, re.M)
}
# By tests/test_readme.py, as they stand.
EXECUTED_THERE = {"make study", "make test"}
# By tests/publish/test_renewed.py, and by companions/documents/tests/test_committed.py.
EXECUTED_OTHERWISE = {"hpc chapter 06_paper_figures --results again-laptop -p study=laptop", "make paper"}


def commands(fence: str) -> list[str]:
    apart = EXECUTED_THERE | CHAPTERS.keys()
    return [command for command in pages.commands(TEXT, fence) if command not in apart and command[:3] != "cp "]


def require_learned(desk: Desk, run: str) -> None:
    """What was verified was computed and learned as before; times are the machine's, here and now."""
    (path,) = (desk.results / "verify").glob(f"*{run}*.json")
    judgements = json.loads(path.read_text())["judgements"]
    verdicts = {
        judgement["quantity"]: judgement["verdict"]
        for judgement in judgements
        if not judgement["quantity"].startswith(("throughput", "step_p50", "peak "))
    }
    assert {"samples", "steps", "train_loss"} <= verdicts.keys() and {*verdicts.values()} == {"agree"}, judgements


@pytest.fixture
def execute_here(desk: Desk, execute: Callable) -> Callable:
    def execute_here(command: str) -> None:
        verified = command.startswith("hpc verify")
        execute(command, codes=(0, 1, 4) if verified else (0,))
        if verified:
            require_learned(desk, command.split()[2])

    return execute_here


@pytest.mark.parametrize(
    "command", [soak(command) if command in EXECUTED_OTHERWISE else command for command in commands("sh")]
)
def test_the_command_works(command: str, execute_here: Callable) -> None:
    execute_here(command)


@pytest.mark.parametrize(
    "command",
    [
        command if "07_" in command else soak(command)
        for command, (_, chapter) in sorted(CHAPTERS.items())
        if command not in EXECUTED_OTHERWISE and (paths.notebooks() / f"{chapter}.ipynb").is_file()
    ],
)
def test_a_chapter_on_committed_records_gives_the_committed_tables(
    command: str, desk: Desk, execute: Callable
) -> None:
    """Nothing is measured, so nothing may differ but who analysed it."""
    copy, chapter = CHAPTERS[command]
    written = desk.folder / copy / "exports"
    if not written.exists():
        execute(f"cp -r results/reference/{COPIES[copy]} {copy}")
    before = {path.name: path.stat().st_mtime_ns for path in written.iterdir()}
    execute(command)
    (anew,) = [path for path in written.iterdir() if path.stat().st_mtime_ns != before.get(path.name)]
    assert anew.stem.endswith(chapter)
    committed = paths.reference() / COPIES[copy] / "exports" / anew.name
    ours, theirs = (json.loads(path.read_text()) for path in (anew, committed))
    assert [ours[part] for part in ("tables", "runs", "files")] == [
        theirs[part] for part in ("tables", "runs", "files")
    ]


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("command", commands("sh long"))
def test_the_long_command_works(command: str, desk: Desk, execute_here: Callable) -> None:
    if ("cluster" in command or "--against" in command) and os.geteuid():
        pytest.skip("links can be limited with root only")
    execute_here("hpc data fetch cifar10")
    execute_here(with_one_repeat(command, desk))


def with_one_repeat(command: str, desk: Desk) -> str:
    """The command with its study's file made one of a single repeat, as the page says."""
    match = re.match(r"hpc (?:study run|submit) (\S+)", command)
    if not match:
        return command
    copy = desk.folder / f"{match[1]}.toml"
    text, changed = re.subn(r"^repeats = \d+", "repeats = 1", paths.study_files()[copy.stem].read_text(), flags=re.M)
    assert changed == 1, copy.name
    copy.write_text(text)
    return command.replace(f" {match[1]}", f" {copy.name}", 1)


@pytest.mark.soak
def test_the_long_commands_leave_complete_runs(desk: Desk) -> None:
    found = records.load(desk.results)
    if found.runs.empty:
        pytest.skip("the commands were not run (selected by hand?)")
    assert not found.refused and not found.unfinished
    studies = {path.stem for path in (desk.results / "studies").glob("*.json")}
    assert {"optimization-cpu", "optimization-resnet-cpu", "sensitivity-cpu"} <= studies


def test_nothing_on_the_page_is_left_out() -> None:
    assert {kind for kind, _ in BLOCKS} == {"sh", "sh long", ""}
    apart = [line for kind, block in BLOCKS if not kind for line in block.splitlines()]
    assert all(line.startswith("git ") or " NAME" in line for line in apart), "what could be executed must be"
    assert {chapter for _, chapter in CHAPTERS.values()} >= {"05_optimization", "06_paper_figures", "07_proposal"}
    sets = {path.name for path in paths.reference().iterdir()}
    assert sets <= set(re.findall(r"`([^`\n]+)`", pages.FENCE.sub("", TEXT))), "each committed set has its section"

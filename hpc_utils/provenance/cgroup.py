"""This process's control groups: version 2's tree, or version 1's of the CPU controller."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .cpu import MACHINE
from .tools import read_text


def groups(machine: Path = MACHINE) -> Iterator[Path]:
    """The groups' folders that limit this process's CPU time: its own group first, then those above it.

    In a container /proc may hold the host's path, of which the container sees the end or nothing: folders that do not
    exist are omitted.
    """
    for line in (read_text(machine / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = machine / "sys/fs/cgroup" / controllers
        group = top / path.lstrip("/")
        for folder in (group, *group.parents):
            if folder.is_dir():
                yield folder
            if folder == top:
                break


def files(name: str, machine: Path = MACHINE) -> Iterator[Path]:
    """The files of that name in these groups."""
    return (folder / name for folder in groups(machine) if (folder / name).is_file())

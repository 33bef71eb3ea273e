"""Which rank a process of an export was, and of how many, as far as the file tells.

An nsys that stands inside `torchrun` or `srun` keeps the environment of its rank. One that stands around `torchrun` sees
every rank of the node and the environment of none: then the launcher's arguments tell how many there are, and where it
is one node's and every process has a device of its own, the device's number is the rank, as PyTorch's programs choose it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

from .database import Database

# Rank and number of ranks as launchers set them; the innermost launcher's first.
LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
_NAMED = re.compile(r"(?<![a-z])rank[-_.= ]?(\d{1,6})(?!\d)", re.I)  # in a file's name
BY_DEVICE = "rank taken from the device's number: one torchrun on one node, each process with its own device"


def of(
    database: Database, source: str, places: Sequence[tuple[int | None, int | None]]
) -> tuple[list[int | None], int | None, tuple[str, ...]]:
    """(rank of each place, world size, remarks); `places`: (process, device) of each timeline."""
    nodes, per_node = _torchrun(database)
    world = nodes * per_node if nodes and per_node else None
    if len({process for process, _ in places}) > 1:
        devices = [device for _, device in places]
        if nodes == 1 and sorted(devices, key=str) == sorted(range(world or 0), key=str):
            return devices, world, (BY_DEVICE,)
        return [None] * len(places), world, ()
    rank, size = _environment(database)
    if rank is None:
        named = _NAMED.findall(PurePath(source).name)
        rank = int(named[-1]) if named else 0 if world == 1 else None
    return [rank] * len(places), size or world, ()


def _environment(database: Database) -> tuple[int | None, int | None]:
    """(rank, world size) of the launcher under which nsys was started."""
    known: dict[str, str] = {}
    names = "|".join(name for pair in LAUNCHERS for name in pair)
    for text in database.blobs("TARGET_INFO_SYSTEM_ENV", "value", where="name = 'DeviceEnvironment'"):
        # Variables end with NUL in 2022, with ; in 2026.
        known |= dict(re.findall(rf"(?:^|[;\0])({names})=(\d{{1,7}})(?=[;\0]|$)", text.decode(errors="replace")))
    for (text,) in database.rows(
        "META_DATA_CAPTURE", "value", where="name LIKE 'PROCESS!_%:ENVIRONMENT!_VARIABLE' ESCAPE '!'"
    ):
        known |= dict(re.findall(rf'^({names})="?(\d{{1,7}})"?$', str(text)))
    for rank, world in LAUNCHERS:
        if rank in known:
            size = int(known.get(world, 0)) or None
            if size is None or int(known[rank]) < size:
                return int(known[rank]), size
    return None, None


def _torchrun(database: Database) -> tuple[int | None, int | None]:
    """(nodes, ranks a node) of the torchrun that nsys was started around, as far as its arguments tell."""
    rows = database.rows("META_DATA_CAPTURE", "name", "value", where="name LIKE 'PROCESS!_0:%' ESCAPE '!'")
    words = [str(value) for name, value in rows if re.fullmatch(r"PROCESS_0:(?:COMMAND|ARGUMENT_\d+)", str(name))]
    if not any(re.search(r"(?:^|/)torchrun$|^torch\.distributed\.(?:run|launch)$", word) for word in words):
        return None, None
    command = " ".join(words) + " "
    found = []
    for option in (r"--nnodes", r"--nproc[-_]per[-_]node"):
        given = re.search(rf"{option}[= ](\S+) ", command)
        number = re.fullmatch(r"(\d{1,5})(?::\1)?", given[1]) if given else None
        found.append(int(number[1]) if number else None if given else 1)
    return found[0], found[1]

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
LONGEST = 1 << 20  # characters of an environment
BY_DEVICE = "rank taken from the device's number: one torchrun on one node, each process with its own device"


def of(
    database: Database, source: str, places: Sequence[tuple[int | None, int | None]]
) -> tuple[list[int | None], int | None, tuple[str, ...]]:
    """(rank of each place, world size, remarks); `places`: (process, device) of each timeline."""
    if len({process for process, _ in places}) > 1:
        world = _torchrun(database)
        devices = [device for _, device in places]
        if world == len(places) and sorted(map(str, devices)) == sorted(map(str, range(world))):
            return devices, world, (BY_DEVICE,)
        return [None] * len(places), world, ()
    rank, world = _environment(database)
    if rank is None:
        named = re.findall(r"rank[-_.=]?(\d{1,7})", PurePath(source).name, re.I)
        rank = int(named[-1]) if named else None
    return [rank] * len(places), world or _torchrun(database), ()


def _environment(database: Database) -> tuple[int | None, int | None]:
    """(rank, world size) of the launcher under which nsys was started."""
    known: dict[str, str] = {}
    names = "|".join(name for pair in LAUNCHERS for name in pair)
    for (text,) in database.rows(
        "TARGET_INFO_SYSTEM_ENV", "value", where="WHERE name = 'DeviceEnvironment'", longest=LONGEST
    ):
        known |= dict(re.findall(rf"(?:^|;)({names})=(\d{{1,7}})(?=;|$)", str(text)))
    for (text,) in database.rows(
        "META_DATA_CAPTURE", "value", where="WHERE name LIKE 'PROCESS!_%:ENVIRONMENT!_VARIABLE' ESCAPE '!'"
    ):
        known |= dict(re.findall(rf'^({names})="?(\d{{1,7}})"?$', str(text)))
    for rank, world in LAUNCHERS:
        if rank in known:
            size = int(known.get(world, 0)) or None
            if size is None or int(known[rank]) < size:
                return int(known[rank]), size
    return None, None


def _torchrun(database: Database) -> int | None:
    """Ranks of the one-node torchrun that nsys was started around; None: there is no such thing."""
    if not {"name", "value"} <= database.tables.get("META_DATA_CAPTURE", frozenset()):
        return None
    rows = database.rows(
        "META_DATA_CAPTURE", "name", "value", where="WHERE name LIKE 'PROCESS!_0:%' ESCAPE '!' ORDER BY rowid"
    )
    words = [str(value) for name, value in rows if re.fullmatch(r"PROCESS_0:(?:COMMAND|ARGUMENT_\d+)", str(name))]
    if not any(re.search(r"(?:^|/)torchrun$|^torch\.distributed\.(?:run|launch)$", word) for word in words):
        return None
    command = " ".join(words) + " "
    ranks = re.search(r"--nproc[-_]per[-_]node[= ](\d{1,5}) ", command)
    nodes = re.search(r"--nnodes[= ](\S+) ", command)
    return int(ranks[1]) if ranks and (nodes is None or nodes[1] in ("1", "1:1")) else None

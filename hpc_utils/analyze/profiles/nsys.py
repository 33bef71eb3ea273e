"""Nsight Systems reports as timelines: one per process and device that worked.

An SQLite export (nsys 2022.4 to 2026) is read directly; a report is exported first, which takes an installed nsys. Schema: NVIDIA
Nsight Systems User Guide, "Exporter SQLite Schema". A table exists only if it has rows. Times are ns since the session began.
`globalTid >> 24` and `globalPid >> 24` identify a process. Correlation ids are unique within a process.

The rank comes from the environment of an nsys inside `torchrun` or `srun`. An nsys around `torchrun` records every rank of the node;
if it is the only node and each process has its own device, the rank is the device's number, as PyTorch programs choose it.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
from collections.abc import Iterable
from contextlib import closing
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from . import kernels, phases
from .timeline import COMPUTE, MEMORY, NO_MPI, UNKNOWN, Events, ProfileError, Timeline, first_calls

REPORTS = (".nsys-rep", ".qdrep")
NEWEST = (3, 25)  # EXPORT_SCHEMA_VERSION of nsys 2026.2, the newest that was tested
TIMEOUT = 3600.0  # s: exporting a report of some GB takes minutes

# 1 if the host's side of a copy is pageable memory (ENUM_CUDA_MEM_KIND 0), 0 if pinned (1)
_PAGEABLE = """CASE CASE WHEN copyKind IN (1, 3) THEN srcKind WHEN copyKind IN (2, 4) THEN dstKind END
    WHEN 0 THEN 1 WHEN 1 THEN 0 ELSE -1 END"""
# Columns of the tables of a device's work: kind, name (only kernels have one), copy, pageable
_WORK = {
    "CUPTI_ACTIVITY_KIND_KERNEL": f"{COMPUTE}, demangledName, 0, -1",
    "CUPTI_ACTIVITY_KIND_MEMCPY": f"{MEMORY}, -1, copyKind, {_PAGEABLE}",
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{MEMORY}, -1, 0, -1",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": f"{UNKNOWN}, -1, 0, -1",
}
_IS_GRAPH = "nameId IN (SELECT id FROM StringIds WHERE value GLOB 'cudaGraphLaunch*' OR value GLOB 'cuGraphLaunch*')"
# NvtxPushPopRange and NvtxStartEndRange of ENUM_NSYS_EVENT_TYPE, if they have ended
_ENDED = "LEFT JOIN StringIds ON id = textId WHERE eventType IN (59, 60) AND [end] >= start ORDER BY start"
# What PyTorch's emit_nvtx adds to an operator's name: with it each call would have a different name.
_CALL = re.compile(r", (?:op_id|seq|sizes|input_op_ids) = .*", re.S)
# Errors of nsys, and its warnings about events that it did not record
_LOST = " OR ".join(
    f"text LIKE '%{word}%'"
    for word in ("not all", "lost", "dropped", "missing", "incomplete", "discarded", "overflow")
)
# Rank and number of ranks as launchers set them, the innermost launcher first.
LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)

NODES = "Collect with --cuda-graph-trace=node"
BY_DEVICE = "rank taken from the device's number: one torchrun on one node, each process with its own device"
NO_GPU = "no events of a GPU: nothing is known of a device's work"
NO_RANGES = (
    "no NVTX ranges: phases and loader wait are not known (nsys before 2024.3 does not record those of the Python package "
    "nvtx from 0.2.12 on)"
)
NO_LAUNCHES = "launch times are not known: the export has no calls of the CUDA runtime"


def read_report(path: Path | str) -> list[Timeline]:
    """The timelines of an export (`.sqlite`) or a report (`.nsys-rep`), by process and device.

    Without GPU events there is one timeline per process with NVTX ranges, without `ops`. Missing data is named in the remarks.

    Raises:
        ProfileError: the file is no complete export, or the report cannot be exported here.
    """
    path = Path(path)
    with TemporaryDirectory(prefix="hpc-nsys-") as folder:
        file = _exported(path, Path(folder)) if path.suffix in REPORTS else path
        if any(path.with_name(path.name + suffix).exists() for suffix in ("-journal", "-wal")):
            raise ProfileError(f"{path} is still being written, or its export was interrupted: repeat the export")
        try:
            # Locks hang on cluster file systems: read-only and immutable needs none.
            uri = f"{file.resolve().as_uri()}?mode=ro&immutable=1"
            with closing(sqlite3.connect(uri, uri=True)) as database:
                database.text_factory = lambda text: text.decode(errors="replace")
                # A view in the file then calls no function with side effects.
                database.execute("PRAGMA trusted_schema = OFF")
                return _timelines(str(path), database)
        except (sqlite3.Error, TypeError, ValueError, OverflowError) as error:
            raise ProfileError(
                f"{path} is no complete export of Nsight Systems ({error}): export it again"
            ) from error


def _exported(report: Path, folder: Path) -> Path:
    """The export next to a report if it is newer, else an export to `folder` by this machine's nsys."""
    sibling = report.with_suffix(".sqlite")
    file = folder / "export.sqlite"
    if sibling.is_file() and sibling.stat().st_mtime >= report.stat().st_mtime:
        return sibling
    if not (nsys := shutil.which("nsys")):
        raise ProfileError(
            f"{report} is a report, and nsys is not installed here: PATH=$(env/nsight.sh):$PATH has Debian's, which opens reports "
            f"of 2022 and older; else export it where it was made (nsys export --type sqlite {report.name}) and copy the .sqlite file"
        )
    command = [nsys, "export", "--type", "sqlite", "--output", str(file), str(report.absolute())]
    try:
        done = subprocess.run(
            command, timeout=TIMEOUT, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ProfileError(f"{report} could not be exported: {error}") from None
    if done.returncode or not file.is_file():
        words = " ".join((done.stderr or done.stdout).split())[-500:]
        raise ProfileError(
            f"{report} could not be exported by {nsys}: {words}. A complete report needs the nsys that made it, or a newer one"
        )
    return file


def _rows(database: sqlite3.Connection, table: str, columns: str, clauses: str = "") -> Iterable[tuple]:
    """Rows of a table; none if the export has no such table."""
    exists = database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [table]).fetchone()
    return database.execute(f"SELECT {columns} FROM {table} {clauses}") if exists else ()


def _timelines(source: str, database: sqlite3.Connection) -> list[Timeline]:
    metadata = dict(
        chain(*(_rows(database, table, "name, value") for table in ("META_DATA_EXPORT", "EXPORT_META_DATA")))
    )  # one table, called the other way round in 2022
    texts = dict(database.execute("SELECT id, value FROM StringIds"))
    remarks = [
        f"nsys: {' '.join(text.split())[:200]}"
        for (text,) in _rows(
            database, "DIAGNOSTIC_EVENT", "DISTINCT text", f"WHERE severity = 3 OR severity = 2 AND ({_LOST}) LIMIT 3"
        )
    ]
    schema = re.match(r"(\d+)\.(\d+)", metadata.get("EXPORT_SCHEMA_VERSION", ""))
    if schema and tuple(map(int, schema.groups())) > NEWEST:
        remarks.append(
            f"schema {schema[0]} is newer than {NEWEST}, the newest tested: new kinds of events are not read"
        )
    if any(_rows(database, table, "1") for table in ("MPI_P2P_EVENTS", "MPI_COLLECTIVES_EVENTS")):
        remarks.append(NO_MPI)
    began = [ns for (ns,) in _rows(database, "TARGET_INFO_SESSION_START_TIME", "utcEpochNs")]
    epoch = began[0] if began else 0
    models = {name for (name,) in _rows(database, "TARGET_INFO_GPU", "name")}
    model = models.pop() if len(models) == 1 else ""
    ranges = _ranges(database, epoch)
    places = sorted({
        place for table in _WORK for place in _rows(database, table, "DISTINCT globalPid >> 24, deviceId")
    })  # fmt: skip
    if not places:
        remarks.append(NO_GPU)
        places = [(process, None) for process in sorted(ranges)] or [(None, None)]
    ranks, world_size = _ranks(database, places)
    if len(ranks) > 1 and None not in ranks.values():
        remarks.append(BY_DEVICE)
    timelines = []
    for process, device in places:
        process_ranges = ranges.get(process, Events.ranges([], [], []))
        missing = []
        ops = None
        if device is not None:
            ops, missing = _work(database, process, device, texts, epoch)
            ops = kernels.named_collectives(ops, process_ranges)
        missing += [] if len(process_ranges) else [NO_RANGES]
        timelines.append(
            Timeline(
                source,
                ranks[process],
                world_size,
                device,
                "" if device is None else model,
                ops,
                process_ranges,
                bool(began),
                process_ranges,
                (*remarks, *missing),
            )
        )
    return timelines


def _ranges(database: sqlite3.Connection, epoch: int) -> dict[int, Events]:
    """{process: its NVTX ranges}. Ranges that were open when the session ended are omitted."""
    marks: dict[int, list[tuple[int, int, str, int]]] = {}
    columns = "globalTid, start, [end], coalesce(text, value, '')"
    for thread, start, end, text in _rows(database, "NVTX_EVENTS", columns, _ENDED):
        marks.setdefault(thread >> 24, []).append((start + epoch, end + epoch, _CALL.sub("", text), thread))
    return {process: phases.ranges(*zip(*process_marks, strict=True)) for process, process_marks in marks.items()}


def _work(
    database: sqlite3.Connection, process: int, device: int, texts: dict[int, str], epoch: int
) -> tuple[Events, list[str]]:
    """(the work of a process on a device, remarks)."""

    def integers(table: str, columns: str, count: int, where: str) -> np.ndarray:
        """(count, rows) int64."""
        rows = chain.from_iterable(_rows(database, table, columns, f"WHERE {where}"))
        return np.fromiter(rows, np.int64).reshape(-1, count).T

    on_device = f"globalPid >> 24 = {process} AND deviceId = {device}"
    parts = [
        integers(table, f"start, [end], correlationId, {columns}", 7, on_device) for table, columns in _WORK.items()
    ]
    start, end, call, kind, name, copy, pageable = np.concatenate(parts, axis=1)
    codes, name = np.unique(name, return_inverse=True)
    names = [texts.get(code, "") for code in codes.tolist()]
    kind = np.where(kind == COMPUTE, kernels.ops_kinds(names)[name], kind)
    started, calls, graph = integers(
        "CUPTI_ACTIVITY_KIND_RUNTIME", f"start, correlationId, {_IS_GRAPH}", 3, f"globalTid >> 24 = {process}"
    )
    launched = np.append(started + epoch, -1)[first_calls(call, calls, started)]
    remarks = [] if np.any(launched >= 0) else [NO_LAUNCHES]
    if graph_launches := int(np.sum(kind == UNKNOWN)):
        remarks.append(
            f"{graph_launches} launches of CUDA graphs were traced whole: what ran in them is not known. {NODES}"
        )
    # nsys before 2023 records no work of whole graphs.
    elif graph.any() and not np.isin(calls[graph == 1], call).any():
        remarks.append(f"{graph.sum()} launches of CUDA graphs, whose work was not recorded: {NODES}")
    columns = {"kind": kind, "name": name, "copy": copy, "pageable": pageable}
    return Events.of(start=start + epoch, end=end + epoch, launched=launched, **columns, names=names), remarks


def _ranks(
    database: sqlite3.Connection, places: list[tuple[int | None, int | None]]
) -> tuple[dict[int | None, int | None], int | None]:
    """({process: rank}, world size); `places`: (process, device) of each timeline."""
    processes = {process for process, _ in places}
    if len(processes) > 1:
        words = _rows(database, "META_DATA_CAPTURE", "value", "WHERE name GLOB 'PROCESS_0:ARGUMENT_*'")
        several_nodes = re.search(r"--nnodes[= ](?!1\b|1:1\b)", " ".join(chain.from_iterable(words)))
        one_device_each = len(places) == len(processes) and {device for _, device in places} == {*range(len(places))}
        if one_device_each and not several_nodes:
            return dict(places), len(places)
        return dict.fromkeys(processes), None
    variables = "WHERE name = 'DeviceEnvironment' OR name LIKE 'PROCESS!_%:ENVIRONMENT!_VARIABLE' ESCAPE '!'"
    tables = ("TARGET_INFO_SYSTEM_ENV", "META_DATA_CAPTURE")
    texts = chain(*(_rows(database, table, "CAST(value AS BLOB)", variables) for table in tables))
    # Variables end with NUL in 2022, with ; in 2026.
    environment = b"\0".join(chain.from_iterable(texts)).decode(errors="replace")
    launcher_variables = dict(re.findall(r'(?:^|[;\0])(\w+)="?(\d{1,7})"?(?=[;\0]|$)', environment))
    for rank, world in LAUNCHERS:
        if rank in launcher_variables:
            return dict.fromkeys(processes, int(launcher_variables[rank])), int(
                launcher_variables.get(world, 0)
            ) or None
    return dict.fromkeys(processes), None

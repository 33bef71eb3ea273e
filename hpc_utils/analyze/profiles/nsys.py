"""Nsight Systems reports as timelines: one per process and device that worked.

An SQLite export (nsys 2022.4 to 2026) is read directly; a report is exported first, which takes an installed nsys. Schema: NVIDIA
Nsight Systems User Guide, "Exporter SQLite Schema". A table exists only if it has rows. Times are ns since the session began.
`globalTid >> 24` identifies a process; its lowest 24 bits are the pid. Correlation ids are unique within a process.

The rank comes from the environment of an nsys inside `torchrun` or `srun`. An nsys around `torchrun` records every rank of the node;
if it is the only node and each process has its own device, the rank is the device's number, as PyTorch programs choose it.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from . import kernels
from .timeline import COLUMNS, COMPUTE, MEMORY, UNKNOWN, Ops, ProfileError, Ranges, Timeline, first_calls, named_rank

REPORTS = (".nsys-rep", ".qdrep")
NEWEST = (3, 25)  # EXPORT_SCHEMA_VERSION of nsys 2026.2, the newest that was tested
TIMEOUT = 3600.0  # s: exporting a report of some GB takes minutes

# Columns of every table of a device's work.
_PLACE = {
    "start": "start",
    "end": "[end]",
    "process": "globalPid",
    "device": "deviceId",
    "call": "correlationId",
}
# 1 if the host's side of a copy is pageable memory (ENUM_CUDA_MEM_KIND 0), 0 if pinned (1)
_PAGEABLE = """CASE CASE WHEN copyKind IN (1, 3) THEN srcKind WHEN copyKind IN (2, 4) THEN dstKind END
    WHEN 0 THEN 1 WHEN 1 THEN 0 END"""
# table: kind of work, name (kernels have their own), further columns
_WORK = {
    "CUPTI_ACTIVITY_KIND_KERNEL": (COMPUTE, "", {"name": "demangledName"}),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (MEMORY, "[CUDA memcpy]", {"moved": "bytes", "copy": "copyKind", "pageable": _PAGEABLE}),
    "CUPTI_ACTIVITY_KIND_MEMSET": (MEMORY, "[CUDA memset]", {"moved": "bytes"}),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": (UNKNOWN, "[CUDA graph]", {}),
}  # fmt: skip
_CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"

# NvtxPushPopRange and NvtxStartEndRange of ENUM_NSYS_EVENT_TYPE, if they have ended
_RANGES = """SELECT start, [end], globalTid >> 24, coalesce(text, value, '')
    FROM NVTX_EVENTS LEFT JOIN StringIds ON id = textId WHERE eventType IN (59, 60) AND [end] >= start ORDER BY start"""
# What PyTorch's emit_nvtx adds to an operator's name: with it each call would have a different name.
_CALL = re.compile(r", (?:op_id|seq|sizes|input_op_ids) = .*", re.S)

# Errors of nsys, and its warnings about events that it did not record
_LOST = """SELECT DISTINCT text FROM DIAGNOSTIC_EVENT WHERE severity = 3 OR severity = 2 AND (text LIKE '%not all%'
    OR text LIKE '%lost%' OR text LIKE '%dropped%' OR text LIKE '%missing%' OR text LIKE '%incomplete%'
    OR text LIKE '%discarded%' OR text LIKE '%overflow%') LIMIT 3"""
_GRAPH_LAUNCHES = f"""SELECT correlationId FROM {_CALLS} WHERE nameId IN
    (SELECT id FROM StringIds WHERE value GLOB 'cudaGraphLaunch*' OR value GLOB 'cuGraphLaunch*')"""
_ENVIRONMENT = (
    ("TARGET_INFO_SYSTEM_ENV", "name = 'DeviceEnvironment'"),
    ("META_DATA_CAPTURE", "name LIKE 'PROCESS!_%:ENVIRONMENT!_VARIABLE' ESCAPE '!'"),
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


class Database:
    """An SQLite file, opened read-only and without locks, which hang on cluster file systems. `tables`: the names of its tables."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
        self._connection.text_factory = lambda text: text.decode(errors="replace")
        # A view in the file then calls no function with side effects.
        self._connection.execute("PRAGMA trusted_schema = OFF")
        self.tables = {str(name) for (name,) in self._connection.execute("SELECT name FROM sqlite_master")}

    def close(self) -> None:
        self._connection.close()

    def rows(self, table: str, query: str) -> Iterable[tuple]:
        """The rows of a query; none if the export has no such table."""
        return self._connection.execute(query) if table in self.tables else ()

    def integers(self, table: str, *columns: str) -> list[np.ndarray]:
        """Columns (SQL) as int64, -1 for NULL; empty if the export has no such table."""
        rows = self.rows(table, f"SELECT {', '.join(f'ifnull({one}, -1)' for one in columns)} FROM {table}")
        return list(np.fromiter(chain.from_iterable(rows), np.int64).reshape(-1, len(columns)).T.copy())


def read(path: Path | str) -> list[Timeline]:
    """The timelines of an export (`.sqlite`) or a report (`.nsys-rep`), by process and device.

    Without GPU events there is one timeline per process with NVTX ranges, without `ops`. Missing data is named in the remarks.

    Raises:
        ProfileError: the file is no complete export, or the report cannot be exported here.
    """
    path = Path(path)
    with TemporaryDirectory(prefix="hpc-nsys-") as folder:
        file = _exported(path, Path(folder)) if path.suffix in REPORTS else path
        _check(file)
        try:
            with closing(Database(file)) as database:
                return _timelines(str(path), database)
        except (sqlite3.Error, TypeError, ValueError, OverflowError) as error:
            raise ProfileError(
                f"{path} is no complete export of Nsight Systems ({error}): export it again"
            ) from error


def _check(path: Path) -> None:
    """Refuse a file that is no SQLite database, is truncated, or still being written."""
    try:
        with path.open("rb") as file:
            head = file.read(100)
        size = path.stat().st_size
    except OSError as error:
        raise ProfileError(f"{path} cannot be read: {error.strerror}") from error
    if not head.startswith(b"SQLite format 3\0"):
        raise ProfileError(f"{path} is no SQLite database: expected what `nsys export --type sqlite` writes")
    page, pages = (int.from_bytes(head[at : at + length], "big") for at, length in ((16, 2), (28, 4)))
    if size < pages * (65536 if page == 1 else page):
        raise ProfileError(f"{path} is truncated ({size:,} bytes): copy or export it again")
    if any(path.with_name(path.name + suffix).exists() for suffix in ("-journal", "-wal")):
        raise ProfileError(f"{path} is still being written, or its export was interrupted: repeat the export")


def _exported(report: Path, folder: Path) -> Path:
    """The export next to a report if it is newer, else an export to `folder` by this machine's nsys."""
    if not report.is_file():
        raise ProfileError(f"{report} cannot be read: no such file")
    beside = report.with_suffix(".sqlite")
    if beside.is_file() and beside.stat().st_mtime >= report.stat().st_mtime:
        return beside
    nsys, file = shutil.which("nsys"), folder / "export.sqlite"
    if nsys is None:
        raise ProfileError(
            f"{report} is a report, and nsys is not installed here: export it where it was made (nsys export --type sqlite "
            f"{report.name}) and copy the .sqlite file"
        )
    command = [nsys, "export", "--type", "sqlite", "--output", str(file), str(report.absolute())]
    quiet = {"capture_output": True, "text": True, "errors": "replace", "stdin": subprocess.DEVNULL}
    try:
        done = subprocess.run(command, timeout=TIMEOUT, **quiet)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ProfileError(f"{report} could not be exported: {error}. Export it where it was made") from error
    if done.returncode or not file.is_file():
        words = " ".join((done.stderr.strip() or done.stdout.strip().split("\r")[-1]).split())[-500:]
        raise ProfileError(
            f"{report} could not be exported by {nsys}: {words}. A complete report needs the nsys that made it, or a newer one"
        )
    return file


def _timelines(source: str, database: Database) -> list[Timeline]:
    if "StringIds" not in database.tables:
        raise ValueError("it has no table StringIds")
    about = _about(database)
    remarks = [
        *_version(about),
        *(f"nsys: {' '.join(text.split())[:200]}" for (text,) in database.rows("DIAGNOSTIC_EVENT", _LOST)),
    ]
    began = [0] if about.get("EXPORT_PARAM_TIME_NORMALIZE") == "true" else database.integers(
        "TARGET_INFO_SESSION_START_TIME", "utcEpochNs"
    )[0]  # fmt: skip
    epoch = int(began[0]) if len(began) else 0
    ranges = _ranges(database, epoch)
    found: dict[tuple[int | None, int | None], Ops | None] = dict(_work(database, epoch, remarks))
    if not found:
        remarks.append(NO_GPU)
        found = dict.fromkeys([(process, None) for process in sorted(ranges)] or [(None, None)])
    ranks, world_size = _ranks(database, source, list(found))
    if len({process for process, _ in found}) > 1 and ranks[0] is not None:
        remarks.append(BY_DEVICE)
    timelines = []
    for rank, ((process, device), ops) in zip(ranks, found.items(), strict=True):
        own = ranges.get(process, Ranges.of([], [], []))
        missing = [] if len(own) else [NO_RANGES]
        missing += [NO_LAUNCHES] if ops is not None and np.all(ops.launched < 0) else []
        model = "" if device is None else _model(database, process & 0xFFFFFF, device)
        timelines.append(
            Timeline(source, rank, world_size, device, model, ops, own, len(began) > 0, (*remarks, *missing))
        )
    return timelines


def _about(database: Database) -> dict[str, str]:
    tables = ("META_DATA_EXPORT", "EXPORT_META_DATA")  # the same table, now and in 2022
    return {
        str(name): str(value)
        for table in tables
        for name, value in database.rows(table, f"SELECT name, value FROM {table}")
    }


def _version(about: dict[str, str]) -> Iterator[str]:
    schema = about.get("EXPORT_SCHEMA_VERSION", "")
    if (parts := re.match(r"(\d+)\.(\d+)", schema)) and (int(parts[1]), int(parts[2])) > NEWEST:
        product, known = about.get("EXPORT_PRODUCT_VERSION", "?"), ".".join(map(str, NEWEST))
        yield f"schema {schema} of nsys {product} is newer than {known}, the newest tested version: new kinds of events are not read"


def _model(database: Database, pid: int, device: int) -> str:
    """The model of a device, by its number in this process; "" if the export does not hold it."""
    names = dict(database.rows("TARGET_INFO_GPU", "SELECT coalesce(cuDevice, id), name FROM TARGET_INFO_GPU"))
    own = f"SELECT name FROM TARGET_INFO_CUDA_DEVICE JOIN TARGET_INFO_GPU ON id = gpuId WHERE pid = {pid} AND cudaId = {device}"
    for (name,) in database.rows("TARGET_INFO_CUDA_DEVICE", own):
        return name
    return next(iter(names.values())) if len(set(names.values())) == 1 else names.get(device, "")


def _ranges(database: Database, epoch: int) -> dict[int, Ranges]:
    """{process: its NVTX ranges}. Ranges that were open when the session ended are omitted."""
    found: dict[int, list[tuple[int, int, str]]] = {}
    for start, end, process, text in database.rows("NVTX_EVENTS", _RANGES):
        found.setdefault(process, []).append((start + epoch, end + epoch, _CALL.sub("", text)))
    return {process: Ranges.of(*zip(*own, strict=True)) for process, own in found.items()}


def _work(database: Database, epoch: int, remarks: list[str]) -> Iterator[tuple[tuple[int, int], Ops]]:
    """((process, device), its work), ordered."""
    parts, names = [], []
    for table, (kind, name, more) in _WORK.items():
        part = dict(zip((*_PLACE, *more), database.integers(table, *_PLACE.values(), *more.values()), strict=True))
        if not (count := len(part["start"])):
            continue
        if kind == COMPUTE:
            codes = np.unique(part["name"])
            texts = dict(database.rows("StringIds", "SELECT id, value FROM StringIds"))
            names = [kernels.bare(texts.get(code, f"kernel {code}")) for code in codes.tolist()]
            part["name"] = np.searchsorted(codes, part["name"]).astype(np.int32)
            part["kind"] = kernels.ops_kinds(names)[part["name"]]
        else:
            part |= {"kind": np.full(count, kind, np.int8), "name": np.full(count, len(names), np.int32)}
            names.append(name)
        if kind == UNKNOWN:
            remarks.append(
                f"{count} launches of CUDA graphs were traced whole: what ran in them is not known. {NODES}"
            )
        parts.append((count, part))
    columns = {
        one: np.concatenate(
            [part.pop(one) if one in part else np.full(count, *reversed(COLUMNS[one])) for count, part in parts]
        )
        for one in dict.fromkeys(name for _, part in parts for name in part)
    }
    # nsys before 2023 records no work of whole graphs.
    graphs = [call for (call,) in database.rows(_CALLS, _GRAPH_LAUNCHES)]
    if graphs and not np.isin(graphs, columns.get("call", [])).any():
        remarks.append(f"{len(graphs)} launches of CUDA graphs, whose work was not recorded: {NODES}")
    if not columns:
        return
    process, device, call = (columns.pop(one) for one in ("process", "device", "call"))
    process >>= 24
    columns["launched"] = _launched(database, process, call, epoch)
    columns["start"] += epoch
    columns["end"] += epoch
    place = process << 16 | device
    del process, device, call  # of ten million entries each
    places = np.unique(place).tolist()
    for one in places:
        chosen = slice(None) if len(places) == 1 else place == one  # a slice copies nothing
        yield (
            (one >> 16, one & 0xFFFF),
            Ops.of(**{name: values[chosen] for name, values in columns.items()}, names=names),
        )


def _launched(database: Database, process: np.ndarray, call: np.ndarray, epoch: int) -> np.ndarray:
    """When the host launched each operation (ns); -1: not known."""
    started, thread, known = database.integers(_CALLS, "start", "globalTid", "correlationId")
    # Correlation ids have 32 bits: with the pid they are unique in the export.
    work, calls = ((own & 0xFFFFFF) << 32 | one for own, one in ((process, call), (thread >> 24, known)))
    at = first_calls(work, calls, started)
    return np.append(started + epoch, -1)[at]


def _ranks(
    database: Database, source: str, places: list[tuple[int | None, int | None]]
) -> tuple[list[int | None], int | None]:
    """(rank of each place, world size); `places`: (process, device) of each timeline."""
    nodes, per_node = _torchrun(database)
    world = nodes * per_node if nodes and per_node else None
    if len({process for process, _ in places}) > 1:
        devices = [device for _, device in places]
        one_each = nodes == 1 and None not in devices and sorted(devices) == list(range(world or 0))
        return devices if one_each else [None] * len(places), world
    rank, size = _environment(database)
    if rank is None:
        rank = 0 if world == 1 and named_rank(source) is None else named_rank(source)
    return [rank] * len(places), size or world


def _environment(database: Database) -> tuple[int | None, int | None]:
    """(rank, world size) of the launcher that started nsys."""
    texts = [
        value.decode(errors="replace")
        for table, where in _ENVIRONMENT
        for (value,) in database.rows(table, f"SELECT CAST(value AS BLOB) FROM {table} WHERE {where}")
    ]
    # Variables end with NUL in 2022, with ; in 2026.
    known = dict(re.findall(r'(?:^|[;\0])(\w+)="?(\d{1,7})"?(?=[;\0]|$)', "\0".join(texts)))
    for rank, world in LAUNCHERS:
        if rank in known:
            return int(known[rank]), int(known.get(world, 0)) or None
    return None, None


def _torchrun(database: Database) -> tuple[int | None, int | None]:
    """(nodes, ranks per node) of the torchrun that nsys was started around, by its arguments."""
    query = "SELECT value FROM META_DATA_CAPTURE WHERE name = 'PROCESS_0:COMMAND' OR name GLOB 'PROCESS_0:ARGUMENT_*'"
    words = [str(value) for (value,) in database.rows("META_DATA_CAPTURE", query)]
    if not any(re.search(r"(?:^|/)torchrun$|^torch\.distributed\.(?:run|launch)$", word) for word in words):
        return None, None
    command, found = " ".join(words) + " ", []
    for option in (r"--nnodes", r"--nproc[-_]per[-_]node"):
        given = re.search(rf"{option}[= ](\S+) ", command)
        number = re.fullmatch(r"(\d+)(?::\1)?", given[1]) if given else None
        found.append(int(number[1]) if number else None if given else 1)
    return found[0], found[1]

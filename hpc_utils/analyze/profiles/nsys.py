"""Timelines of Nsight Systems, from SQLite exports (2022.4 to 2026) or reports: one per process and device that worked.

Schema: NVIDIA Nsight Systems User Guide, "Exporter SQLite Schema"; each export also holds it as commented SQL. Tables are
made when they are needed: a missing one means that there was no such event. Times are ns since the session began. A process
is `globalTid >> 24` (hardware, virtual machine, pid), whose lowest 24 bits are the pid. Correlation ids are unique in a
process only. NCCL marks its calls with NVTX ranges (`ncclAllReduce`): they show when the host called, not when the device
worked.

An nsys inside `torchrun` or `srun` keeps the environment of its rank. One around `torchrun` sees every rank of the node and
no environment: then the launcher's arguments give the number of ranks, and with one node and one device per process the
device's number is the rank, as PyTorch programs choose it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from . import kernels
from .nsys_export import UNKNOWN as NULL
from .nsys_export import Database, opened
from .timeline import MEMORY, UNKNOWN, Ops, ProfileError, Ranges, Timeline, named_rank

KERNEL, GRAPH = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
MEMCPY, MEMSET = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
RUNTIME, NVTX = "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
PLACE = ("start", "end", "globalPid", "deviceId", "correlationId")
ABOUT = ("META_DATA_EXPORT", "EXPORT_META_DATA")  # the same table, now and in 2022
OURS = (*ABOUT, "META_DATA_CAPTURE", "TARGET_INFO_", "ANALYSIS_", "CUPTI_ACTIVITY_KIND_", NVTX)
NEWEST = (3, 25)  # EXPORT_SCHEMA_VERSION of nsys 2026.2, the newest that was tested

NVTX_RANGES = "eventType IN (59, 60)"  # ENUM_NSYS_EVENT_TYPE: NvtxPushPopRange, NvtxStartEndRange
# What PyTorch's emit_nvtx adds to an operator's name; with it every call would have a name of its own.
_CALL = re.compile(r", (?:op_id|seq|sizes|input_op_ids) = .*", re.S)

# ENUM_CUDA_MEMCPY_OPER, as `nsys stats` calls them; which of them have one end in the host's memory.
COPIES = (
    "unknown", "Host-to-Device", "Device-to-Host", "Host-to-Array", "Array-to-Host", "Array-to-Array", "Array-to-Device",
    "Device-to-Array", "Device-to-Device", "Host-to-Host", "Peer-to-Peer", "Unified Host-to-Device",
    "Unified Device-to-Host", "Unified Device-to-Device",
)  # fmt: skip
FROM_HOST, TO_HOST = (1, 3), (2, 4)
PAGEABLE, PINNED = 0, 1  # ENUM_CUDA_MEM_KIND

WARNING, ERROR = 2, 3  # ENUM_DIAGNOSTIC_SEVERITY_LEVEL
LOST = re.compile(r"\b(?:not all|lost|dropp?ed|missing|incomplete|discarded|overflow)", re.I)
MOST = 3  # of nsys's own warnings that are repeated

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
    "no NVTX ranges: phases and loader wait are not known (nsys before 2024.3 does not see those of the Python package "
    "nvtx from 0.2.12 on)"
)
NO_LAUNCHES = "when the host launched its work is not known: the export has no calls of the CUDA runtime"


def read(path: Path | str) -> list[Timeline]:
    """The timelines of an export (`.sqlite`) or a report (`.nsys-rep`, which takes an nsys), by process and device.

    Without events of a GPU there is one timeline per process with NVTX ranges, or a single one: without `ops`. What is
    merely missing is in the remarks.

    Raises:
        ProfileError: the file is no such export, is truncated or damaged, or cannot be exported here.
    """
    with opened(Path(path)) as database:
        return _timelines(str(path), database)


def _timelines(source: str, database: Database) -> list[Timeline]:
    if "StringIds" not in database.tables or not any(table.startswith(OURS) for table in database.tables):
        raise ProfileError(
            f"{database.name} is a database, but no export of Nsight Systems: it has none of its tables"
        )
    about = dict(row for table in ABOUT for row in database.rows(table, "name", "value"))
    remarks = [*_version(about), *_lost(database)]
    ranges, open_ranges = _ranges(database)
    began = _epoch(database, about)
    for own in ranges.values():
        _shift(own, began, source)
    work = _Work(database)
    found: list[tuple[int | None, int | None, Ops | None]] = list(work.devices(list(ranges)))
    if not found:
        remarks.append(NO_GPU)
        found = [(process, None, None) for process in sorted(ranges)] or [(None, None, None)]
    places = [(process, device) for process, device, _ in found]
    ranks, world_size = _ranks(database, source, places)
    if len({process for process, _ in places}) > 1 and ranks[0] is not None:
        remarks.append(BY_DEVICE)
    remarks += work.remarks
    if open_ranges:
        remarks.append(f"{open_ranges} NVTX ranges never ended, and are left out")
    others = ranges.keys() - {process for process, _ in places}
    if others:
        remarks.append(f"NVTX ranges of {len(others)} processes without work on a device are left out")
    timelines = []
    for rank, (process, device, ops) in zip(ranks, found, strict=True):
        _shift(ops, began, source)
        own = ranges.get(process, Ranges.of([], [], []))
        missing = [] if len(own) else [NO_RANGES]
        if ops is not None and np.all(ops.launched < 0):
            missing.append(NO_LAUNCHES)
        model = "" if device is None else _model(database, process, device)
        remarked = (*remarks, *missing)
        timelines.append(Timeline(source, rank, world_size, device, model, ops, own, began is not None, remarked))
    return timelines


def _version(about: dict[str, object]) -> Iterator[str]:
    schema = str(about.get("EXPORT_SCHEMA_VERSION", ""))
    parts = re.match(r"(\d+)\.(\d+)", schema)
    if parts and (int(parts[1]), int(parts[2])) > NEWEST:
        known, product = ".".join(map(str, NEWEST)), about.get("EXPORT_PRODUCT_VERSION", "?")
        yield (
            f"schema {schema} of nsys {product} is newer than {known}, the newest that is known here: what is new in it is "
            "not read"
        )


def _lost(database: Database) -> Iterator[str]:
    """The warnings of nsys that concern the numbers: events that it dropped or could not collect."""
    rows = database.rows("DIAGNOSTIC_EVENT", "severity", "text")
    texts = [
        str(text) for severity, text in rows if severity == ERROR or (severity == WARNING and LOST.search(str(text)))
    ]
    texts = list(dict.fromkeys(texts))
    for text in texts[:MOST]:
        yield f"nsys: {' '.join(text.split())[:200]}"
    if len(texts) > MOST:
        yield f"nsys: {len(texts) - MOST} more warnings of this kind"


def _epoch(database: Database, about: dict[str, object]) -> int | None:
    """ns to add to the export's times, so that they count from 1970; None: not known."""
    shift = str(about.get("EXPORT_PARAM_TIME_SHIFT", "0"))
    shifted = int(shift) if re.fullmatch(r"-?\d{1,18}", shift) else 0
    if about.get("EXPORT_PARAM_TIME_NORMALIZE") == "true":  # nsys has added it
        return -shifted
    began = database.integers("TARGET_INFO_SESSION_START_TIME", "utcEpochNs")[0]
    return int(began[0]) - shifted if len(began) and 0 < began[0] < 2**62 else None


def _model(database: Database, process: int, device: int) -> str:
    """The model of a device, as this process numbers it; "" if the export does not tell."""
    gpus = list(database.rows("TARGET_INFO_GPU", "id", "name", "cuDevice"))
    names = {number: str(name) for number, name, _ in gpus if name}
    numbers = {number if ordinal is None else ordinal: number for number, _, ordinal in gpus}
    own = database.rows("TARGET_INFO_CUDA_DEVICE", "pid", "cudaId", "gpuId")
    numbers |= {ordinal: number for pid, ordinal, number in own if pid == process & 0xFFFFFF}
    return next(iter(names.values())) if len(set(names.values())) == 1 else names.get(numbers.get(device), "")


# -- ranges ---------------------------------------------------------------------------------------------------


def _ranges(database: Database) -> tuple[dict[int, Ranges], int]:
    """({process: its NVTX ranges}, how many were still open when the session ended: those are left out)."""
    if NVTX not in database.tables:
        return {}, 0
    database.require(NVTX, "start", "end", "eventType", "globalTid")
    start, end, thread, number = database.integers(NVTX, "start", "end", "globalTid", "textId", where=NVTX_RANGES)
    registered = database.texts(np.unique(number).tolist())
    known: dict[str, int] = {}
    rows = zip(database.rows(NVTX, "text", where=NVTX_RANGES), number.tolist(), strict=True)
    names = (registered.get(code, "") if text is None else str(text) for (text,), code in rows)
    name = np.array([known.setdefault(_CALL.sub("", text), len(known)) for text in names], np.int32)
    ended = (end != NULL) & (end >= start)
    process, found = thread >> 24, {}
    for one in np.unique(process[ended]).tolist():
        chosen = np.flatnonzero(ended & (process == one))
        chosen = chosen[np.argsort(start[chosen], kind="stable")]
        found[one] = Ranges(start[chosen], end[chosen], name[chosen], tuple(known))
    return found, int(np.sum(~ended))


# -- ranks ----------------------------------------------------------------------------------------------------


def _ranks(
    database: Database, source: str, places: Sequence[tuple[int | None, int | None]]
) -> tuple[list[int | None], int | None]:
    """(rank of each place, world size); `places`: (process, device) of each timeline."""
    nodes, per_node = _torchrun(database)
    world = nodes * per_node if nodes and per_node else None
    if len({process for process, _ in places}) > 1:
        devices = [device for _, device in places]
        one_each = nodes == 1 and sorted(devices, key=str) == sorted(range(world or 0), key=str)
        return devices if one_each else [None] * len(places), world
    rank, size = _environment(database)
    if rank is None:
        rank = named_rank(source)
    if rank is None and world == 1:
        rank = 0
    return [rank] * len(places), size or world


def _environment(database: Database) -> tuple[int | None, int | None]:
    """(rank, world size) of the launcher under which nsys was started."""
    known: dict[str, str] = {}
    names = "|".join(name for pair in LAUNCHERS for name in pair)
    for text in database.blobs("TARGET_INFO_SYSTEM_ENV", "value", where="name = 'DeviceEnvironment'"):
        # Variables end with NUL in 2022, with ; in 2026.
        known |= dict(re.findall(rf"(?:^|[;\0])({names})=(\d{{1,7}})(?=[;\0]|$)", text.decode(errors="replace")))
    variables = "name LIKE 'PROCESS!_%:ENVIRONMENT!_VARIABLE' ESCAPE '!'"
    for (text,) in database.rows("META_DATA_CAPTURE", "value", where=variables):
        known |= dict(re.findall(rf'^({names})="?(\d{{1,7}})"?$', str(text)))
    for rank, world in LAUNCHERS:
        if rank in known:
            size = int(known.get(world, 0)) or None
            if size is None or int(known[rank]) < size:
                return int(known[rank]), size
    return None, None


def _torchrun(database: Database) -> tuple[int | None, int | None]:
    """(nodes, ranks per node) of the torchrun that nsys was started around, as far as its arguments tell."""
    rows = database.rows("META_DATA_CAPTURE", "name", "value", where="name LIKE 'PROCESS!_0:%' ESCAPE '!'")
    words = [str(value) for name, value in rows if re.fullmatch(r"PROCESS_0:(?:COMMAND|ARGUMENT_\d+)", str(name))]
    if not any(re.search(r"(?:^|/)torchrun$|^torch\.distributed\.(?:run|launch)$", word) for word in words):
        return None, None
    command, found = " ".join(words) + " ", []
    for option in (r"--nnodes", r"--nproc[-_]per[-_]node"):
        given = re.search(rf"{option}[= ](\S+) ", command)
        number = re.fullmatch(r"(\d{1,5})(?::\1)?", given[1]) if given else None
        found.append(int(number[1]) if number else None if given else 1)
    return found[0], found[1]


# -- the devices' work ----------------------------------------------------------------------------------------


class _Work:
    """All that the devices did, as columns in the order of the tables."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.remarks: list[str] = []
        self._names: list[str] = []
        parts = [part for part in (self._kernels(), self._copies(), self._fills(), self._graphs()) if part]
        columns = list(parts[0]) if parts else ()
        self._columns = {column: np.concatenate([part.pop(column) for part in parts]) for column in columns}
        self._unseen_graphs()

    def devices(self, marked: Sequence[int]) -> Iterator[tuple[int, int, Ops]]:
        """(process, device, its work), ordered; `marked`: the processes that have ranges."""
        if not self._columns:
            return
        process, device, call = (self._columns.pop(name) for name in ("globalPid", "deviceId", "correlationId"))
        process >>= 24
        if np.any(process == NULL):  # then it is of the only process that there is
            seen = [one for one in np.unique(process).tolist() if one != NULL] or marked
            process[process == NULL] = seen[0] if len(seen) == 1 else NULL
        self._columns["launched"] = self._launched(process, call)
        for one, of_process in _groups(process):
            for number, of_device in _groups(device[of_process]):
                columns = {name: column[of_process][of_device] for name, column in self._columns.items()}
                yield one, number, Ops.of(**columns, names=tuple(self._names))

    def _launched(self, process: np.ndarray, call: np.ndarray) -> np.ndarray:
        """int64 ns, when the host made each call of the CUDA runtime or driver; -1: not known."""
        start, thread, number = self._database.integers(RUNTIME, "start", "globalTid", "correlationId")
        thread >>= 24
        launched = np.full(len(call), -1)
        calls = dict(_groups(thread))
        for one, chosen in _groups(process):
            if one not in calls:
                continue
            known, begun, asked = number[calls[one]], start[calls[one]], call[chosen]
            if np.any(known[1:] < known[:-1]):
                order = np.argsort(known, kind="stable")
                known, begun = known[order], begun[order]
            place = np.minimum(np.searchsorted(known, asked), len(known) - 1)
            launched[chosen] = np.where((known[place] == asked) & (asked != NULL), begun[place], -1)
        return launched

    def _kernels(self) -> dict[str, np.ndarray]:
        there = self._database.tables.get(KERNEL, ())
        part, name = self._part(KERNEL, "demangledName" if "demangledName" in there else "shortName")
        if part:
            numbers = np.unique(name)
            known = self._database.texts(numbers.tolist())
            if nameless := [number for number in numbers.tolist() if number not in known]:
                count = np.sum(np.isin(name, nameless))
                self.remarks.append(f"{count} kernels whose names the export does not hold count as compute")
            self._names = [kernels.bare(known.get(number, f"kernel {number}")) for number in numbers.tolist()]
            part["name"] = np.searchsorted(numbers, name).astype(np.int32)
            part["kind"] = kernels.ops_kinds(self._names)[part["name"]]
        return part

    def _copies(self) -> dict[str, np.ndarray]:
        part, moved, copy, source, target = self._part(MEMCPY, "bytes", "copyKind", "srcKind", "dstKind")
        if part:
            copy = np.where((copy > 0) & (copy < len(COPIES)), copy, 0)
            at_host = np.where(np.isin(copy, FROM_HOST), source, np.where(np.isin(copy, TO_HOST), target, -1))
            part["pageable"] = np.select([at_host == PAGEABLE, at_host == PINNED], [1, 0], -1).astype(np.int8)
            part["moved"], part["copy"] = moved, copy.astype(np.int8)
            self._name(part, MEMORY, copy, *(f"[CUDA memcpy {text}]" for text in COPIES))
        return part

    def _fills(self) -> dict[str, np.ndarray]:
        part, moved = self._part(MEMSET, "bytes")
        if part:
            part["moved"] = moved
            self._name(part, MEMORY, 0, "[CUDA memset]")
        return part

    def _graphs(self) -> dict[str, np.ndarray]:
        (part,) = self._part(GRAPH)
        if part:
            self._name(part, UNKNOWN, 0, "[CUDA graph]")
            count = len(part["start"])
            self.remarks.append(
                f"{count} launches of CUDA graphs were traced whole: what ran in them is not known. {NODES}"
            )
        return part

    def _unseen_graphs(self) -> None:
        """Versions before 2023 trace graphs as wholes by leaving no work of theirs at all."""
        named = "value GLOB 'cudaGraphLaunch*' OR value GLOB 'cuGraphLaunch*'"
        (numbers,) = self._database.integers("StringIds", "id", where=named)
        if not len(numbers) or RUNTIME not in self._database.tables:
            return
        where = f"nameId IN ({', '.join(map(str, numbers.tolist()))})"
        (calls,) = self._database.integers(RUNTIME, "correlationId", where=where)
        if len(calls) and not np.isin(calls, self._columns.get("correlationId", ())).any():
            self.remarks.append(f"{len(calls)} launches of CUDA graphs, but what ran in them was not seen: {NODES}")

    def _name(self, part: dict[str, np.ndarray], kind: int, which: np.ndarray | int, *names: str) -> None:
        """`which`: of each entry the index into `names`."""
        count = len(part["start"])
        part["kind"] = np.full(count, kind, np.int8)
        part["name"] = np.full(count, len(self._names) + which, np.int32)
        self._names += names

    def _part(self, table: str, *more: str) -> list:
        """[columns as all work has them, *the table's own]; no columns if there is no such work."""
        columns = [np.empty(0, np.int64) for _ in (*PLACE, *more)]
        if table in self._database.tables:
            self._database.require(table, "start", "end", "deviceId", *more[:1])
            columns = self._database.integers(table, *PLACE, *more)
        whole = columns[1] >= columns[0]
        if not np.all(whole):
            self.remarks.append(f"{np.sum(~whole)} events of {table} end before they start, and are left out")
            columns = [column[whole] for column in columns]
        count = len(columns[0])
        part = dict(zip(PLACE, columns, strict=False)) if count else {}
        if part:
            part |= {"moved": np.full(count, -1), "copy": np.zeros(count, np.int8)}
            part["pageable"] = np.full(count, -1, np.int8)
        return [part, *columns[len(PLACE) :]]


def _groups(keys: np.ndarray) -> Iterator[tuple[int, slice | np.ndarray]]:
    """(key, which entries have it), keys rising; all of ten million entries are a slice, which copies nothing."""
    if len(keys) and keys.min() == keys.max():
        yield int(keys[0]), slice(None)
        return
    for key in np.unique(keys).tolist():
        yield key, np.flatnonzero(keys == key)


def _shift(one: Ops | Ranges | None, by: int | None, source: str) -> None:
    """Count every time from so many ns earlier, in place: ten million are not copied."""
    for times in (getattr(one, name, None) for name in ("start", "end", "launched")):
        if times is None or not len(times):
            continue
        if max(abs(int(times.min())), abs(int(times.max()))) + abs(by or 0) >= 2**63:
            raise ProfileError(f"{source}: a time lies beyond the year 2262, which no clock of a run shows")
        if by:
            np.add(times, by, out=times, where=times != -1)

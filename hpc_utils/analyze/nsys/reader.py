"""Timelines of an Nsight Systems export: one for each process and device that worked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ..timeline import COMMUNICATION, MEMORY, NOTHING, UNKNOWN, Ops, ProfileError, Ranges, Timeline, kernels
from ..timeline.breakdown import NO_COMMUNICATION
from . import identity, nvtx, report, session
from .database import Database

KERNEL, GRAPH = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
MEMCPY, MEMSET = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
PLACE = ("start", "end", "globalPid", "deviceId", "streamId", "correlationId")

# ENUM_CUDA_MEMCPY_OPER, as `nsys stats` calls them; which of them have one end in the host's memory.
COPIES = (
    "unknown", "Host-to-Device", "Device-to-Host", "Host-to-Array", "Array-to-Host", "Array-to-Array", "Array-to-Device",
    "Device-to-Array", "Device-to-Device", "Host-to-Host", "Peer-to-Peer", "Unified Host-to-Device",
    "Unified Device-to-Host", "Unified Device-to-Device",
)  # fmt: skip
FROM_HOST, TO_HOST = (1, 3), (2, 4)
PAGEABLE, PINNED = 0, 1  # ENUM_CUDA_MEM_KIND

NOBODY = -1  # a process that is not known
LATEST = 2**63  # ns: beyond, int64 holds none

NODES = "Collect with --cuda-graph-trace=node"
NO_GPU = "no events of a GPU: nothing is known of a device's work"
NO_RANGES = (
    "no NVTX ranges: phases and loader wait are not known (nsys before 2024.3 does not see those of the Python package "
    "nvtx from 0.2.12 on)"
)
NO_LAUNCHES = "when the host launched its work is not known: the export has no calls of the CUDA runtime"


def read(path: Path | str) -> list[Timeline]:
    """What an export (`.sqlite`) or a report (`.nsys-rep`, where there is an nsys) holds, ordered by process and device.

    Without events of a GPU there is one timeline a process that has NVTX ranges, or one at all: without `ops`. What
    is merely missing is in the remarks.

    Raises:
        ProfileError: the file is no such export, is truncated or damaged, or cannot be exported here.
    """
    path = Path(path)
    with report.exported(path) as file, Database(file) as database:
        return _timelines(str(path), database)


def _timelines(source: str, database: Database) -> list[Timeline]:
    remarks = [*session.check(database), *session.lost(database)]
    ranges, open_ranges = nvtx.ranges(database)
    began = session.epoch(database)
    for own in ranges.values():
        _shift(own, began, source)
    work = _Work(database)
    devices = session.Devices(database)
    found: list[tuple[int | None, int | None, Ops | None]] = list(work.devices(list(ranges)))
    if not found:
        remarks.append(NO_GPU)
        found = [(process, None, None) for process in sorted(ranges)] or [(None, None, None)]
    ranks, world_size, about = identity.of(database, source, [(process, device) for process, device, _ in found])
    remarks += [*about, *work.remarks]
    if open_ranges:
        remarks.append(f"{open_ranges} NVTX ranges never ended, and are left out")
    others = ranges.keys() - {process for process, _, _ in found}
    if others:
        remarks.append(f"NVTX ranges of {len(others)} processes without work on a device are left out")

    several = len(found) > 1 or (world_size or 1) > 1
    timelines = []
    for rank, (process, device, ops) in zip(ranks, found, strict=True):
        _shift(ops, began, source)
        own = ranges.get(process, NOTHING)
        said = [*remarks, *([] if len(own) else [NO_RANGES])]
        if ops is not None and np.all(ops.launched < 0):
            said.append(NO_LAUNCHES)
        if several and ops is not None and not np.any(ops.kind == COMMUNICATION):
            said.append(NO_COMMUNICATION)
        model = "" if device is None else devices.model(process & 0xFFFFFF, device)
        timelines.append(
            Timeline(
                source, "nsys", rank, world_size, device, model, ops, own,
                aligned=began is not None, remarks=tuple(said),
            )
        )  # fmt: skip
    return timelines


class _Work:
    """All that the devices did, as columns in the order of the tables."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.remarks: list[str] = []
        self._names: list[str] = []
        parts = [part for part in (self._kernels(), self._copies(), self._fills(), self._graphs()) if part]
        self._columns = {
            column: np.concatenate([part.pop(column) for part in parts])
            for column in (list(parts[0]) if parts else ())
        }
        self._unseen_graphs()

    def devices(self, marked: Sequence[int]) -> Iterator[tuple[int, int, Ops]]:
        """(process, device, its work), ordered; `marked`: the processes that have ranges."""
        if not self._columns:
            return
        process, device, call = (self._columns.pop(name) for name in ("globalPid", "deviceId", "correlationId"))
        process >>= 24
        if np.any(process == NOBODY):  # `globalPid` may be NULL: then of the only process that there is
            seen = [one for one in np.unique(process).tolist() if one != NOBODY] or marked
            process[process == NOBODY] = seen[0] if len(seen) == 1 else NOBODY
        calls = _Calls(self._database)
        for one, chosen in _groups(process):
            self._columns["launched"][chosen] = calls.of(one, call[chosen])
        del calls, call
        for one, of_process in _groups(process):
            for number, of_device in _groups(device[of_process]):
                chosen = (
                    of_process if isinstance(of_device, slice) else np.arange(len(process))[of_process][of_device]
                )
                columns = {name: column[chosen] for name, column in self._columns.items()}
                yield one, number, Ops.of(**columns, names=tuple(self._names))

    def _kernels(self) -> dict[str, np.ndarray]:
        there = self._database.tables.get(KERNEL, ())
        part, (name,) = self._part(KERNEL, "demangledName" if "demangledName" in there else "shortName")
        if part:
            numbers = np.unique(name)
            known = self._database.texts(numbers.tolist())
            if nameless := [number for number in numbers.tolist() if number not in known]:
                count = np.sum(np.isin(name, nameless))
                self.remarks.append(f"{count} kernels whose names the export does not hold count as compute")
            self._names = [kernels.bare(known.get(number, f"kernel {number}")) for number in numbers.tolist()]
            part["name"] = np.searchsorted(numbers, name).astype(np.int32)
            part["kind"] = kernels.names_of_kind(self._names)[part["name"]]
        return part

    def _copies(self) -> dict[str, np.ndarray]:
        part, (moved, copy, source, target) = self._part(MEMCPY, "bytes", "copyKind", "srcKind", "dstKind")
        if part:
            copy = np.where((copy > 0) & (copy < len(COPIES)), copy, 0)
            at_host = np.where(np.isin(copy, FROM_HOST), source, np.where(np.isin(copy, TO_HOST), target, -1))
            part["pageable"] = np.select([at_host == PAGEABLE, at_host == PINNED], [1, 0], -1).astype(np.int8)
            part["moved"], part["copy"] = moved, copy.astype(np.int8)
            part["name"] = (len(self._names) + copy).astype(np.int32)
            part["kind"] = np.full(len(copy), MEMORY, np.int8)
            self._names += [f"[CUDA memcpy {text}]" for text in COPIES]
        return part

    def _fills(self) -> dict[str, np.ndarray]:
        part, (moved,) = self._part(MEMSET, "bytes")
        if part:
            part["moved"] = moved
            self._all(part, MEMORY, "[CUDA memset]")
        return part

    def _graphs(self) -> dict[str, np.ndarray]:
        part, _ = self._part(GRAPH)
        if part:
            self._all(part, UNKNOWN, "[CUDA graph]")
            self.remarks.append(
                f"{len(part['start'])} launches of CUDA graphs were traced whole: what ran in them is not known. {NODES}"
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

    def _all(self, part: dict[str, np.ndarray], kind: int, name: str) -> None:
        part["kind"] = np.full(len(part["start"]), kind, np.int8)
        part["name"] = np.full(len(part["start"]), len(self._names), np.int32)
        self._names.append(name)

    def _part(self, table: str, *more: str) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
        """(columns as all work has them, the table's own); no columns if there is no such work."""
        if table not in self._database.tables:
            return {}, [np.empty(0, np.int64) for _ in more]
        self._database.need(table, "start", "end", "deviceId", *more[:1])
        columns = self._database.integers(table, *PLACE, *more)
        whole = columns[1] >= columns[0]
        if not np.all(whole):
            self.remarks.append(f"{np.sum(~whole)} events of {table} end before they start, and are left out")
            columns = [column[whole] for column in columns]
        count = len(columns[0])
        if not count:
            return {}, [np.empty(0, np.int64) for _ in more]
        part = dict(zip(PLACE, columns, strict=False))
        part["stream"] = part.pop("streamId").astype(np.int32)
        part |= {"launched": np.full(count, -1), "moved": np.full(count, -1)}
        part |= {"copy": np.zeros(count, np.int8), "pageable": np.full(count, -1, np.int8)}
        return part, columns[len(PLACE) :]


class _Calls:
    """When the host called the CUDA runtime and driver, by process and correlation id."""

    def __init__(self, database: Database) -> None:
        start, thread, call = database.integers(RUNTIME, "start", "globalTid", "correlationId")
        thread >>= 24
        self._of = {}
        for process, chosen in _groups(thread):
            own, begun = call[chosen], start[chosen]
            if np.any(own[1:] < own[:-1]):
                order = np.argsort(own, kind="stable")
                own, begun = own[order], begun[order]
            self._of[process] = own, begun

    def of(self, process: int, calls: np.ndarray) -> np.ndarray:
        """int64 ns, when each of `calls` began; -1: not known."""
        known, begun = self._of.get(process, (np.empty(0, np.int64),) * 2)
        if not len(known):
            return np.full(len(calls), -1)
        place = np.minimum(np.searchsorted(known, calls), len(known) - 1)
        return np.where((known[place] == calls) & (calls != -1), begun[place], -1)


def _groups(keys: np.ndarray) -> Iterator[tuple[int, slice | np.ndarray]]:
    """(key, which entries have it), keys rising; all of ten million entries are no copy."""
    if not len(keys):
        return
    if keys.min() == keys.max():
        yield int(keys[0]), slice(None)
        return
    for key in np.unique(keys).tolist():
        yield key, np.flatnonzero(keys == key)


def _shift(one: Ops | Ranges | None, by: int | None, source: str) -> None:
    """Count every time from so many ns earlier: in place, where ten million are no second copy."""
    for times in (getattr(one, name, None) for name in ("start", "end", "launched")):
        if times is None or not len(times):
            continue
        if max(abs(int(times.min())), abs(int(times.max()))) + abs(by or 0) >= LATEST:
            raise ProfileError(f"{source}: a time lies beyond the year 2262, which no clock of a run says")
        if by:
            np.add(times, by, out=times, where=times != -1)

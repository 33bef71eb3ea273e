"""Traces of `torch.profiler` (Kineto's Chrome traces) as timelines.

The category alone decides what a device's work is (kernel, gpu_memcpy, gpu_memset; Kernel, Memcpy, Memset before PyTorch
1.12): the *host* event of a Triton kernel has a stream too, and would count twice. Times are in us with three decimals, or
in whole us in older versions. They become integer ns exactly, even where a float cannot hold them (ns since the epoch).
"""

from __future__ import annotations

import functools
import gzip
import re
import zlib
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

from . import kernels, phases
from .timeline import (
    COMMUNICATION,
    MEMORY,
    ON_DEVICE,
    PEER,
    TO_DEVICE,
    TO_HOST,
    Ops,
    ProfileError,
    Ranges,
    Timeline,
    first_calls,
)

SCHEMA = 1  # Kineto's schemaVersion
NO_KERNELS = "the host called the GPU, but its work was not recorded: was another profiler attached?"
NO_RANGES = "no ranges of the program (record_function, ProfilerStep): phases and loader wait are not known"

# Categories, now and before PyTorch 1.12. HIP's calls are "cuda_runtime" too.
_CATEGORIES = {
    "kernels": ("kernel", "Kernel"),
    "copies": ("gpu_memcpy", "gpu_memset", "Memcpy", "Memset"),
    "calls": ("cuda_runtime", "cuda_driver", "Runtime", "xpu_runtime", "xpu_driver"),
    "operators": ("cpu_op", "Operator"),
    "ranges": ("user_annotation",),
}
# Operators that count as ranges: collectives of the host, and phases where a trace has no annotations.
_RANGE = re.compile(r"(?:gloo|nccl|mpi|ucc|xccl):|Optimizer\.")
_COLLECTIVE = "record_param_comms"  # the operator around a collective's launch, with its group and size
_COPIES = [
    (r"HtoD|HostToDevice|Host -> Device", TO_DEVICE),
    (r"DtoH|DeviceToHost|Device -> Host", TO_HOST),
    (r"PtoP|PeerToPeer", PEER),
    (r"DtoD|DeviceToDevice|Device -> Device", ON_DEVICE),
]
# Bytes of a c10::ScalarType as record_param_comms writes it
_SIZES = {
    "Byte": 1, "Char": 1, "Bool": 1, "Short": 2, "Half": 2, "BFloat16": 2, "Int": 4, "Float": 4, "Long": 8, "Double": 8,
    "ComplexHalf": 4, "ComplexFloat": 8, "ComplexDouble": 16, "Float8_e4m3fn": 1, "Float8_e5m2": 1,
    "Float8_e4m3fnuz": 1, "Float8_e5m2fnuz": 1, "UInt16": 2, "UInt32": 4, "UInt64": 8,
}  # fmt: skip
_EXACT = 2.0**43  # us up to which a float resolves ns
_EPOCH = 10**18  # ns, in 2001: later times count from 1970

Time = TypeVar("Time")


class _Args(msgspec.Struct, gc=False, frozen=True):
    device: Any = None
    correlation: Any = None
    bytes: Any = None
    group: Any = msgspec.field(name="Process Group Name", default=None)
    sent: Any = msgspec.field(name="In msg nelems", default=None)
    received: Any = msgspec.field(name="Out msg nelems", default=None)
    dtype: Any = None


class _Event(msgspec.Struct, Generic[Time], gc=False):
    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: Time = 0
    dur: Time = 0
    pid: Any = None
    tid: Any = None
    args: _Args = _Args()


class _Trace(msgspec.Struct, Generic[Time], gc=False, kw_only=True):
    schema: int | None = msgspec.field(name="schemaVersion", default=None)
    devices: list[dict[str, Any]] = msgspec.field(name="deviceProperties", default=[])
    distributed: dict[str, Any] = msgspec.field(name="distributedInfo", default={})
    base: int = msgspec.field(name="baseTimeNanoseconds", default=0)
    events: list[_Event[Time]] = msgspec.field(name="traceEvents")


# Made here: two threads that make the first decoder of a type at once crash (msgspec 0.22).
_ROUNDED, _DECIMAL = (msgspec.json.Decoder(_Trace[kind]) for kind in (int | float, Decimal))


def read(path: str | Path) -> list[Timeline]:
    """The trace of one rank (.json or .json.gz), one timeline per device, or one without `ops` if it has no GPU events.

    Missing data is named in the remarks.

    Raises:
        ProfileError: the file is no trace, or is not complete.
    """
    try:
        data = Path(path).read_bytes()
        text = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
        trace, events = _decoded(text, _ROUNDED)
        # Times since a base are small enough for a float.
        if not trace.base and any(
            isinstance(one.ts, float) and one.ts >= _EXACT for own in events.values() for one in own
        ):
            trace, events = _decoded(text, _DECIMAL)
        return _timelines(str(path), trace, events)
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (EOFError, zlib.error, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ProfileError(
            f"{path}: no complete trace of torch.profiler ({error}): was the run killed while it wrote it?"
        ) from None


def _decoded(text: bytes, decoder: msgspec.json.Decoder) -> tuple[_Trace, dict[str, list[_Event]]]:
    """The trace, and its events by the names of `_CATEGORIES`."""
    try:
        trace = decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Kineto has written `inf` and `nan` for bandwidths of copies without a duration, and names cut inside a letter.
        text = text.decode("utf-8", "replace").encode()
        trace = decoder.decode(re.sub(rb"(:\s*)-?(?:inf(?:inity)?|nan)\b", rb"\1null", text, flags=re.I))
    events: dict[str, list[_Event]] = {name: [] for name in _CATEGORIES}
    kinds = {category: events[name] for name, categories in _CATEGORIES.items() for category in categories}
    for event in trace.events:
        if event.ph == "X" and (own := kinds.get(event.cat)) is not None:
            own.append(event)
    if trace.schema is None and not any(events.values()):
        raise ValueError("it has no events of torch.profiler")
    return trace, events


def _timelines(source: str, trace: _Trace, events: dict[str, list[_Event]]) -> list[Timeline]:
    remarks = []
    if trace.schema != SCHEMA:
        remarks.append(f"schemaVersion is {trace.schema}, where {SCHEMA} is known: numbers may be missing")
    marks = events["ranges"] + [event for event in events["operators"] if _is_range(event.name)]
    ranges = Ranges.of(*_spans(marks, trace.base), [one.name for one in marks])
    if not len(ranges):
        remarks.append(NO_RANGES)
    devices = _devices(trace, events) if events["kernels"] or events["copies"] else {None: None}
    if None in devices and events["calls"]:
        remarks.append(NO_KERNELS)
    shown = [ranges, *filter(None, devices.values())]
    aligned = bool(trace.base) or any(len(one) and one.start[0] > _EPOCH for one in shown)
    rank, world_size = (trace.distributed.get(name) for name in ("rank", "world_size"))
    names = {one.get("id"): str(one.get("name", "")) for one in trace.devices}
    return [
        Timeline(source, rank, world_size, device, names.get(device, ""), ops, ranges, aligned, tuple(remarks))
        for device, ops in devices.items()
    ]


@functools.lru_cache(maxsize=65536)
def _is_range(name: str) -> bool:
    return bool(_RANGE.match(name)) or phases.phase_of(name) is not None


def _ns(values: list[float] | list[Decimal]) -> np.ndarray:
    """us to int64 ns."""
    if values and isinstance(values[0], Decimal):
        return np.array([int((value * 1000).to_integral_value()) for value in values], np.int64)
    times = np.array(values)
    return times * 1000 if times.dtype.kind == "i" else np.rint(times * 1000).astype(np.int64)


def _spans(events: Sequence[_Event], base: int) -> tuple[np.ndarray, np.ndarray]:
    """(starts, ends) in ns on the timeline's clock."""
    start = _ns([event.ts for event in events]) + base
    return start, start + np.maximum(_ns([event.dur for event in events]), 0)


def _devices(trace: _Trace, events: dict[str, list[_Event]]) -> dict[int, Ops]:
    """{device: its work}."""
    work, calls = [*events["kernels"], *events["copies"]], events["calls"]
    start, end = _spans(work, trace.base)
    known: dict[str, int] = {}
    name = np.array([known.setdefault(event.name, len(known)) for event in work], np.int32)
    kind = kernels.ops_kinds(list(known))[name]
    copy, pageable = (np.array(each)[name] for each in zip(*map(_copy, known), strict=True))
    moved = _integers(event.args.bytes for event in work)
    first = len(events["kernels"])
    copy[:first], pageable[:first], moved[:first], kind[first:] = 0, -1, -1, MEMORY
    asked = _spans(calls, trace.base)[0]
    ids = (_integers(one.args.correlation or None for one in own) for own in (work, calls))
    call = first_calls(*ids, asked)
    launched = np.append(asked, -1)[call]
    group, groups = _collectives(trace, events, np.flatnonzero(kind == COMMUNICATION), launched, call, moved)
    device = np.array([event.pid if event.args.device is None else event.args.device for event in work])
    columns = {
        "start": start,
        "end": end,
        "kind": kind,
        "name": name,
        "launched": launched,
        "moved": moved,
        "copy": copy,
    }
    columns |= {"pageable": pageable, "group": group}
    names = tuple(map(kernels.bare, known))
    return {
        one: Ops.of(
            **{column: values[device == one] for column, values in columns.items()}, names=names, groups=groups
        )
        for one in np.unique(device).tolist()
    }


def _collectives(
    trace: _Trace, events: dict[str, list[_Event]], which: np.ndarray, launched: np.ndarray, call: np.ndarray, moved: np.ndarray
) -> tuple[np.ndarray, tuple[str, ...]]:  # fmt: skip
    """(index of each operation's process group, the groups' names); writes the bytes of collectives into `moved`.

    The kernel has both, or the operator that launched it does; without either, the group is the only one that there is.
    """
    operators = sorted((one for one in events["operators"] if one.name == _COLLECTIVE), key=lambda one: one.ts)
    begun, ended = _spans(operators, trace.base)
    threads = np.array([str(one.tid) for one in operators], object)
    own = {thread: np.flatnonzero(threads == thread) for thread in set(threads)}
    configured = trace.distributed.get("pg_config") or []
    only = configured[0].get("pg_name") if len(configured) == 1 else None
    group, groups = np.full(len(moved), -1), {}
    for place in which.tolist():
        about = events["kernels"][place].args
        if about.group is None and call[place] >= 0:
            of_thread = own.get(str(events["calls"][call[place]].tid), np.empty(0, int))
            before = int(np.searchsorted(begun[of_thread], launched[place], side="right")) - 1
            if before >= 0 and launched[place] < ended[of_thread[before]]:
                about = operators[of_thread[before]].args
        elements = max(about.sent or -1, about.received or -1)
        if about.dtype in _SIZES and elements >= 0:
            moved[place] = elements * _SIZES[about.dtype]
        if (name := only if about.group is None else about.group) is not None:
            group[place] = groups.setdefault(str(name), len(groups))
    return group, tuple(groups)


@functools.lru_cache(maxsize=65536)
def _copy(name: str) -> tuple[int, int]:
    """(TO_DEVICE and so on, or 0; pageable: 1, 0 or -1) of "Memcpy HtoD (Pageable -> Device)"."""
    kind = next((number for pattern, number in _COPIES if re.search(pattern, name)), 0)
    with_host = kind in (TO_DEVICE, TO_HOST)
    return kind, 1 if with_host and "Pageable" in name else 0 if with_host and "Pinned" in name else -1


def _integers(values: Iterable[int | None]) -> np.ndarray:
    """int64; -1: not known."""
    return np.array([-1 if value is None else value for value in values], np.int64)

"""Traces of `torch.profiler` (Kineto's Chrome traces) as timelines.

The category alone decides what a device's work is (kernel, gpu_memcpy, gpu_memset; Kernel, Memcpy, Memset before PyTorch
1.12): the *host* event of a Triton kernel has a stream too, and would count twice. Times are in us with three decimals, or
in whole us in older versions. They become integer ns exactly; only times with decimals that count from 1970, as PyTorch 2.3
wrote them, are rounded to 0.25 us, which is a float's resolution there.

Without a GPU, the host's operators are the work, and each starts when it is launched.
"""

from __future__ import annotations

import functools
import gzip
import re
import zlib
from bisect import bisect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from . import intervals, kernels, phases
from .phases import Phase
from .timeline import COMMUNICATION, MEMORY, NO_KERNELS, Events, ProfileError, Timeline, coded, first_calls
from .verdict import LONG_GAP

NO_RANGES = "no ranges of the program (record_function, ProfilerStep): phases and loader wait are not known"

# Categories, now and before PyTorch 1.12. HIP's calls are "cuda_runtime" too.
_CATEGORIES = {
    "kernels": ("kernel", "Kernel"),
    "copies": ("gpu_memcpy", "gpu_memset", "Memcpy", "Memset"),
    "calls": ("cuda_runtime", "cuda_driver", "Runtime", "xpu_runtime", "mtia_runtime", "privateuse1_runtime"),
    "operators": ("cpu_op", "Operator"),
    "ranges": ("user_annotation",),
    "frames": ("python_function",),
}
_WIRE = re.compile(r"(?:gloo|nccl|mpi|ucc|xccl):")  # the host's collectives, on threads of the process group
# Around hooks, which may wait, and around calls of a process group.
_AROUND = re.compile(r"autograd::engine::evaluate_function|_?c10d|record_param_comms|RegisterPostBackward")
_COLLECTIVE = "record_param_comms"  # the operator around a collective's launch, with its group
_LAUNCH = re.compile(r"launch|memcpy|memset|runfunction", re.I)  # calls that give a GPU work
_ON_GPU = re.compile(r"::_?(?:cuda|cudnn(?!_is)|miopen)|^nccl:")  # operators and ranges of a GPU only
_COPY = re.compile(r"(HtoD|HostToDevice)|(DtoH|DeviceToHost)")  # TO_DEVICE, TO_HOST
_EPOCH = 10**18  # ns, in 2001: later times count from 1970


class _Args(msgspec.Struct, gc=False, frozen=True):
    device: int = 0
    correlation: int = -1
    group: str | None = msgspec.field(name="Process Group Name", default=None)
    external: str | int | None = msgspec.field(name="External id", default=None)
    dtype: Any = None
    types: Any = msgspec.field(name="Input type", default=None)
    collective: str | None = msgspec.field(name="Collective name", default=None)


class _Event(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: int | float = 0
    dur: int | float = 0
    tid: int | str = 0
    args: _Args = _Args()


class _Group(msgspec.Struct):
    pg_name: str = ""


class _Distributed(msgspec.Struct):
    rank: int | None = None
    world_size: int | None = None
    pg_config: list[_Group] = []


class _Device(msgspec.Struct):
    id: int
    name: str = ""


class _Trace(msgspec.Struct, gc=False, kw_only=True):
    devices: list[_Device] = msgspec.field(name="deviceProperties", default=[])
    distributed: _Distributed = msgspec.field(name="distributedInfo", default_factory=_Distributed)
    base: int = msgspec.field(name="baseTimeNanoseconds", default=0)
    events: list[_Event] = msgspec.field(name="traceEvents")

    def of(self, kind: str) -> list[_Event]:
        """The events of a kind of `_CATEGORIES`."""
        return [event for event in self.events if event.cat in _CATEGORIES[kind] and event.ph == "X"]

    def spans(self, events: Sequence[_Event]) -> tuple[np.ndarray, np.ndarray]:
        """(starts, ends) in ns on the timeline's clock."""
        start, length = (_ns([getattr(event, name) for event in events]) for name in ("ts", "dur"))
        return start + self.base, start + self.base + length


_DECODER = msgspec.json.Decoder(_Trace)


def read_trace(path: str | Path) -> list[Timeline]:
    """The trace of one rank (.json or .json.gz), one timeline per device, or one without `ops` if it has no GPU events.

    Missing data is named in the remarks.

    Raises:
        ProfileError: the file is no trace, or is not complete.
    """
    try:
        data = Path(path).read_bytes()
        return _timelines(str(path), _decoded(gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data))
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (EOFError, zlib.error, ValueError, OverflowError, RecursionError) as error:
        raise ProfileError(
            f"{path}: no complete trace of torch.profiler ({error}): was the run killed while it wrote it?"
        ) from None


def _decoded(text: bytes) -> _Trace:
    try:
        return _DECODER.decode(text)
    except ValueError:
        # Kineto has written `inf` and `nan` for bandwidths of copies without a duration, and names cut inside a letter.
        text = text.decode("utf-8", "replace").encode()
        return _DECODER.decode(re.sub(rb"(:\s*)-?(?:inf(?:inity)?|nan)\b", rb"\1null", text, flags=re.I))


def _timelines(source: str, trace: _Trace) -> list[Timeline]:
    operators = trace.of("operators")
    calls = trace.of("calls")
    marks = trace.of("ranges") + [event for event in operators if _is_range(event.name)]
    ranges = phases.ranges(*trace.spans(marks), [event.name for event in marks], [event.tid for event in marks])
    naming = marks + [event for event in operators if event.args.collective]
    contexts = Events.ranges(*trace.spans(naming), [event.args.collective or event.name for event in naming])
    devices = _devices(trace, operators, calls)
    devices = {number: kernels.named_collectives(ops, contexts) for number, ops in devices.items()}
    names = {device.id: device.name for device in trace.devices}
    if not (devices or operators or calls or marks):
        raise ValueError("it has no events of torch.profiler")
    launched = any(_LAUNCH.search(event.name) for event in calls) or any(
        _ON_GPU.search(event.name) for event in operators + marks
    )
    if operators and not (devices or launched):
        devices, names = {None: _host(trace, operators, ranges)}, {None: "CPU"}
    remarks = []
    if not len(ranges):
        remarks.append(NO_RANGES)
    if not devices and (launched or calls):
        remarks.append(NO_KERNELS)
    threads = {event.tid for event in calls or operators}
    longer = [
        event
        for event in marks + operators + calls + trace.of("frames")
        if event.tid in threads and 2000 * event.dur >= LONG_GAP
    ]
    host = Events.ranges(*trace.spans(longer), [re.sub(" object at 0x\\w+", "", event.name) for event in longer])
    event_sets = [ranges, *devices.values()]
    aligned = bool(trace.base) or any(len(events) and events.start[0] > _EPOCH for events in event_sets)
    distributed = trace.distributed
    return [
        Timeline(
            source,
            distributed.rank,
            distributed.world_size,
            device,
            names.get(device, ""),
            ops,
            ranges,
            aligned,
            host,
            tuple(remarks),
        )
        for device, ops in (devices or {None: None}).items()
    ]


@functools.lru_cache(maxsize=65536)
def _is_range(name: str) -> bool:
    """Whether an operator marks a range: a collective of the host, or a phase in a trace without annotations."""
    return bool(_WIRE.match(name)) or phases.phase_of(name) is not None


def _ns(values: list[int | float]) -> np.ndarray:
    """us to int64 ns."""
    times = np.array(values) * 1000
    return times if times.dtype.kind == "i" else np.rint(times).astype(np.int64)


def _devices(trace: _Trace, operators: list[_Event], calls: list[_Event]) -> dict[int, Events]:
    """{device: its work}."""
    computed = trace.of("kernels")
    copied = trace.of("copies")
    work = computed + copied
    start, end = trace.spans(work)
    types = {event.args.external: event.args.types for event in operators if event.args.types}
    name, names = coded(_name(event, types) for event in work)
    call_times, _ = trace.spans(calls)
    ids = (np.array([event.args.correlation for event in events], np.int64) for events in (work, calls))
    call = first_calls(*ids, call_times)
    columns = {
        "start": start,
        "end": end,
        "name": name,
        "launched": np.append(call_times, -1)[call],
        "kind": kernels.ops_kinds(names)[name],
    }
    columns["kind"][len(computed) :] = MEMORY
    copies = [(0, -1)] * len(computed) + [_copy(event.name) for event in copied]
    columns["copy"], columns["pageable"] = np.array(copies, np.int8).reshape(-1, 2).T
    columns["group"], groups = _collectives(trace, operators, calls, work, call, columns)
    device = np.array([event.args.device for event in work])
    return {
        number: Events.of(
            **{key: values[device == number] for key, values in columns.items()}, names=names, groups=groups
        )
        for number in np.unique(device).tolist()
    }


def _name(event: _Event, types: Mapping[Any, Any]) -> str:
    """Of a kernel; a generic one of a collective has its name. A precision that the name lacks, which the operator's types (by
    external id) have, is added as a template argument."""
    kind = kernels.collective(event.args.collective or "")
    name = f"nccl:{kind}" if kind and kernels.is_generic(event.name) else event.name
    precision = kernels.precision(str(event.args.dtype or types.get(event.args.external, "")))
    return name if kernels.precision(name) or not precision else f"{name}<{precision}>"


def _host(trace: _Trace, operators: list[_Event], ranges: Events) -> Events:
    """The work of a run without a GPU: collectives, and the outermost operators of each thread, outside of data ranges.

    Names have no spaces, at which `kernels.short` cuts; those of the optimizer's operators begin with `optimizer: `.
    """
    wires = [event for event in trace.of("ranges") if _WIRE.match(event.name)]
    work = []
    until = {}
    for event in sorted(operators + wires, key=lambda event: (event.ts, -event.dur)):
        if not _AROUND.match(event.name) and event.ts > until.get(event.tid, 0):
            work.append(event)
            until[event.tid] = event.ts + event.dur - 5e-4  # half of the clock's resolution: floats are rounded
    start, end = trace.spans(work)
    updating = intervals.holds(start, phases.windows(ranges, Phase.OPTIMIZER))
    names = [
        f"{'optimizer: ' * (inside and not _WIRE.match(event.name))}{event.name.replace(' ', '-')}"
        for event, inside in zip(work, updating.tolist(), strict=True)
    ]
    ops = Events.ranges(start, end, names)
    kind = kernels.ops_kinds(ops.names)[ops.name]
    loading = intervals.holds(ops.start, phases.windows(ranges, Phase.DATA))
    return replace(ops, launched=ops.start, kind=kind).where(~loading | (kind == COMMUNICATION))


def _collectives(
    trace: _Trace, operators: list[_Event], calls: list[_Event], work: list[_Event], call: np.ndarray,
    columns: dict[str, np.ndarray],
) -> tuple[np.ndarray, tuple[str, ...]]:  # fmt: skip
    """(index of each operation's process group, the groups' names).

    The kernel has it, or the operator that launched it does; without either, it is the only one that there is.
    """
    threads: dict[int | str, list[_Event]] = {}
    for event in sorted((event for event in operators if event.name == _COLLECTIVE), key=lambda event: event.ts):
        threads.setdefault(event.tid, []).append(event)
    configured = trace.distributed.pg_config
    only = configured[0].pg_name if len(configured) == 1 else None
    group = np.full(len(work), -1)
    groups = {}
    for place in np.flatnonzero(columns["kind"] == COMMUNICATION).tolist():
        args = work[place].args
        if args.group is None and call[place] >= 0:
            launch = calls[call[place]]
            thread_events = threads.get(launch.tid, [])
            before = (
                thread_events[bisect(thread_events, launch.ts, key=lambda event: event.ts) - 1]
                if thread_events
                else launch
            )
            if before.ts <= launch.ts < before.ts + before.dur:
                args = before.args
        if (name := only if args.group is None else args.group) is not None:
            group[place] = groups.setdefault(name, len(groups))
    return group, tuple(groups)


def _copy(name: str) -> tuple[int, int]:
    """(TO_DEVICE, TO_HOST or 0; pageable: 1, 0 or -1) of "Memcpy HtoD (Pageable -> Device)"."""
    match = _COPY.search(name)
    pageable = 1 if "Pageable" in name else 0 if "Pinned" in name else -1
    return match.lastindex if match else 0, pageable

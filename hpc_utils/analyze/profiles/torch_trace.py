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
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from . import kernels, phases
from .timeline import COMMUNICATION, MEMORY, ON_DEVICE, PEER, TO_DEVICE, TO_HOST, Ops, ProfileError, Ranges, Timeline

SCHEMA = 1  # Kineto's schemaVersion
NO_KERNELS = "the host called the GPU, but its work was not recorded: was another profiler attached?"
BEYOND = "a time lies beyond the year 2255, which no clock of a run shows"
NO_RANGES = "no ranges of the program (record_function, ProfilerStep): phases and loader wait are not known"

# Categories, now and before PyTorch 1.12. HIP's calls are "cuda_runtime" too.
KERNEL = {"kernel", "Kernel"}
COPY = {"gpu_memcpy", "gpu_memset", "Memcpy", "Memset"}
CALL = {"cuda_runtime", "cuda_driver", "Runtime", "xpu_runtime", "xpu_driver"}
OPERATOR = {"cpu_op", "Operator"}
ANNOTATION = "user_annotation"

# Operators that count as ranges: collectives of the host, and phases where a trace has no annotations.
_RANGE = re.compile(r"(?:gloo|nccl|mpi|ucc|xccl):|Optimizer\.")
_COLLECTIVE = "record_param_comms"  # the operator around a collective's launch that knows its group and size
_COPIES = [
    (r"HtoD|HostToDevice|Host -> Device", TO_DEVICE),
    (r"DtoH|DeviceToHost|Device -> Host", TO_HOST),
    (r"PtoP|PeerToPeer", PEER),
    (r"DtoD|DeviceToDevice|Device -> Device", ON_DEVICE),
]
# c10::ScalarType as record_param_comms writes it
_SIZES = {
    "Byte": 1, "Char": 1, "Bool": 1, "Short": 2, "Half": 2, "BFloat16": 2, "Int": 4, "Float": 4, "Long": 8, "Double": 8,
    "ComplexHalf": 4, "ComplexFloat": 8, "ComplexDouble": 16, "Float8_e4m3fn": 1, "Float8_e5m2": 1,
    "Float8_e4m3fnuz": 1, "Float8_e5m2fnuz": 1, "UInt16": 2, "UInt32": 4, "UInt64": 8,
}  # fmt: skip
_EXACT = 2.0**43  # us up to which a float resolves ns
_LATEST = 2.0**53  # us up to which int64 holds ns
_EPOCH = 10**18  # ns, in 2001: later times count from 1970
_LARGEST = 4 * 2**30  # bytes of JSON


class _Args(msgspec.Struct, gc=False, frozen=True):
    device: Any = None
    correlation: Any = None
    bytes: Any = None
    group: Any = msgspec.field(name="Process Group Name", default=None)
    sent: Any = msgspec.field(name="In msg nelems", default=None)
    received: Any = msgspec.field(name="Out msg nelems", default=None)
    dtype: Any = None


class _Event(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: int | float = 0
    dur: int | float = 0
    pid: Any = None
    tid: Any = None
    args: _Args = _Args()


class _ExactEvent(_Event, gc=False):
    ts: Decimal = Decimal(0)
    dur: Decimal = Decimal(0)


class _Trace(msgspec.Struct, gc=False, kw_only=True):
    schema: Any = msgspec.field(name="schemaVersion", default=None)
    devices: Any = msgspec.field(name="deviceProperties", default=None)
    distributed: Any = msgspec.field(name="distributedInfo", default=None)
    base: Any = msgspec.field(name="baseTimeNanoseconds", default=0)
    events: list[_Event] = msgspec.field(name="traceEvents")


class _ExactTrace(_Trace, gc=False, kw_only=True):
    events: list[_ExactEvent] = msgspec.field(name="traceEvents")


# Made here: two threads that make the first decoder of a type at once crash (msgspec 0.22).
_DECODERS = [msgspec.json.Decoder(kind) for kind in (_Trace, _ExactTrace)]


class _Rounded(Exception):
    """A float cannot hold the times to the ns."""


def read(path: str | Path) -> list[Timeline]:
    """The trace of one rank (.json or .json.gz), one timeline per device, or one without `ops` if no GPU was seen.

    What is merely missing is in the remarks.

    Raises:
        ProfileError: the file is no trace, or is damaged.
    """
    text = _text(Path(path))
    for decoder in _DECODERS:
        trace = _decoded(path, text, decoder)
        try:
            return _Reader(str(path), trace).timelines()
        except _Rounded:
            continue
        except ProfileError:
            raise
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            raise ProfileError(f"{path}: a value of a kind that torch.profiler does not write: {error}") from None
    raise AssertionError("decimals are never rounded")


def _text(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            text = (gzip.GzipFile(fileobj=file) if packed else file).read(_LARGEST + 1)
    except EOFError:
        raise ProfileError(
            f"{path}: the compressed file ends too early: was the run killed while it wrote it?"
        ) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise ProfileError(f"{path}: the compressed file is damaged ({error}): copy it again") from None
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror}") from None
    if len(text) > _LARGEST:
        raise ProfileError(f"{path}: more than {_LARGEST >> 30} GiB of JSON: profile fewer steps")
    return text


def _decoded(path: str | Path, text: bytes, decoder: msgspec.json.Decoder) -> _Trace:
    try:
        try:
            return decoder.decode(text)
        except msgspec.ValidationError:
            raise
        except (msgspec.DecodeError, UnicodeDecodeError):
            # Kineto has written `inf` and `nan` for bandwidths of copies without a duration, and names cut inside a letter.
            text = text.decode("utf-8", "replace").encode()
            return decoder.decode(re.sub(rb"(:\s*)-?(?:inf(?:inity)?|nan)\b", rb"\1null", text, flags=re.I))
    except msgspec.ValidationError as error:
        raise ProfileError(f"{path}: no trace of torch.profiler: {error}") from None
    except RecursionError:
        raise ProfileError(f"{path}: no trace of torch.profiler: nested too deeply") from None
    except msgspec.DecodeError as error:
        if "truncated" in str(error):
            raise ProfileError(f"{path}: the JSON ends too early: was the run killed while it wrote it?") from None
        raise ProfileError(f"{path}: no JSON, so no trace of torch.profiler: {error}") from None


@functools.lru_cache(maxsize=65536)
def _is_range(name: str) -> bool:
    return bool(_RANGE.match(name)) or phases.phase_of(name) is not None


class _Reader:
    """One file on its way to timelines."""

    def __init__(self, source: str, trace: _Trace) -> None:
        self.source, self.trace = source, trace
        self.remarks: list[str] = []
        self.base = trace.base if isinstance(trace.base, int) else 0
        self.about = trace.distributed if isinstance(trace.distributed, dict) else {}
        self.kernels, self.copies, self.calls, self.ranges, operators = ([] for _ in range(5))
        kinds = dict.fromkeys(KERNEL, self.kernels) | dict.fromkeys(COPY, self.copies)
        kinds |= dict.fromkeys(CALL, self.calls) | dict.fromkeys(OPERATOR, operators) | {ANNOTATION: self.ranges}
        for event in trace.events:
            if event.ph == "X" and (place := kinds.get(event.cat)) is not None:
                place.append(event)
        if trace.schema is None and not any(kinds.values()):
            raise ProfileError(f"{source}: no trace of torch.profiler: none of its events is one")
        self.collectives = [event for event in operators if event.name == _COLLECTIVE]
        self.ranges += [event for event in operators if event.name != _COLLECTIVE and _is_range(event.name)]

    def timelines(self) -> list[Timeline]:
        if self.trace.schema != SCHEMA:
            self.remarks.append(
                f"schemaVersion is {self.trace.schema}, where {SCHEMA} is known: numbers may be missing"
            )
        start, end = self._spans(self.ranges)
        ranges = Ranges.of(start, end, [one.name for one in self.ranges])
        if not len(ranges):
            self.remarks.append(NO_RANGES)
        devices = self._devices() if self.kernels or self.copies else {None: None}
        if None in devices and self.calls:
            self.remarks.append(NO_KERNELS)
        shown = [ranges, *filter(None, devices.values())]
        aligned = bool(self.base) or any(len(one) and one.start[0] > _EPOCH for one in shown)
        rank, world_size = (
            value if type(value := self.about.get(name)) is int else None
            for name in ("rank", "world_size")  # no bool
        )
        listed = self.trace.devices if isinstance(self.trace.devices, list) else []
        names = {one.get("id"): str(one.get("name", "")) for one in listed if isinstance(one, dict)}
        remarks = tuple(self.remarks)
        return [
            Timeline(self.source, rank, world_size, device, names.get(device, ""), ops, ranges, aligned, remarks)
            for device, ops in devices.items()
        ]

    def _ns(self, values: list[float] | list[Decimal]) -> np.ndarray:
        """us as they were read to int64 ns."""
        if values and isinstance(values[0], Decimal):
            return np.array([int((value * 1000).to_integral_value()) for value in values], np.int64)
        times = np.array(values)
        latest = np.abs(times).max(initial=0)
        if latest >= _LATEST:
            raise ProfileError(f"{self.source}: {BEYOND}")
        if times.dtype.kind == "i":
            return times * 1000
        if latest >= _EXACT:
            raise _Rounded
        return np.rint(times * 1000).astype(np.int64)

    def _spans(self, events: Sequence[_Event]) -> tuple[np.ndarray, np.ndarray]:
        """(starts, ends) in ns on the timeline's clock."""
        start = self._ns([event.ts for event in events])
        lasted = self._ns([event.dur for event in events])
        if abs(self.base) + int(np.abs(start).max(initial=0)) + int(np.abs(lasted).max(initial=0)) >= 2**63:
            raise ProfileError(f"{self.source}: {BEYOND}")
        if backwards := int(np.sum(lasted < 0)):
            self.remarks.append(f"{backwards} events end before they begin: they count as empty")
        return start + self.base, start + self.base + np.maximum(lasted, 0)

    def _devices(self) -> dict[int, Ops]:
        """{device: its work}."""
        events = [*self.kernels, *self.copies]
        start, end = self._spans(events)
        known: dict[str, int] = {}
        name = np.array([known.setdefault(event.name, len(known)) for event in events], np.int32)
        kind = kernels.ops_kinds(list(known))[name]
        copy, pageable = (np.array(each)[name] for each in zip(*map(_copy, known), strict=True))
        moved = np.array([_count(event.args.bytes) for event in events])
        first = len(self.kernels)
        copy[:first], pageable[:first], moved[:first], kind[first:] = 0, -1, -1, MEMORY
        launched, call = self._launches(events)
        group = np.full(len(events), -1)
        groups = self._collectives(events, kind == COMMUNICATION, launched, call, moved, group)
        device = np.array([_first(event.args.device, event.pid) for event in events])
        if device.dtype.kind != "i" or device.ndim != 1:
            raise ProfileError(f"{self.source}: a kernel or copy does not say on which device it ran")
        every = Ops.of(
            start, end, kind, name=name, launched=launched, moved=moved, copy=copy, pageable=pageable, group=group,
            names=tuple(map(kernels.bare, known)), groups=groups,
        )  # fmt: skip
        device = device[np.argsort(start, kind="stable")]
        return {one: every.where(device == one) for one in np.unique(device).tolist()}

    def _launches(self, events: Sequence[_Event]) -> tuple[np.ndarray, np.ndarray]:
        """Of each event when the host launched it (ns; -1), and the index of that call in `calls` (-1)."""
        asked = self._spans(self.calls)[0]
        latest_first = np.argsort(-asked, kind="stable").tolist()  # of two that claim a kernel the earliest remains
        calls = {correlation: place for place in latest_first if (correlation := self.calls[place].args.correlation)}
        call = np.array([calls.get(event.args.correlation, -1) for event in events], np.int64)
        return np.where(call >= 0, np.append(asked, -1)[call], -1), call

    def _collectives(
        self, events: Sequence[_Event], which: np.ndarray, launched: np.ndarray, call: np.ndarray,
        moved: np.ndarray, group: np.ndarray,
    ) -> tuple[str, ...]:  # fmt: skip
        """Fill in what communication kernels moved in which group; return the groups' names.

        The kernel tells it itself, or the operator that launched it does; else it is the only group there is.
        """
        begun, ended = self._spans(self.collectives)
        by_thread: dict[str, list[int]] = {}
        for place in np.argsort(begun, kind="stable").tolist():
            by_thread.setdefault(str(self.collectives[place].tid), []).append(place)
        configured = self.about.get("pg_config")
        only = None
        if isinstance(configured, list) and len(configured) == 1 and isinstance(configured[0], dict):
            only = configured[0].get("pg_name")
        known: dict[str, int] = {}
        for place in np.flatnonzero(which).tolist():
            about = events[place].args
            if about.group is None and call[place] >= 0:
                own = by_thread.get(str(self.calls[call[place]].tid), [])
                before = int(np.searchsorted(begun[own], launched[place], side="right")) - 1
                if before >= 0 and launched[place] < ended[own[before]]:
                    about = self.collectives[own[before]].args
            elements = max(_count(about.sent), _count(about.received))
            if isinstance(about.dtype, str) and about.dtype in _SIZES and elements >= 0:
                moved[place] = elements * _SIZES[about.dtype]
            name = _first(about.group, only)
            if name is not None:
                group[place] = known.setdefault(str(name), len(known))
        return tuple(known)


@functools.lru_cache(maxsize=1024)
def _copy(name: str) -> tuple[int, int]:
    """(TO_DEVICE and so on, or 0; pageable: 1, 0 or -1) of "Memcpy HtoD (Pageable -> Device)"."""
    kind = next((number for pattern, number in _COPIES if re.search(pattern, name)), 0)
    with_host = kind in (TO_DEVICE, TO_HOST)
    return kind, 1 if with_host and "Pageable" in name else 0 if with_host and "Pinned" in name else -1


def _first(value: Any, otherwise: Any) -> Any:
    return otherwise if value is None else value


def _count(value: Any) -> int:
    """-1: not known."""
    return value if isinstance(value, int) and 0 <= value < 2**62 else -1

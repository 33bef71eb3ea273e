"""Traces of `torch.profiler` (Kineto's Chrome traces) as timelines.

What is a device's work is told by the category alone (kernel, gpu_memcpy, gpu_memset; Kernel, Memcpy, Memset before
PyTorch 1.12): a Triton kernel's *host* event carries a stream too, and would count twice. Times are written in us with
three decimals, or in whole us by older versions; they become integer ns without a rounding error, even where a float
could not hold them (ns since the epoch).
"""

from __future__ import annotations

import functools
import re
import zlib
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

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
    kernels,
    phases,
)
from .timeline.breakdown import NO_COMMUNICATION

SCHEMA = 1  # Kineto's schemaVersion, since there is one
NO_KERNELS = "the host called the GPU, but its work was not recorded: was another profiler attached?"
BEYOND = "a time lies beyond the year 2255, which no clock of a run says"
NO_RANGES = "no ranges of the program (record_function, ProfilerStep): phases and loader wait are not known"

KERNEL = {"kernel", "Kernel"}
COPY = {"gpu_memcpy", "gpu_memset", "Memcpy", "Memset"}
CALL = {"cuda_runtime", "cuda_driver", "Runtime", "xpu_runtime", "xpu_driver"}  # HIP's calls are "cuda_runtime" too
OPERATOR = {"cpu_op", "Operator"}
ANNOTATION = "user_annotation"

# Of what stands among the operators: collectives of the host, and phases where a trace knows no annotations.
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
_EXACT = 2.0**43  # us: up to here a float tells ns apart
_LATEST = 2.0**53  # us: beyond, int64 holds no ns
_EPOCH = 10**18  # ns, in 2001: what is later counts from 1970
_LARGEST = 4 * 2**30  # bytes of JSON


class _Args(msgspec.Struct, gc=False):
    device: Any = None
    stream: Any = None
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
    args: _Args | None = None


class _ExactEvent(_Event, gc=False):
    ts: Decimal = Decimal(0)
    dur: Decimal = Decimal(0)


class _Head(msgspec.Struct, gc=False):
    schema: Any = msgspec.field(name="schemaVersion", default=None)
    devices: Any = msgspec.field(name="deviceProperties", default=None)
    distributed: Any = msgspec.field(name="distributedInfo", default=None)
    base: Any = msgspec.field(name="baseTimeNanoseconds", default=0)


class _Trace(_Head, gc=False, kw_only=True):
    events: list[_Event] = msgspec.field(name="traceEvents")


class _ExactTrace(_Head, gc=False, kw_only=True):
    events: list[_ExactEvent] = msgspec.field(name="traceEvents")


# Made here, not where they are needed: two threads that make the first decoder of a type at once crash (msgspec 0.22).
_DECODERS = [msgspec.json.Decoder(kind) for kind in (_Trace, _ExactTrace)]


class _Rounded(Exception):
    """Times that a float cannot hold to the ns."""


def read(path: str | Path) -> list[Timeline]:
    """The trace of one rank (.json or .json.gz), one timeline a device; without events of a GPU one without `ops`.

    A `ProfileError` says that the file is none, or not whole; what is merely missing is in the remarks.
    """
    text = _text(Path(path))
    for decoder in _DECODERS:
        trace = _decoded(path, text, decoder)
        try:
            return _Reader(str(path), trace).timelines()
        except _Rounded:
            continue
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            if isinstance(error, ProfileError):
                raise
            raise ProfileError(f"{path}: a value of a kind that torch.profiler does not write: {error}") from None
    raise AssertionError("decimals are never rounded")


def _text(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror}") from None
    if not data.startswith(b"\x1f\x8b"):
        return data
    parts, room = [], _LARGEST
    while data:
        unpack = zlib.decompressobj(wbits=31)
        try:
            parts.append(unpack.decompress(data, room))
        except zlib.error as error:
            raise ProfileError(f"{path}: the compressed file is damaged ({error}): copy it again") from None
        room -= len(parts[-1])
        if not unpack.eof and room <= 0:
            raise ProfileError(f"{path}: more than {_LARGEST >> 30} GiB of JSON: profile fewer steps")
        if not unpack.eof:
            raise ProfileError(f"{path}: the compressed file ends too early: was the run killed while it wrote it?")
        data = unpack.unused_data.lstrip(b"\0")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _decoded(path: str | Path, text: bytes, decoder: msgspec.json.Decoder) -> _Trace | _ExactTrace:
    try:
        try:
            return decoder.decode(text)
        except msgspec.ValidationError:
            raise
        except (msgspec.DecodeError, UnicodeDecodeError):
            return decoder.decode(_mended(text))
    except msgspec.ValidationError as error:
        raise ProfileError(f"{path}: no trace of torch.profiler: {error}") from None
    except RecursionError:
        raise ProfileError(f"{path}: no trace of torch.profiler: nested too deeply") from None
    except msgspec.DecodeError as error:
        if "truncated" in str(error):
            raise ProfileError(f"{path}: the JSON ends too early: was the run killed while it wrote it?") from None
        raise ProfileError(f"{path}: no JSON, so no trace of torch.profiler: {error}") from None


def _mended(text: bytes) -> bytes:
    """Kineto has written `inf` and `nan` for bandwidths of copies without a duration, and names cut inside a letter."""
    text = text.decode("utf-8", "replace").encode()
    return re.sub(rb"(:\s*)-?(?:inf(?:inity)?|nan)\b", rb"\1null", text, flags=re.I)


@functools.lru_cache(maxsize=65536)
def _is_range(name: str) -> bool:
    return bool(_RANGE.match(name)) or phases.phase_of(name) is not None


class _Reader:
    """One file on its way to timelines."""

    def __init__(self, source: str, trace: _Trace | _ExactTrace) -> None:
        self.source, self.trace = source, trace
        self.remarks: list[str] = []
        self.whole = True  # all times so far are whole us
        self.base = trace.base if isinstance(trace.base, int) else 0
        self.kernels: list[_Event] = []
        self.copies: list[_Event] = []
        self.calls: list[_Event] = []
        self.ranges: list[_Event] = []
        self.collectives: list[_Event] = []
        self._sort()

    def _sort(self) -> None:
        """Put the events that matter where they belong."""
        operators: list[_Event] = []
        kinds = dict.fromkeys(KERNEL, self.kernels) | dict.fromkeys(COPY, self.copies)
        kinds |= dict.fromkeys(CALL, self.calls) | dict.fromkeys(OPERATOR, operators) | {ANNOTATION: self.ranges}
        for event in self.trace.events:
            if event.ph == "X" and (place := kinds.get(event.cat)) is not None:
                place.append(event)
        for event in operators:
            if event.name == _COLLECTIVE:
                self.collectives.append(event)
            elif _is_range(event.name):
                self.ranges.append(event)
        known = operators or self.kernels or self.copies or self.calls or self.ranges
        if not known and self.trace.schema is None:
            raise ProfileError(f"{self.source}: no trace of torch.profiler: none of its events is one")

    def timelines(self) -> list[Timeline]:
        rank, world_size = self._place()
        if self.trace.schema != SCHEMA:
            self.remarks.append(
                f"schemaVersion is {self.trace.schema}, where {SCHEMA} is known: numbers may be missing"
            )
        ranges = self._ranges()
        if not len(ranges):
            self.remarks.append(NO_RANGES)
        devices = self._devices() if self.kernels or self.copies else {None: None}
        if None in devices and self.calls:
            self.remarks.append(NO_KERNELS)
        aligned = bool(self.base) or any(len(at) and at[0] > _EPOCH for at in self._starts(devices, ranges))
        names = self._device_names()
        several = (world_size or 1) > 1 or len(devices) > 1
        found = []
        for device, ops in devices.items():
            alone = several and ops is not None and not np.any(ops.kind == COMMUNICATION)
            remarks = (*self.remarks, NO_COMMUNICATION) if alone else tuple(self.remarks)
            found.append(
                Timeline(
                    self.source, "torch", rank, world_size, device, names.get(device, ""), ops, ranges,
                    resolution=1000 if self.whole else 1, aligned=aligned, remarks=remarks,
                )
            )  # fmt: skip
        return found

    def _starts(self, devices: dict[int | None, Ops | None], ranges: Ranges) -> list[np.ndarray]:
        return [ranges.start, *(ops.start for ops in devices.values() if ops is not None)]

    def _place(self) -> tuple[int | None, int | None]:
        """(rank, world size), where the file tells them."""
        about = self.trace.distributed if isinstance(self.trace.distributed, dict) else {}
        rank, world_size = (
            value if type(value) is int and value >= least else None  # true is none
            for value, least in ((about.get("rank"), 0), (about.get("world_size"), 1))
        )
        return rank, world_size

    def _device_names(self) -> dict[int, str]:
        listed = self.trace.devices if isinstance(self.trace.devices, list) else []
        return {one.get("id"): str(one.get("name", "")) for one in listed if isinstance(one, dict)}

    # -- times ------------------------------------------------------------------------------------------------

    def _ns(self, values: list[float] | list[Decimal]) -> np.ndarray:
        """us as they were read to int64 ns."""
        if values and isinstance(values[0], Decimal):
            exact = [int((value * 1000).to_integral_value()) for value in values]
            self.whole = self.whole and not any(value % 1000 for value in exact)
            return np.array(exact, np.int64)
        times = np.array(values)
        if not len(times):
            return np.empty(0, np.int64)
        if np.abs(times).max() >= _LATEST:
            raise ProfileError(f"{self.source}: {BEYOND}")
        if times.dtype.kind == "i":
            return times * 1000
        if np.abs(times).max() >= _EXACT:
            raise _Rounded
        self.whole = self.whole and bool(np.all(times == np.rint(times)))
        return np.rint(times * 1000).astype(np.int64)

    def _spans(self, events: Sequence[_Event]) -> tuple[np.ndarray, np.ndarray]:
        """(starts, ends) in ns on the timeline's clock."""
        start = self._ns([event.ts for event in events])
        lasted = self._ns([event.dur for event in events])
        if len(start) and abs(self.base) + int(np.abs(start).max()) + int(np.abs(lasted).max()) >= 2**63:
            raise ProfileError(f"{self.source}: {BEYOND}")
        backwards = int(np.sum(lasted < 0))
        if backwards:
            self.remarks.append(f"{backwards} events end before they begin: they count as moments without length")
        return start + self.base, start + self.base + np.maximum(lasted, 0)

    # -- the host ---------------------------------------------------------------------------------------------

    def _ranges(self) -> Ranges:
        start, end = self._spans(self.ranges)
        return Ranges.of(start, end, [one.name for one in self.ranges], _numbered(one.tid for one in self.ranges))

    # -- the device -------------------------------------------------------------------------------------------

    def _devices(self) -> dict[int | None, Ops | None]:
        """{device: its work}."""
        events = [*self.kernels, *self.copies]
        start, end = self._spans(events)
        known: dict[str, int] = {}
        name = np.array([known.setdefault(event.name, len(known)) for event in events], np.int32)
        of_kernel = len(self.kernels)
        kind = kernels.names_of_kind(list(known))[name]
        kind[of_kernel:] = MEMORY
        copy, pageable = (np.array(each, np.int8)[name] for each in zip(*map(_copy, known), strict=True))
        copy[:of_kernel], pageable[:of_kernel] = 0, -1
        launched, call = self._launches(events)
        moved = np.full(len(events), -1, np.int64)
        moved[of_kernel:] = [_count(event.args and event.args.bytes) for event in self.copies]
        group = np.full(len(events), -1, np.int32)
        groups = self._collectives(events, kind == COMMUNICATION, launched, call, moved, group)
        columns = {
            "name": name,
            "launched": launched,
            "moved": moved,
            "copy": copy,
            "pageable": pageable,
            "group": group,
        }
        columns["stream"] = _numbered(_first(event, "stream", event.tid) for event in events)
        device = np.array([_first(event, "device", event.pid) for event in events])
        if device.dtype.kind != "i" or device.ndim != 1:
            raise ProfileError(f"{self.source}: a kernel or copy does not say on which device it ran")
        names = tuple(kernels.bare(text) for text in known)
        return {
            int(one): Ops.of(
                start[device == one],
                end[device == one],
                kind[device == one],
                **{key: values[device == one] for key, values in columns.items()},
                names=names,
                groups=groups,
            )
            for one in np.unique(device)
        }

    def _launches(self, events: Sequence[_Event]) -> tuple[np.ndarray, np.ndarray]:
        """Of each event when the host asked for it (ns; -1), and where in `calls` that stands (-1)."""
        asked = self._spans(self.calls)[0]
        order = np.argsort(-asked, kind="stable").tolist()  # the earliest last: where two claim a kernel, it stays
        numbers = [call.args.correlation if call.args else None for call in self.calls]
        calls = {numbers[place]: place for place in order if numbers[place]}
        call = np.array([calls.get(event.args.correlation, -1) if event.args else -1 for event in events], np.int64)
        return np.where(call >= 0, asked[call], -1) if len(asked) else np.full(len(events), -1), call

    def _collectives(
        self, events: Sequence[_Event], which: np.ndarray, launched: np.ndarray, call: np.ndarray,
        moved: np.ndarray, group: np.ndarray,
    ) -> tuple[str, ...]:  # fmt: skip
        """Fill in what communication kernels moved in which group; the groups' names.

        A kernel tells it by itself, or the operator that launched it does; else the only group there is.
        """
        begun, ended = self._spans(self.collectives)
        threads: dict[str, np.ndarray] = {}
        by_thread = np.array([str(one.tid) for one in self.collectives])
        for thread in np.unique(by_thread):
            own = np.flatnonzero(by_thread == thread)
            threads[str(thread)] = own[np.argsort(begun[own], kind="stable")]
        only, known = self._only_group(), {}
        for place in np.flatnonzero(which).tolist():
            about = events[place].args
            if (about is None or about.group is None) and call[place] >= 0:
                own = threads.get(str(self.calls[call[place]].tid), np.empty(0, np.int64))
                before = int(np.searchsorted(begun[own], launched[place], side="right")) - 1
                if before >= 0 and launched[place] < ended[own[before]]:
                    about = self.collectives[own[before]].args
            if about is not None:
                size = _SIZES.get(about.dtype, 0) if isinstance(about.dtype, str) else 0
                elements = max(_count(about.sent), _count(about.received))
                moved[place] = elements * size if size and elements >= 0 else -1
            called = about.group if about is not None and about.group is not None else only
            if called is not None:
                group[place] = known.setdefault(str(called), len(known))
        return tuple(known)

    def _only_group(self) -> str | None:
        about = self.trace.distributed if isinstance(self.trace.distributed, dict) else {}
        listed = about.get("pg_config")
        if isinstance(listed, list) and len(listed) == 1 and isinstance(listed[0], dict):
            return listed[0].get("pg_name")
        return None


@functools.lru_cache(maxsize=1024)
def _copy(name: str) -> tuple[int, int]:
    """(TO_DEVICE and so on or 0, whether host memory was pageable: 1, 0 or -1) of "Memcpy HtoD (Pageable -> Device)"."""
    kind = next((number for pattern, number in _COPIES if re.search(pattern, name)), 0)
    with_host = kind in (TO_DEVICE, TO_HOST)
    return kind, 1 if with_host and "Pageable" in name else 0 if with_host and "Pinned" in name else -1


def _first(event: _Event, name: str, otherwise: Any) -> Any:
    value = getattr(event.args, name, None)
    return otherwise if value is None else value


def _count(value: Any) -> int:
    """A number that is one; -1: not known."""
    return value if isinstance(value, int) and 0 <= value < 2**62 else -1


def _numbered(values: Iterable[Any]) -> np.ndarray:
    """Small whole numbers as they are, anything else numbered as it comes: int32."""
    values = list(values)
    if all(isinstance(value, int) and 0 <= value < 2**31 for value in values):
        return np.array(values, np.int32)
    known: dict[str, int] = {}
    return np.array([known.setdefault(str(value), len(known)) for value in values], np.int32)

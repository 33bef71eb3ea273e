"""What a profiler saw of one rank and one of its devices, whichever profiler it was: all that the analysis knows.

Readers (`analyze.nsys`, `analyze.trace`) fill it, everything else reads it. Plain NumPy: a trace may hold ten million
kernels, and `hpc explain` answers before pandas would be imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

# Kinds of work on a device. Graph traces and the like: the device was busy, with what is not known.
COMPUTE, COMMUNICATION, MEMORY, UNKNOWN = range(4)

# How a memory operation moved its bytes (CUPTI's copyKind), and 0 for what is no copy.
TO_DEVICE, TO_HOST, ON_DEVICE, PEER = 1, 2, 8, 10


class ProfileError(ValueError):
    """A file cannot be read as a profile: says which, what was expected, what to do."""

    exit_code = 2


@dataclass(frozen=True)
class Ops:
    """A device's work in the order of its starts, one entry an operation.

    Attributes:
        start, end: int64 ns, on the timeline's clock.
        kind: int8, COMPUTE, COMMUNICATION, MEMORY or UNKNOWN.
        name: int32, where in `names`. names: the kernels' names as they are called in the code, without arguments.
        stream: int32.
        launched: int64 ns, when the host asked for it; -1: not known.
        moved: int64 bytes of a memory operation or a collective's message; -1: not known.
        copy: int8, TO_DEVICE and so on; 0: no copy. pageable: int8, 1: host memory that was not pinned; 0: pinned; -1.
        group: int32, where in `groups`: the communicator or process group of a collective; -1: not known.
    """

    start: np.ndarray
    end: np.ndarray
    kind: np.ndarray
    name: np.ndarray
    names: Sequence[str]
    stream: np.ndarray
    launched: np.ndarray
    moved: np.ndarray
    copy: np.ndarray
    pageable: np.ndarray
    group: np.ndarray
    groups: Sequence[str] = ()

    @classmethod
    def of(cls, start: np.ndarray, end: np.ndarray, kind: np.ndarray, **more: np.ndarray | Sequence[str]) -> Ops:
        """Sorted by start; what is not given is not known."""
        order = np.argsort(start, kind="stable")
        columns = {"start": start, "end": end, "kind": kind} | more
        usual = {"name": (np.int32, 0), "stream": (np.int32, 0), "launched": (np.int64, -1), "moved": (np.int64, -1)}
        usual |= {"copy": (np.int8, 0), "pageable": (np.int8, -1), "group": (np.int32, -1)}
        usual |= {"start": (np.int64, 0), "end": (np.int64, 0), "kind": (np.int8, UNKNOWN)}
        texts = {"names": more.get("names", ("",)), "groups": more.get("groups", ())}
        arrays = {
            name: np.asarray(columns[name], dtype)[order] if name in columns else np.full(len(order), value, dtype)
            for name, (dtype, value) in usual.items()
        }
        return cls(**arrays, **texts)

    def __len__(self) -> int:
        return len(self.start)

    def where(self, chosen: np.ndarray) -> Ops:
        """The entries that `chosen` (bool, or places in rising order) takes; the names stay."""
        arrays = {name: value[chosen] for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return replace(self, **arrays)

    def of_kind(self, *kinds: int) -> Ops:
        """Those of these kinds."""
        return self.where(np.isin(self.kind, kinds))

    def intervals(self, *kinds: int) -> tuple[np.ndarray, np.ndarray]:
        """(starts, ends) of these kinds, of all if none is given: int64 ns, in the order of their starts."""
        chosen = np.isin(self.kind, kinds) if kinds else slice(None)
        return self.start[chosen], self.end[chosen]


@dataclass(frozen=True)
class Ranges:
    """What the program said of itself while it ran (NVTX, `record_function`), in the order of their starts.

    Attributes:
        start, end: int64 ns, on the timeline's clock. name: int32, where in `names`. thread: int32, which of the
            process's threads, numbered as they come.
    """

    start: np.ndarray
    end: np.ndarray
    name: np.ndarray
    names: Sequence[str]
    thread: np.ndarray

    @classmethod
    def of(cls, start: Sequence[int], end: Sequence[int], name: Sequence[str], thread: Sequence[int] = ()) -> Ranges:
        """Sorted by start; `name` as text."""
        start, end = np.asarray(start, np.int64), np.asarray(end, np.int64)
        order = np.argsort(start, kind="stable")
        known = {text: number for number, text in enumerate(dict.fromkeys(name))}
        numbers = np.array([known[text] for text in name], np.int32)
        threads = np.asarray(thread, np.int32) if len(thread) else np.zeros(len(start), np.int32)
        return cls(start[order], end[order], numbers[order], tuple(known), threads[order])

    def __len__(self) -> int:
        return len(self.start)

    def named(self, *names: str) -> tuple[np.ndarray, np.ndarray]:
        """(starts, ends) of the ranges that are called so: int64 ns."""
        wanted = [number for number, text in enumerate(self.names) if text in names]
        chosen = np.isin(self.name, wanted)
        return self.start[chosen], self.end[chosen]


NOTHING = Ranges.of([], [], [])


@dataclass(frozen=True)
class Timeline:
    """One rank's device.

    Attributes:
        source: the file it was read from, as it was given. tool: "nsys" or "torch".
        rank: global rank; None if the file does not say. world_size: likewise.
        device: its number as the rank saw it; None without a GPU. device_name: its model; "" if not known.
        ops: the device's work; None if the profile has no events of a GPU at all.
        ranges: the host's, of the whole process: those of a process with several devices stand in each of them.
        resolution: ns that the clock of the file can tell apart.
        aligned: whether times are ns since the epoch, so that ranks can be laid beside each other.
        remarks: what a reader of the numbers must know, such as events that are missing.
    """

    source: str
    tool: str
    rank: int | None
    world_size: int | None
    device: int | None
    device_name: str
    ops: Ops | None
    ranges: Ranges = NOTHING
    resolution: int = 1
    aligned: bool = False
    remarks: tuple[str, ...] = field(default=())

    @property
    def place(self) -> tuple[int | str, int | None]:
        """What tells it from the others of its run: rank and device; the file where that tells no rank."""
        return self.source if self.rank is None else self.rank, self.device

    @property
    def label(self) -> str:
        """What tables and pictures call it."""
        rank = "rank ?" if self.rank is None else f"rank {self.rank}"
        return rank if self.device is None else f"{rank}, GPU {self.device}"

    def but(self, **changes: object) -> Timeline:
        """The same with other values."""
        return replace(self, **changes)

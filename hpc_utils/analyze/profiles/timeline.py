"""What a profiler recorded of one rank and one of its devices. The readers (`nsys`, `torch_trace`) fill it.

Plain NumPy: a trace may hold ten million kernels, and `hpc explain --json` answers without importing pandas.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from . import intervals

# Kinds of work on a device. Unknown: the device was busy, for example with a CUDA graph that was traced as a whole.
COMPUTE, COMMUNICATION, MEMORY, UNKNOWN = range(4)

# Direction of a copy (CUPTI's copyKind); 0: not a copy.
TO_DEVICE, TO_HOST = 1, 2

NO_MPI = "MPI's communication, which the export has, is not read"
NO_KERNELS = "recorded without CUDA activity: the host launched work of an accelerator, which is not in the profile"

# Columns of `Events`: type, and the value that means "not known".
COLUMNS = {
    "start": (np.int64, 0), "end": (np.int64, 0), "kind": (np.int8, UNKNOWN), "name": (np.int32, 0),
    "launched": (np.int64, -1), "copy": (np.int8, 0), "pageable": (np.int8, -1),
    "group": (np.int32, -1),
}  # fmt: skip


class ProfileError(ValueError):
    """A file cannot be read as a profile. The message names the file and what to do."""

    exit_code = 2


@dataclass(frozen=True)
class Events:
    """A device's work, or ranges that the program marked (NVTX, `record_function`), in the order of their starts.

    Attributes:
        start, end: int64 ns, on the timeline's clock.
        name: int32, index into `names`, as the profiler gives them.
        kind: int8, COMPUTE, COMMUNICATION, MEMORY or UNKNOWN.
        launched: int64 ns, when the host launched it; -1: not known.
        copy: int8, TO_DEVICE and so on. pageable: int8, 1: pageable host memory; 0: pinned; -1: not known.
        group: int32, index into `groups`: the process group of a collective; -1: not known.
    """

    start: np.ndarray
    end: np.ndarray
    kind: np.ndarray
    name: np.ndarray
    launched: np.ndarray
    copy: np.ndarray
    pageable: np.ndarray
    group: np.ndarray
    names: Sequence[str]
    groups: Sequence[str]

    @classmethod
    def of(cls, *, names: Sequence[str] = ("",), groups: Sequence[str] = (), **columns: np.ndarray) -> Events:
        """Sorted by start. Columns that are not given are not known."""
        order = np.argsort(columns["start"], kind="stable")
        arrays = {
            name: np.asarray(columns[name], dtype)[order] if name in columns else np.full(len(order), unknown, dtype)
            for name, (dtype, unknown) in COLUMNS.items()
        }
        return cls(**arrays, names=names, groups=groups)

    @classmethod
    def ranges(cls, start: Sequence[int], end: Sequence[int], name: Iterable[str]) -> Events:
        """Marked ranges; `name` as text."""
        name, names = coded(name)
        return cls.of(start=start, end=end, name=name, names=names)

    def __len__(self) -> int:
        return len(self.start)

    def where(self, chosen: np.ndarray) -> Events:
        """The entries that `chosen` (bool, or rising indices) selects."""
        return replace(self, **{name: getattr(self, name)[chosen] for name in COLUMNS})

    def of_kind(self, *kinds: int) -> Events:
        return self.where(np.isin(self.kind, kinds))

    def union(self, *kinds: int) -> intervals.Set:
        """When there were events of these kinds; of any kind if none is given."""
        chosen = np.isin(self.kind, kinds) if kinds else slice(None)
        return intervals.union(self.start[chosen], self.end[chosen])


@dataclass(frozen=True)
class Timeline:
    """One device of one rank.

    Attributes:
        source: the file, as it was given.
        rank: global rank; None if the file does not contain it. world_size: likewise.
        device: its number as the rank sees it; None without a GPU. device_name: its model, or "CPU"; "" if not known.
        ops: the device's work, without a GPU the operators of the rank; None if the profile has none.
        ranges: the host's, of the whole process: the devices of one process share them.
        host: longer ranges, operators, calls and Python's frames of the threads that launch; None if not recorded.
        aligned: whether times are ns since the epoch, so that ranks can be compared.
        remarks: warnings for readers of the numbers, such as missing events.
    """

    source: str
    rank: int | None
    world_size: int | None
    device: int | None
    device_name: str
    ops: Events | None
    ranges: Events
    aligned: bool = False
    host: Events | None = None
    remarks: tuple[str, ...] = ()

    @property
    def place(self) -> tuple[int | str, int | None]:
        """Rank and device, unique in a run; the file instead of an unknown rank."""
        return self.source if self.rank is None else self.rank, self.device

    @property
    def label(self) -> str:
        """Its name in tables and figures; the file's instead of an unknown rank."""
        rank = Path(self.source).name if self.rank is None else f"rank {self.rank}"
        return rank if self.device is None else f"{rank}, GPU {self.device}"

    @property
    def worked(self) -> bool:
        """Whether the profile has work of the device."""
        return self.ops is not None and len(self.ops) > 0


def world(timelines: Iterable[Timeline]) -> tuple[int, int]:
    """(ranks and devices that were profiled, ranks of the job as far as the files contain it)."""
    timelines = list(timelines)
    profiled = len({timeline.place for timeline in timelines})
    return profiled, max([profiled, *(timeline.world_size or 1 for timeline in timelines)])


def require_one_run(timelines: Sequence[Timeline]) -> None:
    """Raises ProfileError, with two of the files, if these, which worked and are in the order of their ranks, are of
    several runs or windows."""
    for one, other in itertools.pairwise(timelines):
        windows = sorted((timeline.ops.start[0], timeline.ops.end.max()) for timeline in (one, other))
        reasons = {
            "do not both tell their ranks": None in (one.rank, other.rank),
            f"are both of rank {one.rank}": one.rank == other.rank,
            "differ in their number of ranks": len({one.world_size, other.world_size} - {None}) > 1,
            "differ in their devices": len({one.device_name, other.device_name} - {""}) > 1,
            "were recorded one after the other": one.aligned and other.aligned and windows[0][1] < windows[1][0],
        }
        if any(reasons.values()) and (one.source != other.source or one.device == other.device):
            reason = max(reasons, key=reasons.get)
            raise ProfileError(
                f"{one.source} and {other.source} {reason}: give one run's profiles of the same steps, a file a rank "
                "(rank0.json, rank1.json)"
            )


def coded(texts: Iterable[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """(int32 indices into the distinct texts, these texts)."""
    codes: dict[str, int] = {}
    return np.array([codes.setdefault(text, len(codes)) for text in texts], np.int32), tuple(codes)


def named_rank(path: str | Path) -> int | None:
    """The rank in the name of a file or its folder (`trace-rank3.json`, `run1-rank3/`), but for that of an adapter (`lora_rank8`)."""
    name = "/".join(Path(path).parts[-2:])
    ranks = re.findall(r"(?<![a-z])(?<!lora[-_.])rank[-_.= ]?(\d{1,6})(?!\d)", name, re.I)
    return int(ranks[-1]) if ranks else None


def first_calls(work: np.ndarray, calls: np.ndarray, started: np.ndarray) -> np.ndarray:
    """The index of the earliest call of the host with the correlation id of each operation; -1: none.

    Args:
        work, calls: correlation ids of operations and calls; 0 or less: not known. started: when each call was made.
    """
    if not len(calls):
        return np.full(len(work), -1)
    order = np.lexsort((started, calls))
    ordered = calls[order]
    positions = np.minimum(np.searchsorted(ordered, work), len(ordered) - 1)
    return np.where((ordered[positions] == work) & (work > 0), order[positions], -1)

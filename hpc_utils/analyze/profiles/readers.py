"""Files of any profiler, recognised by their content: all timelines of a run in order."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hpc_utils.records import packed
from hpc_utils.records.folder import read_json

from .breakdown import breakdowns
from .phases import PARTS, steps
from .timeline import ProfileError, Timeline, named_rank
from .verdict import STEPS

if TYPE_CHECKING:
    import pandas as pd

PROFILE = "profile"  # the folder of a run in which profilers write
COUNTS = ("parameters", "flops_per_sample")
WORK = ("workload", "dataset", "batch_per_device")  # of a step, in a run's records, with `COUNTS`

_HEAD = 65536
_NAMES = (".json", ".json.gz", ".sqlite", ".nsys-rep", ".ncu-rep")
_KEYS = (b'"traceEvents"', b'"schemaVersion"', b'"deviceProperties"')  # one of them is in a trace's head


class FileKind(StrEnum):
    TRACE = "PyTorch trace"
    NSYS_EXPORT = "nsys export"
    NSYS_REPORT = "nsys report"
    NCU_REPORT = "ncu report"


_MAGIC = {
    b"SQLite format 3\0": FileKind.NSYS_EXPORT,
    b"NVIDIA Tegra Profiler": FileKind.NSYS_REPORT,
    b"NVR\0": FileKind.NCU_REPORT,
}


@dataclass(frozen=True)
class Reports:
    """The profiles of a run.

    Attributes:
        timelines: ordered by rank, then device; those without a rank last.
        kernels: those that Nsight Compute measured (`ncu.read_kernels`), if there are any.
        phases: seconds a step under data, forward, backward, optimizer from the records of the run, if its folder was
            given; and exposed communication if DDP measured it, which is then no part of backward.
        config: the run's options, likewise.
        ranks: of the run, likewise; 1 if unknown.
        load: the largest share of a device's cores that other processes used or the hypervisor stole, likewise; 0 if unknown.
        work: what a rank's step computes (`WORK`, `COUNTS`), likewise; and `workload_args`, the options of an own workload.
        step_seconds: the time of a step, likewise: the median of the epochs' medians, most of whose steps are not profiled. NaN if unknown.
    """

    timelines: Sequence[Timeline] = ()
    kernels: pd.DataFrame | None = None
    phases: dict[str, float] | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    ranks: int = 1
    load: float = 0.0
    work: Mapping[str, Any] = field(default_factory=dict)
    step_seconds: float = math.nan

    @cached_property
    def parts(self) -> list[dict[str, Any]]:
        """The `breakdown` of each timeline."""
        return breakdowns(self.timelines)

    @property
    def worked(self) -> list[Timeline]:
        """The timelines whose work decides the verdict.

        On a CPU the run's records cover more than the few steps of a short profile.
        """
        worked = [timeline for timeline in self.timelines if timeline.worked]
        short = all(timeline.device is None and len(steps(timeline.ranges)[0]) < STEPS for timeline in worked)
        return [] if short and self.phases else worked

    @property
    def slowdown(self) -> float:
        """The median time of a profiled step over `step_seconds`; NaN if unknown."""
        step_times = [np.diff(steps(timeline.ranges)[1]) for timeline in self.worked]
        profiled = np.concatenate(step_times) if step_times else np.empty(0)
        return float(np.median(profiled)) / 1e9 / self.step_seconds if len(profiled) else math.nan


def kind(path: Path) -> FileKind | None:
    """The kind of a file, whatever its name; None: no profile. ProfileError if it cannot be read."""
    head = _head(path)
    for magic, file_kind in _MAGIC.items():
        if head.startswith(magic):
            return file_kind
    return FileKind.TRACE if head.lstrip().startswith(b"{") and any(key in head for key in _KEYS) else None


def gather(paths: Iterable[str | Path]) -> Reports:
    """Read files, and those in folders: a run's, its `profile/`, or any with profiles in it."""
    sources = list(map(packed.unpacked, map(Path, paths)))
    kinds = {path: kind(path) for source in sources for path in _files(source)}
    if unknown := [str(path) for path, file_kind in kinds.items() if file_kind is None]:
        expected = f"expected a {', a '.join(FileKind)}, or a run's folder"
        raise ProfileError(f"{unknown[0]} is empty or not a known profile: {expected}")
    exported = {
        path.with_suffix(".nsys-rep") for path, file_kind in kinds.items() if file_kind == FileKind.NSYS_EXPORT
    }
    unordered = [timeline for path in kinds if path not in exported for timeline in read_timelines(path)]
    timelines = sorted(
        unordered, key=lambda timeline: (timeline.rank is None, timeline.rank or 0, timeline.device or 0)
    )
    recorded = list(filter(None, map(_recorded, sources)))
    reports = recorded[0] if len(recorded) == 1 else Reports()
    counters = [path for path, file_kind in kinds.items() if file_kind == FileKind.NCU_REPORT]
    return replace(reports, timelines=timelines, kernels=_kernels(counters))


def two_sides(reports: Reports, paths: Sequence[str | Path]) -> list[Reports]:
    """`reports`, gathered from two files or folders, as two profiles of the same ranks, or of unknown ones; [] if they are parts of
    one."""
    sources = list(map(packed.unpacked, map(Path, paths)))
    sides = [
        [timeline for timeline in reports.timelines if source in (path := Path(timeline.source), *path.parents)]
        for source in sources
    ]
    ranks = [{timeline.rank for timeline in side} for side in sides]
    comparable = len(sides) == 2 and all(sides) and (None in set.union(*ranks) or ranks[0] & ranks[1])
    if not comparable:
        return []
    records = [_recorded(source) or Reports() for source in sources]
    return [Reports(side, work=record.work) for side, record in zip(sides, records, strict=True)]


def read_timelines(path: Path) -> list[Timeline]:
    """The timelines of one file; none of an ncu report. If it does not contain its rank, the name of the file or folder does."""
    file_kind = kind(path)
    if file_kind == FileKind.NCU_REPORT:
        return []
    if file_kind == FileKind.TRACE:
        from .torch_trace import read_trace as read_file
    else:
        from .nsys import read_report as read_file
    return [
        timeline if timeline.rank is not None else replace(timeline, rank=named_rank(path))
        for timeline in read_file(path)
    ]


def _head(path: Path) -> bytes:
    """The first bytes, decompressed."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
        return zlib.decompressobj(wbits=31).decompress(head, _HEAD) if head.startswith(b"\x1f\x8b") else head
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror}") from None
    except zlib.error as error:
        raise ProfileError(f"{path}: the compressed file is damaged ({error}): copy it again") from None


def _files(source: Path) -> list[Path]:
    """`source`, or the profiles in that folder, including files that a profiler left empty."""
    if not source.is_dir():
        return [source]
    folder = source / PROFILE if (source / PROFILE).is_dir() else source
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    chosen = [path for path in files if kind(path) or (path.name.endswith(_NAMES) and not path.stat().st_size)]
    if not chosen and not (_recorded(source) or Reports()).phases:
        raise ProfileError(f"{source}: holds no profile; `hpc run ... -p profile=torch` makes a run with one")
    return chosen


def _kernels(reports: Sequence[Path]) -> pd.DataFrame | None:
    if not reports:
        return None
    import pandas as pd

    from . import ncu

    return pd.concat(map(ncu.read_kernels, reports), ignore_index=True)


def _recorded(folder: Path) -> Reports | None:
    """What a run's own records hold of `Reports`; None if this is no run's folder.

    The phases are the means over the epochs, None if they were not recorded, as of captured steps.
    """
    if not (folder / "epochs.csv").is_file():
        return None
    import pandas as pd

    columns = [*(f"{phase}_seconds" for phase in (*PARTS, "comm", "overlap")), "step_p50"]
    try:
        epochs = pd.read_csv(folder / "epochs.csv").reindex(columns=columns).astype(float)
    except ValueError:  # damaged
        return None
    *means, comm, overlap, _ = epochs.mean()
    phases = None if math.isnan(sum(means)) else dict(zip(map(str, PARTS), means, strict=True))
    exposed = comm - overlap  # NaN on one rank, and where DDP measures nothing
    if phases and 0 <= exposed <= phases["backward"]:
        phases |= {"backward": phases["backward"] - exposed, "communication": exposed}
    run = read_json(folder / "run.json") or {}
    load = _load(folder / "ranks.csv", run.get("threads_per_rank") or 1)
    step_seconds = float(epochs.step_p50.median())
    config = run.get("config", {})
    work = {name: value for name, value in (config | run).items() if name in (*WORK, *COUNTS, "workload_args")}
    ranks = run.get("world_size", 1)
    return Reports(phases=phases, config=config, ranks=ranks, load=load, work=work, step_seconds=step_seconds)


def _load(ranks: Path, cores: float) -> float:
    import pandas as pd

    from hpc_utils.analyze import points

    try:
        shares = points.outside_load(pd.read_csv(ranks), cores).fillna(0.0)
    except (OSError, ValueError, AttributeError):  # not there, or damaged
        return 0.0
    return float(shares.to_numpy().max(initial=0.0))

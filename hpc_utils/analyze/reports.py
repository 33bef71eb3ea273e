"""Whatever a profiler left: what a file is, told by its content, and all of a run's timelines in order."""

from __future__ import annotations

import csv
import math
import os
import re
import signal
import stat
import sys
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from hpc_utils.records import packed

from .timeline import ProfileError, Timeline

TRACE = "PyTorch trace"
NSYS_EXPORT, NSYS_REPORT, NSYS_SUMMARY = "nsys export", "nsys report", "nsys stats CSV"
NCU_REPORT = "ncu report"
KINDS = (TRACE, NSYS_EXPORT, NSYS_REPORT, NSYS_SUMMARY, NCU_REPORT)

PHASES = ("data", "forward", "backward", "optimizer")
PROFILE = "profile"  # where a run keeps what its profilers wrote
READERS = 2  # files at a time: more would be held in memory
WORTH, TOO_MUCH = 1 << 20, 1 << 28  # bytes of traces for which processes are used

_HEAD = 65536
_NAMES = (".json", ".json.gz", ".sqlite", ".nsys-rep", ".ncu-rep")
_MAGIC = {b"SQLite format 3\0": NSYS_EXPORT, b"NVIDIA Tegra Profiler": NSYS_REPORT, b"NVR\0": NCU_REPORT}
_KEYS = (b'"traceEvents"', b'"schemaVersion"', b'"deviceProperties"')  # one of them stands in a trace's head
_SUMMARY = re.compile(rb'^"?(?:Time ?\(%\)|Start ?\(ns\))"?,', re.M)  # the header's first column, in both dialects
_RANK = re.compile(r"(?<![a-z])rank[-_. ]?(\d{1,6})(?!\d)", re.I)


@dataclass(frozen=True)
class Reports:
    """What was found in the files that were given.

    Attributes:
        timelines: ordered by rank, then device; those without come last. counters: the ncu reports.
        summaries: the CSVs of `nsys stats`.
        phases: seconds a step under data, forward, backward, optimizer, and exposed communication where DDP counted it,
            which is then no part of backward: the records of the run, if its folder was given.
        remarks: what is odd about the files together.
    """

    timelines: list[Timeline]
    counters: list[Path] = field(default_factory=list)
    summaries: list[Path] = field(default_factory=list)
    phases: dict[str, float] | None = None
    remarks: tuple[str, ...] = ()


def kind(path: str | Path) -> str | None:
    """One of `KINDS`, whatever the file is called; None: something else. ProfileError if it cannot be read."""
    head = _head(Path(path))
    for magic, name in _MAGIC.items():
        if head.startswith(magic):
            return name
    if head.lstrip().startswith(b"{") and any(key in head for key in _KEYS):
        return TRACE
    return NSYS_SUMMARY if _SUMMARY.search(head) else None


def gather(paths: Iterable[str | Path]) -> Reports:
    """Read files, and what lies in folders: a run's, its `profile/`, or any with profiles in it."""
    named = {packed.unpacked(path): path for path in map(Path, paths)}
    given = [*named]
    kinds = _without_exported({path: kind(path) for one in given for path in _files(one)})
    for path, name in kinds.items():
        if name is None:
            content = "holds no profile that is known here" if _head(path) else "is empty"
            raise ProfileError(f"{path} {content}: expected a {', a '.join(KINDS)}, or a run's folder")
    readable = [path for path, name in kinds.items() if name in (TRACE, NSYS_EXPORT, NSYS_REPORT)]
    only_traces = all(kinds[path] == TRACE for path in readable)
    timelines = sorted((_ranked(_named(one, named)) for one in _read_all(readable, only_traces)), key=_order)
    told = [phases for phases in map(_phases, given) if phases]
    summaries = [path for path, name in kinds.items() if name == NSYS_SUMMARY]
    untimed = () if timelines else summaries
    return Reports(
        timelines,
        [path for path, name in kinds.items() if name == NCU_REPORT],
        summaries,
        told[0] if len(told) == 1 else None,
        (
            *_whose(timelines),
            *(f"{path}: a summary of nsys has no timeline: give the export too" for path in untimed),
        ),
    )


def read(path: str | Path) -> list[Timeline]:
    """The timelines of one file of any kind that has some."""
    found = kind(path)
    if found == TRACE:
        from . import trace

        return trace.read(path)
    if found in (NSYS_EXPORT, NSYS_REPORT):
        from . import nsys

        return nsys.read(path)
    raise ProfileError(f"{path}: {found or 'unknown content'}, which holds no timeline")


def _read_all(files: Sequence[Path], only_traces: bool) -> list[Timeline]:
    try:
        with _pool(files, only_traces) as pool:
            return [one for several in pool.map(read, files) for one in several]
    except BrokenExecutor:
        raise ProfileError(
            f"{files[0]} and {len(files) - 1} more: a process that read one of them was killed: is there enough memory?"
        ) from None


def _pool(files: Sequence[Path], only_traces: bool) -> Executor:
    """In processes, where they pay and are safe; in threads one file is unpacked while another is parsed.

    A process is forked, because a fresh one would take as long to import as it saves. So nothing else may run in this one
    (a notebook's kernel has threads), and what comes back goes through a pipe: not an export with millions of kernels.
    """
    alone = sys.platform == "linux" and threading.active_count() == 1 and len(os.sched_getaffinity(0)) > 1
    if only_traces and alone and len(files) > 1 and WORTH <= sum(file.stat().st_size for file in files) < TOO_MUCH:
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        from . import trace  # noqa: F401  # once, not in each

        # Ctrl-C ends them by ending this process's wait for them, without a traceback of each.
        fork, quiet = multiprocessing.get_context("fork"), (signal.SIGINT, signal.SIG_IGN)
        return ProcessPoolExecutor(READERS, mp_context=fork, initializer=signal.signal, initargs=quiet)
    return ThreadPoolExecutor(READERS)


def _head(path: Path) -> bytes:
    """The first bytes, unpacked where they are packed."""
    try:
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # its head would be gone for who reads the whole
            raise ProfileError(f"{path}: a pipe or a device: write it to a file, and give that")
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror}") from None
    if head.startswith(b"\x1f\x8b"):
        try:
            return zlib.decompressobj(wbits=31).decompress(head, _HEAD)
        except zlib.error as error:
            raise ProfileError(f"{path}: the compressed file is damaged ({error}): copy it again") from None
    return head


def _files(given: Path) -> list[Path]:
    """`given`, or what profilers left in that folder, what they never filled included."""
    try:
        if not given.is_dir():
            return [given]
        folder = given / PROFILE if (given / PROFILE).is_dir() else given
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    except OSError as error:  # someone else's folder, say
        raise ProfileError(f"{given}: cannot be read: {error.strerror}") from None
    chosen = [path for path in files if kind(path) or (path.name.endswith(_NAMES) and not _head(path))]
    if not chosen and not _phases(given):
        raise ProfileError(f"{given}: holds no profile; `hpc run ... -p profile=torch` makes a run that does")
    return chosen


def _without_exported(kinds: dict[Path, str | None]) -> dict[Path, str | None]:
    """An export stands for the report that it was made of."""
    exports = {path.with_suffix("") for path, name in kinds.items() if name == NSYS_EXPORT}
    return {p: name for p, name in kinds.items() if name != NSYS_REPORT or p.with_suffix("") not in exports}


def _phases(folder: Path) -> dict[str, float] | None:
    """What the run's own clocks say, if that is a run's folder: the mean over its epochs."""
    try:
        with (folder / "epochs.csv").open(newline="") as file:
            epochs = list(csv.DictReader(file))
        means = {phase: _mean(epochs, phase) for phase in PHASES}
    except (OSError, KeyError, ValueError, TypeError):
        return None
    try:  # empty on one rank, and where DDP did not count
        exposed = _mean(epochs, "comm") - _mean(epochs, "overlap")
    except (KeyError, ValueError, TypeError):
        exposed = -1.0
    if 0 <= exposed <= means["backward"]:
        means |= {"backward": means["backward"] - exposed, "communication": exposed}
    return means if epochs and all(0 <= mean < math.inf for mean in means.values()) else None


def _mean(epochs: Sequence[dict[str, str]], phase: str) -> float:
    return math.fsum(float(row[f"{phase}_seconds"]) for row in epochs) / max(len(epochs), 1)


def _named(timeline: Timeline, named: Mapping[Path, Path]) -> Timeline:
    """With the name that its file has in the packed set, where a copy was read."""
    source = Path(timeline.source)
    for copy, path in named.items():
        if copy != path and source.is_relative_to(copy):
            return timeline.but(source=str(path / source.relative_to(copy)))
    return timeline


def _ranked(timeline: Timeline) -> Timeline:
    """With the rank that the file's name tells, or a folder `rank3` it lies in, where the file itself does not."""
    path = Path(timeline.source)
    folder = _RANK.fullmatch(path.parent.name)
    told = [*(folder.groups() if folder else ()), *_RANK.findall(path.name)]
    return timeline.but(rank=int(told[-1])) if timeline.rank is None and told else timeline


def _order(one: Timeline) -> tuple[bool, int, bool, int]:
    return one.rank is None, one.rank or 0, one.device is None, one.device or 0


def _whose(timelines: Sequence[Timeline]) -> Iterator[str]:
    """What is odd about the ranks of files that are taken for those of one run."""
    unsaid = list(dict.fromkeys(one.source for one in timelines if one.rank is None))
    if len(unsaid) > 1:
        yield f"{unsaid[0]} and {len(unsaid) - 1} more do not say of which rank they are: each is taken for another one"
    seen: dict[tuple[int | None, int | None], str] = {}
    for one in timelines:
        before = seen.setdefault((one.rank, one.device), one.source)
        if one.rank is not None and before != one.source:
            yield f"{one.label} is in {before} and in {one.source}: are they of one run?"

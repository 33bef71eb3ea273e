"""Files of any profiler, recognised by their content: all timelines of a run in order."""

from __future__ import annotations

import csv
import functools
import math
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from hpc_utils.records import packed

from .phases import PARTS
from .timeline import ProfileError, Timeline, named_rank, rank_order

if TYPE_CHECKING:
    import pandas as pd

PROFILE = "profile"  # the folder of a run in which profilers write
AT_ONCE = 2  # files read at a time: one is decompressed while another is parsed, and more would need more memory

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
        timelines: ordered by rank, then device; those without a rank last. counters: reports of Nsight Compute.
        phases: seconds a step under data, forward, backward, optimizer from the records of the run, if its folder was
            given; and exposed communication if DDP measured it, which is then no part of backward.
        remarks: warnings about the files together.
    """

    timelines: list[Timeline]
    counters: Sequence[Path] = ()
    phases: dict[str, float] | None = None
    remarks: tuple[str, ...] = ()

    @functools.cached_property
    def kernels(self) -> pd.DataFrame | None:
        """The kernels of `counters` (`ncu.read`), if there are any."""
        if not self.counters:
            return None
        import pandas as pd

        from . import ncu

        return pd.concat(map(ncu.read, self.counters), ignore_index=True)


def kind(path: str | Path) -> FileKind | None:
    """The kind of a file, whatever its name; None: no profile. ProfileError if it cannot be read."""
    head = _head(Path(path))
    for magic, found in _MAGIC.items():
        if head.startswith(magic):
            return found
    return FileKind.TRACE if head.lstrip().startswith(b"{") and any(key in head for key in _KEYS) else None


def gather(paths: Iterable[str | Path]) -> Reports:
    """Read files, and those in folders: a run's, its `profile/`, or any with profiles in it."""
    given = list(map(packed.unpacked, map(Path, paths)))
    kinds = {path: kind(path) for one in given for path in _files(one)}
    for path, found in kinds.items():
        if found is None:
            expected = f"expected a {', a '.join(FileKind)}, or a run's folder"
            raise ProfileError(f"{path} {'is not a known profile' if _head(path) else 'is empty'}: {expected}")
    exports = {path.with_suffix("") for path, found in kinds.items() if found == FileKind.NSYS_EXPORT}
    readable = [
        path
        for path, found in kinds.items()
        if found in (FileKind.TRACE, FileKind.NSYS_EXPORT)
        or (found == FileKind.NSYS_REPORT and path.with_suffix("") not in exports)
    ]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        timelines = sorted((one for own in pool.map(read, readable) for one in own), key=rank_order)
    counters = [path for path, found in kinds.items() if found == FileKind.NCU_REPORT]
    recorded = [phases for phases in map(_phases, given) if phases]
    return Reports(timelines, counters, recorded[0] if len(recorded) == 1 else None, tuple(_warnings(timelines)))


def read(path: str | Path) -> list[Timeline]:
    """The timelines of one file. If it does not contain its rank, the name of the file or folder does."""
    found = kind(path)
    if found == FileKind.TRACE:
        from . import torch_trace as reader
    elif found in (FileKind.NSYS_EXPORT, FileKind.NSYS_REPORT):
        from . import nsys as reader
    else:
        raise ProfileError(f"{path}: {found or 'unknown content'}, which holds no timeline")
    return [one if one.rank is not None else replace(one, rank=named_rank(path)) for one in reader.read(path)]


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


def _files(given: Path) -> list[Path]:
    """`given`, or the profiles in that folder, including files that a profiler left empty."""
    if not given.is_dir():
        return [given]
    folder = given / PROFILE if (given / PROFILE).is_dir() else given
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    chosen = [path for path in files if kind(path) or (path.name.endswith(_NAMES) and not path.stat().st_size)]
    if not chosen and not _phases(given):
        raise ProfileError(f"{given}: holds no profile; `hpc run ... -p profile=torch` makes a run with one")
    return chosen


def _phases(folder: Path) -> dict[str, float] | None:
    """The means over the epochs in a run's own records; None if this is no run's folder."""
    try:
        with (folder / "epochs.csv").open(newline="") as file:
            epochs = list(csv.DictReader(file))
        means = {str(phase): _mean(epochs, phase) for phase in PARTS}
    except (OSError, KeyError, TypeError, ValueError, ZeroDivisionError):  # TypeError: a truncated last line
        return None
    try:
        exposed = _mean(epochs, "comm") - _mean(epochs, "overlap")
    except (KeyError, TypeError, ValueError):  # empty on one rank, and where DDP measures nothing
        return means
    if 0 <= exposed <= means["backward"]:
        means |= {"backward": means["backward"] - exposed, "communication": exposed}
    return means


def _mean(epochs: Sequence[dict[str, str]], phase: str) -> float:
    return math.fsum(float(row[f"{phase}_seconds"]) for row in epochs) / len(epochs)


def _warnings(timelines: Sequence[Timeline]) -> Iterator[str]:
    unknown = list(dict.fromkeys(one.source for one in timelines if one.rank is None))
    if len(unknown) > 1:
        yield f"{unknown[0]} and {len(unknown) - 1} more do not contain their rank: each counts as another rank"
    seen: dict[tuple[int | str, int | None], str] = {}
    for one in timelines:
        if (before := seen.setdefault(one.place, one.source)) != one.source:
            yield f"{one.label} is in {before} and in {one.source}: are they of one run?"

"""What an export says of the session itself: by which version, by which clock, on which devices, and what got lost."""

from __future__ import annotations

import re

from ..timeline import ProfileError
from .database import Database

ABOUT = ("META_DATA_EXPORT", "EXPORT_META_DATA")  # the same table, now and in 2022
OURS = (*ABOUT, "META_DATA_CAPTURE", "TARGET_INFO_", "ANALYSIS_", "CUPTI_ACTIVITY_KIND_", "NVTX_EVENTS")
NEWEST = (3, 25)  # EXPORT_SCHEMA_VERSION of nsys 2026.2, the newest that was looked at
WARNING, ERROR = 2, 3  # ENUM_DIAGNOSTIC_SEVERITY_LEVEL
LOST = re.compile(r"\b(?:not all|lost|dropp?ed|missing|incomplete|discarded|overflow)", re.I)
MOST = 3  # of nsys's own warnings that are repeated


def check(database: Database) -> tuple[str, ...]:
    """Remarks on the version.

    Raises:
        ProfileError: no export of Nsight Systems.
    """
    if "StringIds" not in database.tables or not any(table.startswith(OURS) for table in database.tables):
        raise ProfileError(
            f"{database.name} is a database, but no export of Nsight Systems: it has none of its tables"
        )
    about = _about(database)
    schema = str(about.get("EXPORT_SCHEMA_VERSION", ""))
    parts = re.match(r"(\d+)\.(\d+)", schema)
    if parts and (int(parts[1]), int(parts[2])) > NEWEST:
        known = ".".join(map(str, NEWEST))
        return (
            f"schema {schema} of nsys {about.get('EXPORT_PRODUCT_VERSION', '?')} is newer than {known}, the newest that is "
            "known here: what is new in it is not read",
        )
    return ()


def lost(database: Database) -> tuple[str, ...]:
    """What nsys warned of that concerns the numbers: events that it dropped or could not collect."""
    rows = database.rows("DIAGNOSTIC_EVENT", "severity", "text")
    said = dict.fromkeys(str(text) for severity, text in rows if severity == ERROR)
    said |= dict.fromkeys(str(text) for severity, text in rows if severity == WARNING and LOST.search(str(text)))
    more = (f"nsys: {len(said) - MOST} more warnings of this kind",) if len(said) > MOST else ()
    return tuple(f"nsys: {' '.join(text.split())[:200]}" for text in list(said)[:MOST]) + more


def epoch(database: Database) -> int | None:
    """ns to add to the export's times, so that they count from 1970; None: not known."""
    about = _about(database)
    shift = str(about.get("EXPORT_PARAM_TIME_SHIFT", "0"))
    shifted = int(shift) if re.fullmatch(r"-?\d{1,18}", shift) else 0
    if about.get("EXPORT_PARAM_TIME_NORMALIZE") == "true":  # nsys has added it
        return -shifted
    began = database.integers("TARGET_INFO_SESSION_START_TIME", "utcEpochNs")[0]
    return int(began[0]) - shifted if len(began) and 0 < began[0] < 2**62 else None


def _about(database: Database) -> dict[str, object]:
    return dict(row for table in ABOUT for row in database.rows(table, "name", "value"))


class Devices:
    """The models of the devices, as each process numbers them."""

    def __init__(self, database: Database) -> None:
        rows = database.rows("TARGET_INFO_GPU", "id", "name", "cuDevice")
        models = {number: str(name) for number, name, _ in rows if name}
        self._usual = {number if ordinal is None else ordinal: models.get(number, "") for number, _, ordinal in rows}
        own = database.rows("TARGET_INFO_CUDA_DEVICE", "pid", "cudaId", "gpuId")
        self._own = {(pid, ordinal): models.get(number, "") for pid, ordinal, number in own}
        self._only = next(iter(models.values())) if len(set(models.values())) == 1 else ""

    def model(self, pid: int, device: int) -> str:
        """ "" if the export does not tell."""
        return self._own.get((pid, device)) or self._only or self._usual.get(device, "")

"""What a program said of itself through NVTX: ranges of the host, whatever they are called.

NCCL marks its calls with ranges too (`ncclAllReduce`): they say when the host called, never when the device worked.
"""

from __future__ import annotations

import re

import numpy as np

from ..timeline import Ranges
from .database import UNKNOWN, Database

TABLE = "NVTX_EVENTS"
RANGES = "eventType IN (59, 60)"  # ENUM_NSYS_EVENT_TYPE: NvtxPushPopRange, NvtxStartEndRange
# What PyTorch's emit_nvtx adds to an operator's name; with it every call would have a name of its own.
_CALL = re.compile(r", (?:op_id|seq|sizes|input_op_ids) = .*", re.S)


def ranges(database: Database) -> tuple[dict[int, Ranges], int]:
    """({process: its ranges}, how many were still open when the session ended: those are left out)."""
    if TABLE not in database.tables:
        return {}, 0
    database.need(TABLE, "start", "end", "eventType", "globalTid")
    start, end, thread, number = database.integers(TABLE, "start", "end", "globalTid", "textId", where=RANGES)
    code, texts = database.words(TABLE, "text", where=RANGES)
    registered = np.unique(number[code == UNKNOWN])
    found = database.texts(registered.tolist())
    names = [*texts, *(found.get(one, "") for one in registered.tolist())]
    name = np.where(code == UNKNOWN, len(texts) + np.searchsorted(registered, number), code)

    plain: dict[str, int] = {}
    merged = np.array([plain.setdefault(_CALL.sub("", text), len(plain)) for text in names], np.int32)
    name = merged[name] if len(merged) else name.astype(np.int32)
    ended = (end != UNKNOWN) & (end >= start)
    process = thread >> 24
    by_process = {}
    for one in np.unique(process[ended]).tolist():
        chosen = np.flatnonzero(ended & (process == one))
        chosen = chosen[np.argsort(start[chosen], kind="stable")]
        by_process[one] = Ranges(start[chosen], end[chosen], name[chosen], tuple(plain), _numbered(thread[chosen]))
    return by_process, int(np.sum(~ended))


def _numbered(threads: np.ndarray) -> np.ndarray:
    """int32: the threads as they come."""
    _, first, place = np.unique(threads, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first)).astype(np.int32)[place.reshape(-1)]

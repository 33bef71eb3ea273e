"""Traces of torch.profiler for tests: real ones where this machine has them, handmade ones, and plain Python beside NumPy."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from hpc_utils import paths

# Read at import, before a fixture takes it out of a test's environment.
_MIRROR = os.environ.get("HPC_DATA_MIRROR")
_SHARED = Path(_MIRROR).absolute() if _MIRROR else paths.root().parent / "shared"
KERNELS, COPIES = ("kernel", "Kernel"), ("gpu_memcpy", "gpu_memset", "Memcpy", "Memset")


def real(name: str) -> Path:
    """A trace, or a folder of them, from real GPUs; other people's, so beside the project and not in it."""
    found = next(
        (one / "profiles/torch" / name for one in (_SHARED, _SHARED.parent) if (one / "profiles").is_dir()), None
    )
    if found is None or not found.exists():
        pytest.skip(f"no real traces beside the project at {_SHARED} (set HPC_DATA_MIRROR)")
    return found


def event(cat: str, name: str, ts: Any, dur: Any, *, pid: Any = 0, tid: Any = 7, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def kernel(name: str, ts: Any, dur: Any, *, device: int = 0, stream: int = 7, cat: str = "kernel", **args: Any):
    return event(cat, name, ts, dur, pid=device, tid=stream, device=device, stream=stream, **args)


def trace(events: Iterable[dict[str, Any]], **head: Any) -> dict[str, Any]:
    return {"schemaVersion": 1, **head, "traceEvents": list(events)}


def write(path: Path, content: Any) -> Path:
    """`content`: an object, or the text itself; packed if the name says so."""
    text = content if isinstance(content, str | bytes) else json.dumps(content)
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def brute(path: Path) -> dict[tuple[int, str], int]:
    """{(device, part): ns}, by the standard library's JSON with decimals, and by going through all moments one by one."""
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    found = json.loads(text, parse_float=Decimal, parse_int=Decimal)["traceEvents"]
    marks: dict[int, list[tuple[int, int, str]]] = {}
    for one in found:
        if one["ph"] == "X" and one.get("cat") in KERNELS + COPIES:
            start, end = int(one["ts"] * 1000), int((one["ts"] + one["dur"]) * 1000)
            kind = "memory" if one["cat"] in COPIES else "compute"
            if kind == "compute" and any(mark in one["name"].lower() for mark in ("nccl", "rccl")):
                kind = "communication"
            marks.setdefault(int(one["args"]["device"]), []).extend([(start, 1, kind), (end, -1, kind)])
    return {(device, part): ns for device, own in marks.items() for part, ns in _swept(own).items()}


def _swept(marks: list[tuple[int, int, str]]) -> dict[str, int]:
    running = dict.fromkeys(("compute", "communication", "memory"), 0)
    found = dict.fromkeys(("busy", "exposed_communication", *running), 0)
    marks = sorted(marks)
    for (moment, change, kind), (following, _, _) in zip(marks, [*marks[1:], marks[-1]], strict=True):
        running[kind] += change
        for name, number in running.items():
            found[name] += (following - moment) * (number > 0)
        found["busy"] += (following - moment) * any(running.values())
        found["exposed_communication"] += (following - moment) * (
            running["communication"] > 0 and not running["compute"]
        )
    return found | {"span": marks[-1][0] - marks[0][0]}

"""Traces of torch.profiler for tests: real ones where this machine has them, handmade ones, and plain Python beside NumPy."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable
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

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


def trained(
    path: Path, parts: Iterable[tuple], *, steps: int = 6, length: int = 20_000, rank: int = 0, ranks: int = 1
) -> Path:
    """A rank's trace of equal steps of `length` us, on an A100.

    `parts`: (kernel's name, start, duration) in us after the step's start, and if given a dict: `launch` (us, by default the step's
    start), `inside` (ranges around the launch: names), further arguments of the kernel. Names of collectives run on a stream of their own.
    """  # fmt: skip
    events = []
    for step in range(steps):
        begin = step * length
        events.append(event("user_annotation", f"ProfilerStep#{step}", begin, length, pid=9, tid=9))
        for number, (name, start, duration, *more) in enumerate(parts):
            args = dict(more[0]) if more else {}
            moment = begin + args.pop("launch", number)
            around = args.pop("inside", ())
            correlation = len(events) + 1
            events.append(event("cuda_runtime", "cudaLaunchKernel", moment, 1, pid=9, tid=9, correlation=correlation))
            events += [event(*each, moment, 2, pid=9, tid=9, **given) for *each, given in around]
            stream = 20 if "nccl" in name else 7
            events.append(kernel(name, begin + start, duration, stream=stream, correlation=correlation, **args))
    head = {"deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-80GB"}]}
    head["distributedInfo"] = {"rank": rank, "world_size": ranks, "pg_config": [{"pg_name": "0"}]}
    return write(path, trace(events, **head))

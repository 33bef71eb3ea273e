"""Time and memory to read and break down an export of Nsight Systems.

One rank's export by `synthetic_export` (schema of nsys 2026.2, three streams and NCCL's, 100 steps with NVTX ranges) with a
million kernels (`--full`: ten million) and a tenth of that, in the page cache. Each variant is a fresh process that has
imported its modules. The reference is SQLite scanning the same rows. Promise: ten million kernels within a minute and 4 GiB.

Attained on a virtual machine with 2 cores of an AMD EPYC, 2026-11-22, one round while others used both cores (load 3): a
million in 2.5 s and 0.28 GiB, ten million in 31 s and 1.7 GiB (SQLite alone: 5.5 s); making the latter took a minute.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from . import measure, synthetic_export

MINUTE, GIB = 60.0, 4.0
STEPS = 100

SCANNED = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1])
begun = time.perf_counter()
for table, columns in (("KERNEL", ("start", "end", "streamId", "demangledName")), ("RUNTIME", ("start", "correlationId"))):
    sums = ", ".join(f'sum("{column}" & 255)' for column in columns)
    connection.execute(f"SELECT {sums} FROM CUPTI_ACTIVITY_KIND_{table}").fetchone()
print(time.perf_counter() - begun, 0)
"""
READ = """
import resource, sys, time
from hpc_utils.analyze.profiles import nsys
from hpc_utils.analyze.profiles.breakdown import breakdown
begun = time.perf_counter()
[timeline] = nsys.read_report(sys.argv[1])
found = [breakdown(timeline)] if sys.argv[2] == "analysed" else []
seconds = time.perf_counter() - begun
assert all(one["communication_ns"] and one["idle_ns"] for one in found)
assert len(timeline.ops) >= int(sys.argv[3])
print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
"""


def run(options: measure.Options) -> list[measure.Row]:
    """Two sizes, the large one in one round only."""
    large = options.size(quick=10_000, default=1_000_000, full=10_000_000)
    found = []
    with measure.scratch() as folder:
        for kernels, rounds in ((large // 10, options.repeats), (large, 1)):
            path = folder / f"{kernels}.sqlite"
            synthetic_export.write_export(path, kernels=kernels, steps=STEPS)
            found += _measured(path, kernels, replace(options, repeats=rounds))
            path.unlink()
    return found


def _measured(path: Path, kernels: int, options: measure.Options) -> list[measure.Row]:
    memory: dict[str, float] = {}

    def timed(name: str, *command: str) -> Callable[[], float]:
        def measured() -> float:
            seconds, gib = measure.last_line(measure.python("-c", *command)).split()
            memory[name] = max(memory.get(name, 0.0), float(gib))
            return float(seconds)

        return measured

    variants = {
        "SQLite alone": timed("SQLite alone", SCANNED, str(path)),
        "nsys.read_report": timed("nsys.read_report", READ, str(path), "read", str(kernels)),
        "with breakdown": timed("with breakdown", READ, str(path), "analysed", str(kernels)),
    }
    size = path.stat().st_size / 2**30
    rows = measure.compare(f"{kernels:,} kernels ({size:.2g} GiB)", "wall time", "s", variants, options)
    rows = {name: row.noted(f"{memory[name]:.2g} GiB" if memory[name] else "") for name, row in rows.items()}
    last = rows["with breakdown"]
    kept = last.median < MINUTE * kernels / 10_000_000 and memory["with breakdown"] < GIB
    if kernels == 10_000_000:
        rows["with breakdown"] = last.promised("10 million kernels in a minute and 4 GiB", kept)
    return list(rows.values())

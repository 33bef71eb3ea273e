"""Time from the profiles of a run to the verdict, compared with HolisticTraceAnalysis on the same traces.

Eight ranks of a compiled run on H100s (4.8 MB compressed, 71 MB of JSON), from a folder outside the repository. `hpc explain`
is timed as a whole process; reading and breakdown are timed inside a process, after its imports, and so are the equivalent
functions of HolisticTraceAnalysis (a development requirement): reading, temporal breakdown, overlap. It counts host events of
Triton kernels as GPU work, so its numbers differ on compiled runs.

Attained on a virtual machine with 2 cores of an AMD EPYC, 2026-11-22, three rounds while others used them: `hpc explain`
1.08 s (1.03 .. 2.14), 0.87 s to 0.98 s when they paused; inside 0.59 s; HolisticTraceAnalysis 12.5 s (8.6 .. 15.5).
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from hpc_utils import paths

from . import measure

PROMISE = 1.5  # s for eight ranks, on two cores

INSIDE = """
import sys, time
from hpc_utils.analyze.profiles import readers, torch_trace
begun = time.perf_counter()
found = readers.gather(sys.argv[1:]).parts
print(time.perf_counter() - begun, len(found))
"""
HTA = """
import contextlib, io, sys, time
from hta.trace_analysis import TraceAnalysis
begun = time.perf_counter()
with contextlib.redirect_stdout(io.StringIO()):
    found = TraceAnalysis(trace_files=dict(enumerate(sys.argv[1:])))
    parts = found.get_temporal_breakdown(visualize=False)
    found.get_comm_comp_overlap(visualize=False)
print(time.perf_counter() - begun, len(parts))
"""


def run(options: measure.Options) -> list[measure.Row]:
    """The command, what it does inside, and HolisticTraceAnalysis where it is installed."""
    shared = Path(os.environ.get("HPC_DATA_MIRROR") or paths.root().parent / "shared").absolute()
    files = sorted(map(str, (shared / "profiles/torch/8xH100-compiled").glob("*.json.gz")))
    if len(files) != 8:
        raise measure.BenchmarkError(f"the eight traces are not in {shared} (set HPC_DATA_MIRROR)")
    variants = {
        "hpc explain --json": lambda: measure.wall_time([*measure.hpc(), "explain", "--json", *files]),
        "reading and breakdown": _inside([sys.executable, "-c", INSIDE, *files]),
    }
    if importlib.util.find_spec("hta"):
        variants["HolisticTraceAnalysis"] = _inside([sys.executable, "-W", "ignore", "-c", HTA, *files])
    rows = measure.compare("8 ranks", "wall time", "s", variants, options)
    first = rows["hpc explain --json"]
    rows["hpc explain --json"] = first.promised(f"under {PROMISE} s", first.median < PROMISE)
    return list(rows.values())


def _inside(command: list[str]):
    def measured() -> float:
        seconds, ranks = measure.last_line(command).split()
        if int(ranks) != 8:
            raise measure.BenchmarkError(f"{ranks} of 8 ranks were read")
        return float(seconds)

    return measured

"""Start-up time of the command `hpc`, compared with `import torch`.

Processes are timed by the wall clock, imports from inside; 5 rounds in alternation.

Attained on a quiet virtual machine with 2 cores of an AMD EPYC, torch 2.13.0, 2026-11-21: `hpc --help` 0.041 s (0.040 ..
0.043) without importing torch; `import torch` 1.09 s.
"""

from __future__ import annotations

from . import measure

PROMISE = 0.3  # s

LOADED = """
import sys
from hpc_utils.cli import main
main(["--help"], standalone_mode=False)
print("torch" in sys.modules)
"""
TIMED = "import time; begun = time.perf_counter(); import {}; print(time.perf_counter() - begun)"


def run(options: measure.Options) -> list[measure.Row]:
    """Time whole processes, and the imports of three modules."""
    processes = measure.compare(
        "process",
        "wall time",
        "s",
        {
            "python -c pass": lambda: measure.wall_time(measure.python("-c", "pass")),
            "hpc --help": lambda: measure.wall_time([*measure.hpc(), "--help"]),
            'python -c "import torch"': lambda: measure.wall_time(measure.python("-c", "import torch")),
        },
        options,
    )
    quick = processes["hpc --help"]
    torch_free = measure.last_line(measure.python("-c", LOADED)) == "False"
    processes["hpc --help"] = quick.promised(
        f"under {PROMISE} s, and torch is not imported", quick.median < PROMISE and torch_free
    )
    imports = measure.compare(
        "import",
        "wall time",
        "s",
        {name: _importing(name) for name in ("hpc_utils.config", "hpc_utils.records", "hpc_utils.train")},
        options,
    )
    return [*processes.values(), *imports.values()]


def _importing(module: str):
    return lambda: float(measure.last_line(measure.python("-c", TIMED.format(module))))

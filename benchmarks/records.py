"""How long it takes to load and collect thousands of runs.

2,000 copies of one real run of 5 epochs, in the page cache, each reading in a fresh process after `import pandas`;
5 rounds in alternation. The reference only opens and reads the same files.

Attained on a virtual machine with 2 cores of an AMD EPYC, 2026-11-21, while others used it (load 2): `load` 0.54 s
(0.27 ms a run), `collect` 0.71 s (0.36 ms a run); reading the bytes 0.10 s.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from . import measure

TIMED = """
import sys, time
from pathlib import Path
from hpc_utils import records
import pandas
results = Path(sys.argv[1])
begun = time.perf_counter()
found = records.{function}(results)
print(time.perf_counter() - begun, len(found.runs), len(found.refused))
"""
# What any reader of these files pays: opening and reading them.
BYTES = """
import sys, time
from pathlib import Path
results = Path(sys.argv[1])
begun = time.perf_counter()
for folder in sorted((results / "runs").iterdir()):
    for name in ("status.json", "run.json", "provenance.json", "epochs.csv", "ranks.csv"):
        (folder / name).read_bytes()
print(time.perf_counter() - begun, {runs}, 0)
"""


def run(options: measure.Options) -> list[measure.Row]:
    """One real run, copied under new ids, then read by fresh processes."""
    with measure.scratch() as results:
        _populate(results, options.runs)
        rows = measure.compare(
            f"{options.runs:,} runs",
            "wall time",
            "s",
            {
                "reading their bytes": _reading(BYTES.format(runs=options.runs), results, options.runs),
                "records.load": _reading(TIMED.format(function="load"), results, options.runs),
                "records.collect": _reading(TIMED.format(function="collect"), results, options.runs),
            },
            options,
        )
    notes = {name: f"{row.median / options.runs * 1e3:.3g} ms a run" for name, row in rows.items()}
    return [row.noted(notes[name]) for name, row in rows.items()]


def _populate(results: Path, count: int) -> None:
    command = measure.python("-m", "hpc_utils.train", "workload=cnn", "dataset=digits", "parallel=none")
    real = Path(measure.last_line([*command, "epochs=5"], results))
    description = json.loads((real / "run.json").read_text())
    for number in range(1, count):
        copy = real.with_name(f"{real.name[:-8]}{number:08x}")
        shutil.copytree(real, copy)
        (copy / "run.json").write_text(json.dumps(description | {"run_id": copy.name}, indent=2) + "\n")


def _reading(script: str, results: Path, expected: int):
    def measured() -> float:
        answer = measure.last_line(measure.python("-c", script, str(results)))
        seconds, loaded, refused = answer.split()
        if int(loaded) != expected or int(refused):
            raise measure.BenchmarkError(f"{loaded} of {expected} runs were loaded, {refused} refused")
        return float(seconds)

    return measured

"""Time to load, collect and analyse thousands of runs.

1,000 runs (`--full`: 10,000) of 5 epochs, derived from a real one: strong and weak curves over seven layouts of 1 to 12 ranks,
three repeats each, with 2 % noise. They are in the page cache; each variant is a fresh process that has imported pandas. The
reference only reads the same files. `analysis` covers points, efficiency, memory, variation, targets, findings and the
workshop's table.

Attained on a virtual machine with 2 cores of an AMD EPYC, 2026-11-22, one round each while others used both cores (load
2 to 3, so within a factor of two): `load` 8.4 s (0.84 ms a run), analysis 2.8 s and 5.3 s (0.28 and 0.53 ms a run),
`collect` 17 s; reading the bytes 1.4 s.
"""

from __future__ import annotations

import csv
import json
import random
import shutil
from pathlib import Path

from hpc_utils.records import RunFolder

from . import measure

LAYOUTS = [("none", 1, 1), ("ddp", 1, 1), ("ddp", 1, 2), ("ddp", 1, 4), ("ddp", 1, 8), ("ddp", 2, 4), ("ddp", 3, 4)]
REPEATS = 3

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
ANALYSED = """
import sys, time
from pathlib import Path
from hpc_utils import records
import pandas
found = records.load(Path(sys.argv[1]))
begun = time.perf_counter()
from hpc_utils.analyze import anomalies, points, scaling, targets
table = scaling.efficiency(found.runs)
made = [points.gather(found.runs), table, scaling.memory(found.runs), scaling.variation(table), targets.judge(table)]
made += [anomalies.find_anomalies(found.runs), scaling.workshop(found.runs), scaling.precision_gain(found.runs)]
seconds = time.perf_counter() - begun
assert len(made[0]) >= len(found.runs) / 3, "one row a configuration"
print(seconds, len(found.runs), len(found.refused))
"""
# The reference: opening and reading the files.
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
    """Derive many runs from a real one, and read them in fresh processes."""
    count = options.size(quick=150, default=1_000, full=10_000)
    with measure.scratch() as results:
        _populate(results, count)
        rows = measure.compare(
            f"{count:,} runs",
            "wall time",
            "s",
            {
                "reading their bytes": _reading(BYTES.format(runs=count), results, count),
                "records.load": _reading(TIMED.format(function="load"), results, count),
                "analysis": _reading(ANALYSED, results, count),
                "records.collect": _reading(TIMED.format(function="collect"), results, count),
            },
            options,
        )
    notes = {name: f"{row.median / count * 1e3:.3g} ms a run" for name, row in rows.items()}
    return [row.noted(notes[name]) for name, row in rows.items()]


def _populate(results: Path, count: int) -> None:
    """Write `count` consistent runs, derived from a real one with other ranks and times."""
    command = measure.python("-m", "hpc_utils.train", "workload=cnn", "dataset=digits", "parallel=none")
    real = Path(measure.last_line([*command, "epochs=5", "steps_per_epoch=10", "global_batch=192"], results))
    recorded = json.loads((real / "run.json").read_text())
    epochs, ranks = (_rows(real / name) for name in ("epochs.csv", "ranks.csv"))
    draw = random.Random(0)
    for number in range(count):
        copy = real.with_name(f"{real.name[:-8]}{number:08x}")
        shutil.copytree(real, copy)
        curve, position = divmod(number, len(LAYOUTS) * REPEATS)
        parallel, nodes, per_node = LAYOUTS[position // REPEATS]
        world, weak = nodes * per_node, curve % 2
        grown, slower = world if weak else 1, draw.gauss(1.0, 0.02) * (1 if weak else 1 / world) * (1 + 0.01 * world)
        batch = recorded["global_batch"] * grown
        config = recorded["config"] | {"parallel": parallel, "repeat": position % REPEATS + 1, "lr": 0.01 + curve}
        about = {"run_id": copy.name, "config": config, "world_size": world, "nodes": nodes, "oversubscribed": False}
        about |= {"ranks_per_node": per_node, "global_batch": batch, "batch_per_device": batch // world}
        (copy / "run.json").write_text(json.dumps(recorded | about, indent=2) + "\n")
        _write(copy / "epochs.csv", [_scaled(row, grown, slower) for row in epochs])
        _write(copy / "ranks.csv", [_scaled(ranks[0], grown / world, slower) | {"rank": n} for n in range(world)])
        RunFolder(copy).set_status("complete")
    shutil.rmtree(real)


def _scaled(row: dict[str, str], samples: float, seconds: float) -> dict[str, str]:
    scaled = row | {
        "samples": f"{int(row['samples']) * samples:.0f}",
        "seconds": repr(float(row["seconds"]) * seconds),
    }
    if "throughput" in row:
        scaled["throughput"] = repr(int(scaled["samples"]) / float(scaled["seconds"]))
    return scaled


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _write(path: Path, rows: list[dict[str, str]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _reading(script: str, results: Path, expected: int):
    def measured() -> float:
        answer = measure.last_line(measure.python("-c", script, str(results)))
        seconds, loaded, refused = answer.split()
        if int(loaded) != expected or int(refused):
            raise measure.BenchmarkError(f"{loaded} of {expected} runs were loaded, {refused} refused")
        return float(seconds)

    return measured

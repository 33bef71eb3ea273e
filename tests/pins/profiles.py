"""The numbers that are pinned of profiles: our own, and real ones of others in the folder that HPC_DATA_MIRROR names."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from hpc_utils import paths
from hpc_utils.analyze import ablation, stats
from hpc_utils.analyze.profiles import collectives, ncu, phases, profiled_runs, readers
from hpc_utils.analyze.profiles import verdict as limits
from hpc_utils.analyze.profiles.devices import FEW_OPERATIONS, Devices
from hpc_utils.analyze.profiles.verdict import Verdict

from . import Pins, Rows
from .rows import known, rows

if TYPE_CHECKING:
    from .numbers import ResultSet

PROFILES = Path(os.environ.get("HPC_DATA_MIRROR") or paths.root().parent / "shared") / "profiles"

# A configuration of our own, and the same with what its verdict advises.
ADVICE = [("items", "worker"), ("items", "batches"), ("small-steps", "two-batches"), ("resnet", "resnet-ddp")]
SPANS = "span_ns busy_ns compute_ns communication_ns exposed_communication_ns memory_ns loader_wait_ns"
SHARES = "busy computing exposed wire waiting loader outside remaining late copies steps median_kernel"
WAITS = "wire_ns waiting_ns exposed_wire_ns exposed_waiting_ns last"


def of_set(own: ResultSet) -> Pins:
    """Our own profiled runs: where their steps go, the verdicts, and what following the advice gave."""
    asked = [run.model_dump() for index in own.studies.values() for run in index.runs]
    ours = profiled_runs.configurations(own.folder, own.runs, asked)
    parts, judged, gains = {}, {}, {}
    for name, one in ours.items():
        found, verdicts = list(one.reports.values()), list(one.verdicts.values())
        totals = [sum(each.phases.values()) for each in found]
        split = {
            phase: stats.median([each.phases[phase] / total for each, total in zip(found, totals, strict=True)])
            for phase in found[0].phases
        }
        parts[name] = known({phase: list(share[:3]) for phase, share in split.items()} | {"step": median(totals)})
        judged[name] = _verdicts(verdicts)
    for before, after in ADVICE:
        first, second = ours[before].plain, ours[after].plain
        pairs = second.merge(first, on="repeat", suffixes=("", "_before"))
        gain = stats.median(pairs.throughput / pairs.throughput_before)
        verdict = ablation.verdict(gain.low, gain.high)
        gains[f"{before} to {after}"] = known({"gain": list(gain[:3]), "repeats": gain.repeats, "verdict": verdict})
    return {"phases": parts, "verdicts": judged, "advice followed": gains}


def _verdicts(verdicts: list[Verdict]) -> dict:
    """The commonest of the repeats' verdicts, how sure the least sure is, and what the advice gives at most."""
    bound, times = Counter(one.bound for one in verdicts).most_common(1)[0]
    alike = [one for one in verdicts if one.bound == bound]
    least = min(alike, key=lambda one: one.confidence)
    promised = {}
    for number in range(len(least.advice)):
        most = [one.advice[number].at_most for one in alike if len(one.advice) > number]
        if None not in most:
            promised[f"gain_at_most_{number + 1}"] = list(stats.median(most)[:3])
    sure = {"certainty": least.certainty, "confidence": least.confidence}
    return known({"bound": bound, "agreeing": times, "judged": len(verdicts)} | sure | promised)


def here(folder: Path = PROFILES) -> dict[str, Path]:
    """The profiles in the folder of real ones, by path; a folder of files is one run's."""
    found = [path for kind in ("nsys", "torch", "ncu") for path in sorted((folder / kind).glob("*"))]
    opened = [path for path in found if path.suffix != ".nsys-rep" or readable()]
    return {path.relative_to(folder).as_posix(): path for path in opened}


def readable() -> bool:
    """Whether there is an nsys to open reports with."""
    return shutil.which("nsys") is not None


def profile(path: Path) -> Rows:
    """What `hpc explain --json` prints of a profile, and the shares that the text on bottlenecks quotes."""
    command = [sys.executable, "-m", "hpc_utils.cli", "explain", "--json", str(path)]
    explained = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=240).stdout)
    found = rows(explained["ranks"], "rank device", SPANS)
    verdict = {name: explained["verdict"][name] for name in ("bound", "confidence", "certainty")}
    promised = {
        f"gain_at_most_{number}": one["at_most"] for number, one in enumerate(explained["verdict"]["advice"], 1)
    }
    found["verdict"] = known(verdict | promised)
    if not explained["ranks"]:
        counted = ncu.read_kernels(path).rename_axis("number").reset_index()
        return found | rows(counted, "name number", "duration_ns sm_share memory_share dram_share tensor_share")
    reports = readers.gather([path])
    timelines = reports.timelines
    devices = Devices(reports)
    marked = [phases.steps(one.ranges) for one in timelines]
    steps = [ns for start, end in marked for ns in (end - start).tolist()]
    of_steps = {"step_ns": median(steps), "mean_step_ns": sum(steps) / len(steps)} if steps else {}
    few = {"few_operations": devices.class_share(FEW_OPERATIONS)}
    shares = devices.shares | {"steps": devices.marked_steps, "median_kernel": devices.median_kernel}
    found["devices"] = known({name: shares[name] for name in SHARES.split()} | few | of_steps)
    if devices.matched:
        waits = rows(collectives.collectives_table(timelines), "rank device", WAITS)
        found |= {f"collectives {key}": row for key, row in waits.items()}
    if one := devices.straggler:
        found["straggler"] = known(
            {"label": one.label, "caused": one.caused, "last": one.last, "turns": one.of, "behind_ns": one.behind_ns}
        )
    return found


def thresholds() -> Rows:
    names = ("UTILISATION", "EXPOSED", "WAITING", "LOADER", "COPIES", "LOW_INTENSITY", "EFFICIENCY", "HIGH", "MEDIUM")
    return {name.lower(): {"share": getattr(limits, name)} for name in names}

"""The numbers that are pinned: of each committed result set, of the plan, and of real profiles. The only file to follow a rename."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from statistics import median

import pandas as pd
from threadpoolctl import threadpool_info

from hpc_utils import paths, records
from hpc_utils.analyze import (
    accuracy,
    bottleneck,
    bounds,
    budget,
    comparison,
    cost,
    equivalence,
    factorial,
    findings,
    ladder,
    link,
    misfit,
    ncu,
    peak_rate,
    peaks,
    perfmodel,
    predictor,
    recommend,
    reports,
    roofline,
    scaling,
    shares,
    stats,
    targets,
    verdict,
    watched,
    work,
    workshop,
)
from hpc_utils.analyze.measures import FEW_OPERATIONS, Devices
from hpc_utils.analyze.points import gather
from hpc_utils.analyze.timeline import collectives, phases
from hpc_utils.analyze.value import Value
from hpc_utils.launch import cluster, forecast, submit
from hpc_utils.launch import study as studies
from hpc_utils.publish import workplan
from hpc_utils.records import probes

from . import BLAS, Pins, Rows
from .rows import known, rows

PROFILES = Path(os.environ.get("HPC_DATA_MIRROR") or paths.root().parent / "shared") / "profiles"

WORK = "workload precision"
SIZE = "parallel layout batch_per_device global_batch link_gbit"


class ResultSet:
    """One of the committed sets, read once."""

    def __init__(self, name: str) -> None:
        self.folder = paths.reference() / name
        # What tells its runs apart beside the columns that the functions below name.
        self.work = f"{WORK} threads_per_rank share_period steps_per_epoch" if name == "shares" else WORK

    @cached_property
    def found(self) -> records.Records:
        return records.load(self.folder)

    @cached_property
    def runs(self) -> pd.DataFrame:
        return self.found.runs

    @cached_property
    def usual(self) -> pd.DataFrame:
        """Without those over limited links, which are for the model."""
        return self.runs[self.runs.link_gbit.isna()]

    @cached_property
    def studies(self) -> dict[str, dict]:
        names = sorted(path.stem for path in (self.folder / "studies").glob("*.json"))
        return {name: records.read_study(name, self.folder) for name in names}

    @cached_property
    def links(self) -> pd.DataFrame:
        return link.table(list(probes.read("allreduce", self.folder)))


# -- runs, curves, shares, costs ----------------------------------------------------------------------------------


def counts(own: ResultSet) -> Pins:
    total = cost.total(own.runs, own.found.epochs)
    lost = {"refused": len(own.found.refused), "unfinished": len(own.found.unfinished)}
    spent = {"hours": total.hours, "device_hours": total.device_hours, "core_hours": total.core_hours}
    found = {"all": _counted(own.runs) | lost | spent}
    for name, index in own.studies.items():
        found[name] = _counted(own.runs[own.runs.run_id.isin({run["run_id"] for run in index["runs"]})])
    return {"runs": found}


def _counted(runs: pd.DataFrame) -> dict:
    repeats = gather(runs).repeats
    return {"runs": len(runs), "configurations": len(repeats), "repeats": [int(repeats.min()), int(repeats.max())]}


def curves(own: ResultSet) -> Pins:
    curve, point, usual = f"{own.work} kind batch", f"{own.work} {SIZE}", own.usual
    one = workshop.rows(usual)
    one = one[(one.world_size == 1) & (one.parallel != "none")]
    efficiency = scaling.efficiency(usual)
    memory = scaling.memory(usual)
    memory = memory[(memory.statistic == "peak") & (memory.baseline == "none")]
    aims = targets.Targets.of(next(iter(own.studies.values()))) if len(own.studies) == 1 else targets.Targets()
    return {
        "efficiency": rows(
            efficiency[efficiency.world_size > 1], f"{curve} scheme baseline layout", efficiency="efficiency low high",
            repeats="repeats",
        ),
        "one rank with a group": rows(one, f"{curve} parallel", efficiency="efficiency low high"),
        "throughput": rows(scaling.throughput(usual), point, throughput="throughput low high", repeats="repeats"),
        "precision gain": rows(scaling.precision_gain(usual), point, gain="gain low high", repeats="repeats"),
        "precision efficiency": rows(scaling.efficiency_ratio(usual), f"{curve} layout", ratio="ratio low high"),
        "before and after": rows(
            scaling.before_after(usual), point, gain="gain low high", throughput="throughput_before throughput",
            utilisation="utilisation_before utilisation",
        ),
        "memory": rows(memory, f"{curve} parallel layout", bytes="bytes", ratio="ratio low high"),
        "targets": rows(
            targets.judge(efficiency, aims), curve, required="required", at="at_ranks", ranks="ranks", value="value low high",
            verdict="verdict",
        ),
        "accuracy": rows(accuracy.final(usual), point, accuracy="accuracy low high"),
        "findings": rows(
            findings.findings(own.runs), f"finding {curve} baseline {SIZE}", value="value low high"
        ),
    }  # fmt: skip


def core_shares(own: ResultSet) -> Pins:
    fair = shares.against_whole_cores(own.usual, own.found.epochs)
    keys = "workload precision parallel nodes world_size batch_per_device cores period"
    return {
        "shares of a core": rows(
            fair, keys, deviation="deviation deviation_low deviation_high", step="step_seconds low high", spread="spread",
            repeats="repeats",
        )
    }  # fmt: skip


def costs(own: ResultSet) -> Pins:
    spent = cost.to_finish(own.runs, own.found.epochs, cluster.prices(own.runs.hardware_id.unique()))
    spent["layout"] = [f"{nodes:g}x{each:g}" for nodes, each in zip(spent.nodes, spent.ranks_per_node, strict=True)]
    found = rows(
        spent, f"{own.work} {SIZE}", wall_seconds="wall_seconds wall_seconds_low wall_seconds_high",
        device_hours="device_hours device_hours_low device_hours_high", core_hours="core_hours", efficiency="efficiency",
    )  # fmt: skip
    advice: Rows = {}
    alike = spent[spent.seconds.notna() & spent.link_gbit.isna()]
    for name, group in alike.groupby(["workload", "dataset"]):
        if len(group) > 1:
            chosen = recommend.recommend(group).assign(of=name[0])
            advice |= rows(
                chosen,
                "of purpose",
                precision="precision",
                parallel="parallel",
                ranks="world_size",
                batch="global_batch",
            )
    return {"cost of equal work": found, "recommended": advice}


# -- links and the model of a step --------------------------------------------------------------------------------


def model(own: ResultSet) -> Pins:
    """As chapter 03 fits and asks it."""
    held, most_ranks, worlds = [3.0, 0.3], 4, [2**n for n in range(1, 11)]
    family = max(perfmodel.families(own.runs).items(), key=lambda one: one[1].link_gbit.nunique())[1]
    hardware = family.hardware_id.iloc[0]
    points = perfmodel.points(family, gbit=cluster.link_gbits(family.hardware_id).get(hardware, math.inf))
    alone = work.of(family, own.found.epochs, list(probes.read("compute", own.folder)))
    options = {"intra_gbit": link.inside(own.links, hardware), "bucket_mb": family.bucket_mb.iloc[0]}
    reach = link.reach(own.links, hardware, without=held)
    fitted, errors = perfmodel.held_out(points, alone, held, most_ranks=most_ranks, reach=reach, **options)

    def missed(frame: pd.DataFrame) -> dict:
        middle, worst = misfit.of(frame, points)
        ends = {"median_error": list(middle[:3]), "worst_error": list(worst[:3])}
        return known({"count": len(frame), "repeats": middle.repeats} | ends)

    away = errors[errors.held_out]
    inside = int(away.measured.between(away.low, away.high).sum())
    laws = comparison.compare(errors, most_ranks)
    whole = perfmodel.fit(points, alone, reach=link.reach(own.links, hardware), **options)
    batch, many = points.batch_per_device.max(), points[points.nodes > 1]
    each = int((many if len(many) else points).ranks_per_node.max())
    ahead = pd.concat(
        whole.scaling(kind, size, worlds, ranks_per_node=each, gbit=gbit)
        for kind, size in (("strong", 8 * batch), ("weak", batch))
        for gbit in (100.0, 10.0, 1.0)
    )
    grid = "grouped nodes ranks_per_node batch_per_device gbit"
    return {
        "links": rows(
            own.links, "nodes ranks_per_node group link_gbit", latency="latency latency_low latency_high",
            bandwidth="bandwidth bandwidth_low bandwidth_high", misfit="residual", worst="worst",
        ),
        "model: costs": rows(fitted.table(), "cost", value="value low high"),
        "model: steps": rows(
            errors, grid, measured="measured measured_low measured_high", predicted="seconds low high", error="error",
            bottleneck="bottleneck", held_out="held_out",
        ),
        "model: errors": {"held out": missed(away) | {"inside": inside}, "fitted": missed(errors[~errors.held_out])}
        | {law: missed(frame) for law, frame in laws.groupby("law")},
        "model: fit": {"all": known({"scatter": fitted.residual, "gradient_bytes": alone.gradient_bytes})},
        "model: more ranks": rows(
            ahead[ahead.world_size > 1], "kind gbit world_size", efficiency="efficiency efficiency_low efficiency_high",
            seconds="seconds", limit="bottleneck",
        ),
    }  # fmt: skip


# -- the ladder and the factorial ---------------------------------------------------------------------------------


def ladders(own: ResultSet) -> Pins:
    found: Pins = {}
    for name, index in own.studies.items():
        if not index.get("ladder"):
            continue
        runs, epochs = own.runs, own.found.epochs
        gains = ladder.gains(runs, index)
        for kind in ("alone", "marginal", "together"):
            gains[f"{kind}_verdict"] = [
                ladder.verdict(*ends) for ends in zip(gains[f"{kind}_low"], gains[f"{kind}_high"], strict=True)
            ]
        several = [f"{kind}{end}" for kind in ("alone", "marginal", "together") for end in ("", "_verdict")]
        columns = {one: one if "verdict" in one else f"{one} {one}_low {one}_high" for one in several}
        best = ladder.best(runs, index)
        labels = {series: step for step, series in ladder.path(index)[1:]} | {best.series: best.name}
        learnt = pd.concat([equivalence.table(runs, epochs, index, labels={one: to}) for one, to in labels.items()])
        climbed, floor = ladder.rungs(runs, index), []
        for step, series in ladder.path(index):
            floor.append(roofline.attained(climbed[climbed.series == series]).assign(step=step))
        found |= {
            f"{name}: gains": rows(gains, "step", **columns, memory="memory", warmup="warmup", repeats="repeats"),
            f"{name}: best": {
                "all": known(
                    {"name": best.name, "steps": " + ".join(best.steps), "gain": list(best.gain[:3]), "repeats": best.gain.repeats}
                )
            },
            f"{name}: learnt": rows(
                learnt, "measure step", plain="plain", changed="changed", difference="difference low high", margin="margin",
                verdict="verdict", repeats="repeats",
            ),
            f"{name}: rungs": rows(
                ladder.speeds(runs, index), "label", throughput="throughput low high", step_ms="step_ms", memory="memory_bytes",
                warmup="warmup",
            ),
            f"{name}: phases": rows(
                ladder.profile(runs, epochs, index), "step", **{phase: phase for phase in work.PHASES}
            ),
            f"{name}: operations": rows(
                pd.concat(floor), "step", per_sample="flops_per_sample",
                per_second="flops_per_second flops_per_second_low flops_per_second_high",
            ),
        }  # fmt: skip
    return found


def factorials(own: ResultSet) -> Pins:
    found: Pins = {}
    for name, index in own.studies.items():
        for series, design in factorial.designs(own.runs, index).items():
            design, stem = factorial.complete(design), f"{name} {series}"
            best = factorial.best(design, targets.Targets.of(index).sensitivity_gain)
            point = ", ".join(f"{knob}={value}" for knob, value in best.point.items())
            repeats = design.values.repeat.nunique()
            found |= {
                f"{stem}: effects": rows(factorial.effects(design), "effect", share="share", p="p", beyond="beyond"),
                f"{stem}: levels": rows(factorial.main_effects(design), "factor level", gain="gain low high"),
                f"{stem}: pairs": rows(
                    factorial.interactions(design).dropna(subset=["low"]), "first first_level second second_level",
                    beyond="beyond low high",
                ),
                f"{stem}: best": {
                    "all": known(
                        {"point": point, "gain": [best.gain, best.low, best.high], "repeats": repeats, "verdict": best.verdict}
                    )
                },
            }  # fmt: skip
    return found


# -- profiles -----------------------------------------------------------------------------------------------------


def own_profiles(own: ResultSet) -> Pins:
    """Our own profiled runs: where their steps go, the verdicts, and what following the advice gave."""
    asked = [run for index in own.studies.values() for run in index["runs"]]
    ours = {one.name: one for one in watched.configurations(own.runs, asked)}
    parts, judged, gains = {}, {}, {}
    for name, one in ours.items():
        found = [reports.gather([own.folder / "runs" / run]) for run in one.runs]
        said = [bottleneck.judge(each.timelines, phase_seconds=each.phases) for each in found]
        totals = [sum(each.phases.values()) for each in found]
        split = {
            phase: stats.median([each.phases[phase] / total for each, total in zip(found, totals, strict=True)])
            for phase in found[0].phases
        }
        parts[name] = known({phase: list(share[:3]) for phase, share in split.items()} | {"step": median(totals)})
        judged[name] = _verdicts(said)
    for before, after in (
        ("items", "worker"),
        ("items", "batches"),
        ("small-steps", "two-batches"),
        ("resnet", "resnet-ddp"),
    ):
        first, second = ours[before].plain, ours[after].plain
        gain = stats.median([second[repeat][1] / first[repeat][1] for repeat in sorted(first.keys() & second.keys())])
        told = ladder.verdict(gain.low, gain.high)
        gains[f"{before} to {after}"] = known({"gain": list(gain[:3]), "repeats": gain.repeats, "verdict": told})
    return {"phases": parts, "verdicts": judged, "advice followed": gains}


def _verdicts(said: list[verdict.Verdict]) -> dict:
    """The commonest of the repeats' verdicts, how sure the least sure is, and what the advice gives at most."""
    bound, times = Counter(one.bound for one in said).most_common(1)[0]
    alike = [one for one in said if one.bound == bound]
    least = min(alike, key=lambda one: one.confidence)
    promised = {}
    for number in range(len(least.advice)):
        most = [one.advice[number].at_most for one in alike if len(one.advice) > number]
        if None not in most:
            promised[f"gain_at_most_{number + 1}"] = list(stats.median(most)[:3])
    sure = {"certainty": least.certainty, "confidence": least.confidence}
    return known({"bound": bound, "agreeing": times, "judged": len(said)} | sure | promised)


def profiles_here(folder: Path = PROFILES) -> dict[str, Path]:
    """The profiles in the folder of real ones, by path; a folder of files is one run's."""
    found = [path for kind in ("nsys", "torch", "ncu") for path in sorted((folder / kind).glob("*"))]
    return {
        path.relative_to(folder).as_posix(): path
        for path in found
        if path.is_dir() or ".nsys-rep" not in path.name or readable()
    }


def readable() -> bool:
    """Whether there is an nsys to open reports with."""
    return shutil.which("nsys") is not None


def profile(path: Path) -> Rows:
    """What `hpc explain --json` says of a profile, and the shares that the text on bottlenecks quotes."""
    command = [sys.executable, "-m", "hpc_utils.cli", "explain", "--json", str(path)]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=240).stdout)
    found: Rows = rows(
        said["ranks"], "rank device",
        **{name: name for name in (
            "span_ns", "busy_ns", "compute_ns", "communication_ns", "exposed_communication_ns", "memory_ns", "loader_wait_ns",
        )},
    )  # fmt: skip
    told = {name: said["verdict"][name] for name in ("bound", "confidence", "certainty")}
    promised = {f"gain_at_most_{number}": one["at_most"] for number, one in enumerate(said["verdict"]["advice"], 1)}
    found["verdict"] = known(told | promised)
    if not said["ranks"]:
        counted = ncu.read(path).rename_axis("number").reset_index()
        shares_of = {name: f"{name}_share" for name in ("sm", "memory", "dram", "tensor")}
        return found | rows(counted, "name number", duration_ns="duration_ns", **shares_of)
    timelines = reports.gather([path]).timelines
    devices = Devices.of([one for one in timelines if one.ops is not None and len(one.ops)])
    names = (
        "busy",
        "computing",
        "exposed",
        "wire",
        "waiting",
        "loader",
        "outside",
        "remaining",
        "late",
        "copies",
        "steps",
        "median_kernel",
    )
    steps = [ns for one in timelines for ns in phases.steps(one).host_ns.tolist()]
    of_steps = {"step_ns": median(steps), "mean_step_ns": sum(steps) / len(steps)} if steps else {}
    few = {"few_operations": devices.class_share(FEW_OPERATIONS)}
    found["devices"] = known({name: getattr(devices, name) for name in names} | few | of_steps)
    if devices.matched:
        found |= {
            f"collectives {key}": row
            for key, row in rows(
                collectives.table(timelines), "rank device",
                **{name: name for name in ("wire_ns", "waiting_ns", "exposed_wire_ns", "exposed_waiting_ns", "last")},
            ).items()
        }  # fmt: skip
    if one := devices.straggler:
        found["straggler"] = known(
            {"label": one.label, "caused": one.caused, "last": one.last, "turns": one.of, "behind_ns": one.behind_ns}
        )
    return found


def thresholds() -> Rows:
    names = ("UTILISATION", "EXPOSED", "WAITING", "LOADER", "COPIES", "LOW_INTENSITY", "EFFICIENCY", "HIGH", "MEDIUM")
    return {name.lower(): {"share": getattr(verdict, name)} for name in names}


# -- claims and the plan ------------------------------------------------------------------------------------------

# What the paper claims of a set's own rows: subject, row, quantity, and the bound.
LAPTOP = "fixed_batch=512 scheme=ddp baseline=none layout=1x2"
CLAIMS: dict[str, list[tuple[str, str, str, str, float]]] = {
    "epyc-2core": [
        ("efficiency", f"workload=cnn precision=bf16 kind=strong {LAPTOP}", "efficiency", "at_least", 0.7),
        ("efficiency", f"workload=cnn precision=fp32 kind=strong {LAPTOP}", "efficiency", "at_least", 0.7),
        ("precision gain", "workload=cnn precision=bf16 parallel=none layout=1x1 device_batch=512 batch=512", "gain", "at_least", 1.4),
    ],
    "epyc-avx512": [
        ("optimization-cpu: best", "all", "gain", "at_least", 3.0),
        ("optimization-cpu: gains", "step=bf16", "marginal", "at_least", 1.2),
        ("optimization-cpu: gains", "step=compile", "marginal", "at_most", 1.0),
        ("optimization-resnet-cpu: best", "all", "gain", "at_least", 1.8),
        ("sensitivity-cpu sensitivity: best", "all", "gain", "at_least", 1.2),
    ],
    "rehearsal": [
        ("model: errors", "held out", "median_error", "at_most", 0.05),
        ("model: errors", "held out", "worst_error", "at_most", 0.1),
    ],
}  # fmt: skip


def claims(name: str, pins: Pins) -> Rows:
    found: Rows = {}
    for subject, row, quantity, kind, bound in CLAIMS[name]:
        value, low, high = pins[subject][row][quantity]
        given = Value("a.claim", value, "ratio", "", low, high, pins[subject][row]["repeats"])
        decided, _ = bounds.decide(given, bounds.Bound(kind, bound), min_repeats=3)
        found[f"{subject}, {row}: {quantity} {kind} {bound}"] = {"verdict": decided}
    return found


def plan() -> Pins:
    """What the planned studies take, as chapter 07 predicts it from the operations counted in one set."""
    own, planned = ResultSet("epyc-avx512"), workplan.read(paths.root() / "paper/plan.toml")
    site = cluster.read("leonardo")
    node, seen, estimates, prices = site.node(), set(), {}, {}
    predict = predictor.predictor(
        own.runs, own.found.epochs, probes.read("compute", own.folder), gbit=site.network.link_gbit or math.inf
    )
    roughly = peak_rate.predictor(own.runs, peaks.find("A100 40GB"))
    for name in planned.studies:
        one = studies.plan(name, submit.place_on(site, node, name), needs_data=False)
        points = [point for point in forecast.points(one) if point["run_id"] not in seen]
        seen |= {point["run_id"] for point in points}
        prices[one.place.hardware] = node
        estimates[name] = budget.estimate(
            points, own.runs, own.found.epochs, limit=site.slurm.seconds, predict=predict, roughly=roughly
        )
    estimates["all"] = pd.concat(estimates.values(), ignore_index=True)
    found: Rows = {}
    for name, frame in estimates.items():
        total = budget.total(frame, prices) | {
            "nodes": int(frame.nodes.max()),
            "devices": int(frame.world_size.max()),
        }
        ends = {one: f"{one} {one}_low {one}_high" for one in ("hours", "node_hours", "device_hours", "cost")}
        found |= rows([total | {"study": name}], "study", runs="runs", nodes="nodes", devices="devices", **ends)
    attained = {"attained": {"share": list(peak_rate.ATTAINED)}, "contingency": {"share": planned.contingency}}
    return {"plan": found, "allowances": attained}


SETS: dict[str, Iterable[Callable[[ResultSet], Pins]]] = {
    "epyc-2core": (counts, curves),
    "epyc-avx512": (counts, ladders, factorials),
    "epyc-avx512-profiles": (counts, own_profiles),
    "rehearsal": (counts, curves, costs, model),
    "shares": (counts, curves, core_shares),
}


def of_set(name: str) -> Pins:
    own = ResultSet(name)
    pins = {subject: found for one in SETS[name] for subject, found in one(own).items() if found}
    pins |= {"claims": claims(name, pins)} if name in CLAIMS else {}
    return pins | ({BLAS: {"kernels": {"architecture": architecture()}}} if model in SETS[name] else {})


def architecture() -> str:
    """Of the processor that BLAS has its kernels for: other kernels round otherwise, which a fit multiplies."""
    return " ".join(sorted({one.get("architecture", "") for one in threadpool_info() if one["user_api"] == "blas"}))

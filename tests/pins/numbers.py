"""The numbers that are pinned: of each committed result set and of the plan."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterable
from functools import cached_property

import pandas as pd

from hpc_utils import paths, records
from hpc_utils.analyze import (
    ablation,
    anomalies,
    budget,
    cost,
    points,
    recommend,
    scaling,
    targets,
)
from hpc_utils.analyze.model import fit
from hpc_utils.analyze.model.step import PHASES
from hpc_utils.analyze.profiles import peaks, roofline
from hpc_utils.launch import cluster, submit
from hpc_utils.launch import study as studies
from hpc_utils.records import probes

from . import Pins, Rows, profiles
from .rows import known, rows

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
    def studies(self) -> dict[str, records.StudyIndex]:
        return {index.name: index for index in records.studies(self.folder)}


# -- runs, curves, costs ------------------------------------------------------------------------------------------


def counts(own: ResultSet) -> Pins:
    total = cost.total(own.runs, own.found.epochs)
    lost = {"refused": len(own.found.refused), "unfinished": len(own.found.unfinished)}
    hours = total["wall_seconds"] / cost.HOUR
    spent = {"hours": hours, "device_hours": total["device_hours"], "core_hours": total["core_hours"]}
    found = {"all": _counted(own.runs) | lost | spent}
    for name, index in own.studies.items():
        found[name] = _counted(own.runs[own.runs.run_id.isin(index.run_ids)])
    return {"runs": found}


def _counted(runs: pd.DataFrame) -> dict:
    repeats = points.gather(runs).repeats
    return {"runs": len(runs), "configurations": len(repeats), "repeats": [int(repeats.min()), int(repeats.max())]}


def curves(own: ResultSet) -> Pins:
    curve, point, usual = f"{own.work} kind batch", f"{own.work} {SIZE}", own.usual
    one = scaling.workshop(usual)
    one = one[(one.world_size == 1) & (one.parallel != "none")]
    efficiency = scaling.efficiency(usual)
    memory = scaling.memory(usual)
    memory = memory[(memory.statistic == "peak") & (memory.baseline == "none")]
    aims = next(iter(own.studies.values())).scaling_targets if len(own.studies) == 1 else targets.Targets()
    return {
        "efficiency": rows(
            efficiency[efficiency.world_size > 1], f"{curve} scheme baseline layout", "efficiency+ repeats"
        ),
        "one rank with a group": rows(one, f"{curve} parallel", "efficiency+"),
        "throughput": rows(scaling.throughput(usual), point, "throughput+ repeats"),
        "precision gain": rows(scaling.precision_gain(usual), point, "gain+ repeats"),
        "before and after": rows(scaling.before_after(usual), point, "gain+ utilisation utilisation_before"),
        "memory": rows(memory, f"{curve} parallel layout", "bytes ratio+"),
        "targets": rows(targets.judge(efficiency, aims), curve, "required at=at_ranks ranks value+ verdict"),
        "accuracy": rows(points.learned(usual, own.found.epochs), point, "accuracy=value+"),
        "findings": rows(anomalies.find_anomalies(own.runs), f"finding {curve} baseline {SIZE}", "value+"),
    }


def costs(own: ResultSet) -> Pins:
    spent = cost.to_finish(own.runs, own.found.epochs, cluster.prices(own.runs.hardware_id.unique()))
    spent["layout"] = [f"{nodes:g}x{each:g}" for nodes, each in zip(spent.nodes, spent.ranks_per_node, strict=True)]
    found = rows(spent, f"{own.work} {SIZE}", "wall_seconds+ device_hours+ core_hours")
    advice: Rows = {}
    alike = spent[spent.seconds.notna() & spent.link_gbit.isna()]
    for name, group in alike.groupby(["workload", "dataset"]):
        if len(group) > 1:
            chosen = recommend.recommend(group, own.runs).assign(of=name[0])
            advice |= rows(
                chosen, "of purpose", "precision parallel ranks=world_size batch=global_batch verdict ratio+"
            )
    return {"cost of equal work": found, "recommended": advice}


# -- the ladder ---------------------------------------------------------------------------------------------------


def ladders(own: ResultSet) -> Pins:
    found: Pins = {}
    for name, index in own.studies.items():
        if not index.ablation:
            continue
        ladder = ablation.Ladder(own.found, index)
        gains, kinds = ladder.gains, ("alone", "marginal", "together")
        for kind in kinds:
            ends = zip(gains[f"{kind}_low"], gains[f"{kind}_high"], strict=True)
            gains[f"{kind}_verdict"] = [ablation.verdict(*both) for both in ends]
        columns = " ".join(f"{kind}+ {kind}_verdict" for kind in kinds)
        best = ladder.best
        named = [step for step, series in ladder.path.items() if series == best.series]
        learnt = ladder.learnt[~ladder.learnt.step.isin(named)]
        floor = [roofline.attained(ladder.rows(series)).assign(step=step) for step, series in ladder.path.items()]
        speeds = ladder.speeds()
        parts = ladder.phases
        parts = parts.assign(**{phase: 1e3 * parts[f"{phase}_seconds"] for phase in PHASES})
        fastest = {"name": best.name, "steps": " + ".join(best.steps), "repeats": best.gain.repeats}
        found |= {
            f"{name}: gains": rows(gains, "step", f"{columns} memory warmup repeats"),
            f"{name}: best": {"all": known(fastest | {"gain": list(best.gain[:3])})},
            f"{name}: learnt": rows(learnt, "measure step", "plain changed difference+ margin verdict repeats"),
            f"{name}: rungs": rows(
                speeds.assign(step_ms=1e3 * speeds.step_seconds),
                "label",
                "throughput+ step_ms memory=memory_bytes warmup",
            ),
            f"{name}: phases": rows(parts, "step", " ".join(PHASES)),
            f"{name}: operations": rows(pd.concat(floor), "step", "flops_per_sample flops_per_second+"),
        }
    return found


# -- the plan -------------------------------------------------------------------------------------------------------


def plan() -> Pins:
    """What the planned studies take, as chapter 07 predicts it from the operations counted in one set."""
    own = ResultSet("epyc-avx512")
    planned = tomllib.loads((paths.root() / "paper/plan.toml").read_text())
    site = cluster.read_cluster("leonardo")
    node, seen, estimates, prices = site.node(), set(), {}, {}
    predict = fit.predictor(
        own.runs, own.found.epochs, probes.read_probes("compute", own.folder), gbit=site.network.link_gbit or math.inf
    )
    roughly = budget.from_peak_rate(own.runs, peaks.find_peak("A100 40GB"))
    for name in (study for package in planned["package"] for study in package.get("studies", ())):
        one = studies.plan(name, submit.target_on(site, node, name), needs_data=False)
        points = [point for point in studies.forecast(one) if point["run_id"] not in seen]
        seen |= {point["run_id"] for point in points}
        prices[one.target.hardware] = node
        estimates[name] = budget.estimate(
            points, own.runs, own.found.epochs, limit=site.slurm.seconds, predict=predict, roughly=roughly
        )
    estimates["all"] = pd.concat(estimates.values(), ignore_index=True)
    found: Rows = {}
    for name, frame in estimates.items():
        most = {"study": name, "nodes": int(frame.nodes.max()), "devices": int(frame.world_size.max())}
        total = [budget.total(frame, prices) | most]
        found |= rows(total, "study", "runs nodes devices hours+ node_hours+ device_hours+ cost+")
    attained = {"attained": {"share": list(budget.ATTAINED)}, "contingency": {"share": planned["contingency"]}}
    return {"plan": found, "allowances": attained}


SETS: dict[str, Iterable[Callable[[ResultSet], Pins]]] = {
    "epyc-2core": (counts, curves),
    "epyc-avx512": (counts, ladders),
    "epyc-avx512-profiles": (counts, profiles.of_set),
    "rehearsal": (counts, curves, costs),
    "shares": (counts, curves),
}


def of_set(name: str) -> Pins:
    own = ResultSet(name)
    return {subject: found for one in SETS[name] for subject, found in one(own).items() if found}

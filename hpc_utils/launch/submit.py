"""A study handed to Slurm: planned, grouped into arrays, submitted once, the report chained behind."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from hpc_utils import paths

from . import allocation, slurm, study
from .cluster import Cluster
from .place import Place
from .request import Layout, Request
from .resources import NodeType
from .submission import Submission, one_at_a_time, submissions, write_points

MOST_TASKS = 1000  # of one array: Slurm's default MaxArraySize is 1001


@dataclass(frozen=True)
class Group:
    """Runs of one layout: one array job."""

    layout: Layout
    requests: list[Request]


@dataclass(frozen=True)
class Draft:
    """What a submission would do.

    Attributes:
        plan: all runs of the study on this cluster. complete, queued: run ids that need nothing.
        groups: what is left, one array job each.
        node_hours, cost: at most, if every job takes its whole time limit; the cost as the cluster bills.
    """

    plan: study.Plan
    cluster: Cluster
    node: NodeType
    complete: set[str]
    queued: set[str]
    groups: list[Group]

    @property
    def index(self) -> str:
        return f"{self.plan.name}-{self.plan.place.hardware}"

    @property
    def runs(self) -> int:
        return sum(len(group.requests) for group in self.groups)

    @property
    def node_hours(self) -> float:
        hours = self.cluster.slurm.seconds / 3600
        return sum(len(group.requests) * group.layout.nodes * hours for group in self.groups)

    @property
    def cost(self) -> float:
        hours = self.cluster.slurm.seconds / 3600
        layouts = [request.layout for group in self.groups for request in group.requests]
        return sum(self.node.cost(layout.nodes, layout.ranks_per_node, hours) for layout in layouts)


def place_on(cluster: Cluster, node: NodeType, study_name: str) -> Place:
    """The cluster's nodes of one type as a place for that study."""
    here = cluster.overrides(study_name, node.name)
    most_nodes = len(slurm.nodes(node.partition)) if cluster.rehearsal else node.most_nodes
    return Place(
        hardware=cluster.hardware_id(node.name),
        ranks_per_node=allocation.ranks_per_node(cluster, node),
        most_nodes=most_nodes or None,
        unfit=node.refusal,
        gpus=node.vendor,
        fixed_links=_fixed_links(cluster),
        is_here=cluster.rehearsal,
        ranks=tuple(here.ranks) if here.ranks else None,
        repeats=here.repeats,
        parameters=here.parameters,
        matrix=here.matrix,
    )


def _fixed_links(cluster: Cluster) -> str:
    if not cluster.rehearsal:
        return Place.fixed_links
    if cluster.links is None:
        return "its nodes have no links of their own (those need root)"
    if cluster.links:
        return f"they are limited to {cluster.links} by hand: `hpc cluster shape --rate none` lifts that"
    return ""


def draft(name: str, cluster: Cluster, node_type: str = "", *, redo: bool = False) -> Draft:
    """Look what is missing; nothing is written or submitted.

    Raises:
        StudyError, ClusterError, DataError: a wrong file, or the data set is not here.
        SlurmError: earlier submissions cannot be asked about.
    """
    node = cluster.node(node_type)
    plan = study.plan(name, place_on(cluster, node, Path(name).stem))
    complete = set() if redo else {r.run_id for r in plan.requests if r.state == "complete"}
    queued = _queued()
    todo = [r for r in plan.requests if r.run_id not in complete | queued]
    return Draft(plan, cluster, node, complete, queued & {r.run_id for r in plan.requests}, _groups(todo))


def submit(
    name: str, cluster: Cluster, node_type: str = "", *, redo: bool = False
) -> tuple[Draft, Submission | None]:
    """Submit what is missing: an array for each group, then the report behind them all.

    Returns what was planned, and the submission (None if nothing was missing).

    Raises:
        as `draft`; SlurmError: Slurm refused a job. What was submitted before it stands, and is known.
    """
    with one_at_a_time():
        planned = draft(name, cluster, node_type, redo=redo)
        study.write_index(planned.plan, planned.index)
        if not planned.groups:
            return planned, None
        made = Submission.begin(name, planned.index, cluster.source, planned.node.name)
        made.save()
        allocation.write_environment(made.path, cluster, planned.node)
        for number, group in enumerate(planned.groups, 1):
            points = made.path / f"points-{number:02d}.json"
            write_points(points, group.requests, redo=redo)
            job = slurm.sbatch(
                array_command(planned, group, made.path),
                paths.jobs() / "sweep.sbatch",
                [str(points)],
                environment=allocation.variables(made.path, group.layout),
            )
            made.add(job, "runs", [request.run_id for request in group.requests])
        job = slurm.sbatch(
            report_command(planned, made.path, made.job_ids),
            paths.jobs() / "report.sbatch",
            [planned.index],
            environment=allocation.variables(made.path, Layout()),
        )
        made.add(job, "report", [])
        return planned, made


def array_command(planned: Draft, group: Group, folder: Path) -> list[str]:
    """sbatch's options for one group: each an argument of its own."""
    cluster = planned.cluster
    return [
        *allocation.options(planned.cluster, planned.node, group.layout),
        f"--job-name=hpc-{_plain(planned.plan.name)}",
        f"--array=0-{len(group.requests) - 1}",
        f"--time={cluster.slurm.time}",
        f"--signal=B:USR1@{cluster.slurm.signal_seconds}",
        f"--output={allocation.literal(folder)}/logs/%A_%a.log",
    ]


def report_command(planned: Draft, folder: Path, after: list[str]) -> list[str]:
    """sbatch's options for the report: when all runs have ended, however they did."""
    return [
        *allocation.options(planned.cluster, planned.node, Layout(), devices=False),
        f"--job-name=hpc-{_plain(planned.plan.name)}-report",
        f"--dependency=afterany:{':'.join(after)}",
        "--kill-on-invalid-dep=yes",
        f"--output={allocation.literal(folder)}/logs/%j.log",
    ]


def commands(planned: Draft) -> list[str]:
    """The commands that `submit` would run, as a person could type them; N is the submission's number."""
    folder = paths.submissions() / f"N-{planned.index}"
    lines = []
    for number, group in enumerate(planned.groups, 1):
        command = ["sbatch", *array_command(planned, group, folder), str(paths.jobs() / "sweep.sbatch")]
        variables = shlex.join(
            f"{name}={value}" for name, value in allocation.variables(folder, group.layout).items()
        )
        lines.append(f"env {variables} {shlex.join([*command, str(folder / f'points-{number:02d}.json')])}")
    return lines


def _queued() -> set[str]:
    """Runs of earlier submissions whose jobs still wait or run."""
    tasks = [task for one in submissions() for task in one.tasks if task.run_id]
    jobs = slurm.jobs({task.id.partition("_")[0] for task in tasks})
    return {task.run_id for task in tasks if task.id in jobs and not jobs[task.id].is_over}


def _groups(requests: list[Request]) -> list[Group]:
    """Runs by layout. With several layouts, also by repeat, in turn: else one layout's repeats would all be measured
    before the next one's, and a drift of the machine would look like scaling.
    """
    several = len({request.layout for request in requests}) > 1
    found: dict[tuple[int, Layout], list[Request]] = {}
    for request in requests:
        found.setdefault((request.config.repeat if several else 0, request.layout), []).append(request)
    return [
        Group(layout, members[start : start + MOST_TASKS])
        for (_, layout), members in found.items()
        for start in range(0, len(members), MOST_TASKS)
    ]


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name)[:40]

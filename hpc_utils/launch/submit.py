"""A study handed to Slurm: planned, grouped into arrays, submitted once, the report chained behind."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from hpc_utils import paths

from . import allocation, slurm_commands, study
from .cluster import Cluster
from .request import Layout, Request
from .resources import NodeType
from .submission import Kind, Submission, one_at_a_time, submissions, write_points
from .target import Target

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
    """

    plan: study.Plan
    cluster: Cluster
    node: NodeType
    complete: set[str]
    queued: set[str]
    groups: list[Group]

    @property
    def index(self) -> str:
        return f"{self.plan.name}-{self.plan.target.hardware}"

    @property
    def runs(self) -> int:
        return sum(len(group.requests) for group in self.groups)

    @property
    def node_hours(self) -> float:
        """At most: if every job takes its whole time limit."""
        return sum(len(group.requests) * group.layout.nodes for group in self.groups) * self._hours

    @property
    def cost(self) -> float:
        """The same as the cluster bills it."""
        layouts = [group.layout for group in self.groups for _ in group.requests]
        return sum(self.node.cost(layout.nodes, layout.ranks_per_node, self._hours) for layout in layouts)

    @property
    def _hours(self) -> float:
        return self.cluster.slurm.seconds / 3600


def target_on(cluster: Cluster, node: NodeType, study_name: str) -> Target:
    """The cluster's nodes of one type as that study's target."""
    here = cluster.overrides(study_name, node.name)
    most_nodes = len(slurm_commands.nodes(node.partition)) if cluster.rehearsal else node.most_nodes
    return Target(
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
        return Target.fixed_links
    if cluster.links is None:
        return "its nodes have no links of their own (those need root)"
    if cluster.links:
        return f"they are limited to {cluster.links} by hand: `hpc cluster shape --rate none` lifts that"
    return ""


def draft(name: str, cluster: Cluster, node_type: str = "", *, redo: bool = False) -> Draft:
    """Find what is missing; nothing is written or submitted.

    Raises:
        StudyError, ClusterError, DataError: a wrong file, or the data set is not here.
        SlurmError: earlier submissions cannot be asked about.
    """
    node = cluster.node(node_type)
    plan = study.plan(name, target_on(cluster, node, Path(name).stem))
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
        as `draft`; SlurmError: Slurm refused a job. What was submitted before it stands, and is noted.
    """
    with one_at_a_time():
        planned = draft(name, cluster, node_type, redo=redo)
        planned.plan.index(planned.index).write()
        if not planned.groups:
            return planned, None
        made = Submission.begin(name, planned.index, cluster.source, planned.node.name)
        made.save()
        allocation.write_environment(made.path, cluster, planned.node)
        for number, group in enumerate(planned.groups, 1):
            points = _points(made.path, number)
            write_points(points, group.requests, redo=redo)
            options = array_options(planned, group, made.path)
            variables = allocation.variables(made.path, group.layout)
            job = slurm_commands.sbatch(options, _script("sweep"), [str(points)], environment=variables)
            made.add(job, Kind.RUNS, [request.run_id for request in group.requests])
        options, variables = report_options(planned, made), allocation.variables(made.path, Layout())
        job = slurm_commands.sbatch(options, _script("report"), [planned.index], environment=variables)
        made.add(job, Kind.REPORT, [])
        return planned, made


def array_options(planned: Draft, group: Group, folder: Path) -> list[str]:
    """sbatch's options for one group: each an argument of its own."""
    slurm = planned.cluster.slurm
    return [
        *allocation.options(planned.cluster, planned.node, group.layout),
        f"--job-name=hpc-{_plain(planned.plan.name)}",
        f"--array=0-{len(group.requests) - 1}",
        f"--time={slurm.time}",
        f"--signal=B:USR1@{slurm.signal_seconds}",
        f"--output={allocation.literal(folder)}/logs/%A_%a.log",
    ]


def report_options(planned: Draft, made: Submission) -> list[str]:
    """sbatch's options for the report: when all runs have ended, however they did."""
    return [
        *allocation.options(planned.cluster, planned.node, Layout(), devices=False),
        f"--job-name=hpc-{_plain(planned.plan.name)}-report",
        f"--dependency=afterany:{':'.join(made.job_ids)}",
        "--kill-on-invalid-dep=yes",
        f"--output={allocation.literal(made.path)}/logs/%j.log",
    ]


def commands(planned: Draft) -> list[str]:
    """The commands that `submit` would run, as a person could type them; N is the submission's number."""
    folder = paths.submissions() / f"N-{planned.index}"
    lines = []
    for number, group in enumerate(planned.groups, 1):
        variables = [f"{name}={value}" for name, value in allocation.variables(folder, group.layout).items()]
        options = array_options(planned, group, folder)
        lines.append(
            shlex.join(["env", *variables, "sbatch", *options, str(_script("sweep")), str(_points(folder, number))])
        )
    return lines


def _script(name: str) -> Path:
    return paths.jobs() / f"{name}.sbatch"


def _points(folder: Path, number: int) -> Path:
    return folder / f"points-{number:02d}.json"


def _queued() -> set[str]:
    """Runs of earlier submissions whose jobs still wait or run."""
    tasks = [task for one in submissions() for task in one.tasks if task.run_id]
    jobs = slurm_commands.jobs({task.id.partition("_")[0] for task in tasks})
    return {task.run_id for task in tasks if task.id in jobs and not jobs[task.id].state.is_over}


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

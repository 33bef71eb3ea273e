"""A study handed to Slurm: planned, grouped into arrays, submitted once, the report chained behind.

Each submission has a folder, `results/submissions/<number>-<study>-<hardware>/`:

submission.json  study (and the file it was read from), cluster, and each job with the runs of its tasks
points-<n>.json  what each task of the n-th array runs
environment.sh   the cluster's environment, which the jobs source
logs/            what the jobs print
"""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import BaseModel, Field

from hpc_utils import file_lock, paths
from hpc_utils.config import ConfigError
from hpc_utils.records import atomic

from . import job_environment, measure, slurm_commands, study, turns
from .cluster import Cluster, ClusterError, NodeType, file
from .request import Layout, Request, prepare
from .study_file import StudyError
from .target import PLAIN, Target, Variant

SELECTION = ("variant", "only", "in_turn")  # options of `draft` that a submission keeps
ARRAY = 1000  # runs in an array, for Slurm's default MaxArraySize of 1001


class SubmittedJob(BaseModel):
    """One job, and the ids of the runs that each of its tasks makes. The report's job makes none."""

    id: str
    tasks: list[list[str]]


class Task(NamedTuple):
    """One job or array task: `id` as Slurm shows it, the run it makes ("" for the report)."""

    id: str
    run_id: str


class Submission(BaseModel):
    """A submission's content; `submit` saves it after every job.

    Attributes:
        study: its name, or its variant's. source: the study's name, or its file. index: the name of its index.
        cluster: by name, or its file. variant, only, in_turn: as of `draft`. job_name: how the names of its jobs begin, with the time. A controller that has lost its
            state counts from 1 again: an id alone is no job.
    """

    path: Path = Field(exclude=True)
    study: str
    source: str
    index: str
    cluster: str
    node_type: str
    variant: Variant = PLAIN
    only: dict[str, list[Any]] = Field({})
    in_turn: bool = False
    job_name: str = ""
    jobs: list[SubmittedJob] = Field([])

    @classmethod
    def begin(cls, source: str, index: str, cluster: str, node_type: str, **selection: Any) -> Submission:
        """A new folder with the next number."""
        number = 1 + max((int(p.name[:4]) for p in paths.submissions().glob("[0-9][0-9][0-9][0-9]-*")), default=0)
        path = paths.submissions() / f"{number:04d}-{index}"
        (path / "logs").mkdir(parents=True)
        # Absolute: `hpc retry` may be called from another folder.
        source, cluster = (str(Path(n).absolute()) if n.endswith(".toml") else n for n in (source, cluster))
        return cls(
            path=path,
            study=selection.get("variant", PLAIN).name or Path(source).stem,
            source=source,
            index=index,
            cluster=cluster,
            node_type=node_type,
            **selection,
            job_name=f"{_job_name(Path(source).stem)}-{time.strftime('%m%d-%H%M%S')}",
        )

    def add(self, job_id: str, tasks: list[list[str]]) -> None:
        """Note a job, and the ids of the runs of its tasks."""
        self.jobs.append(SubmittedJob(id=job_id, tasks=tasks))
        atomic.write_json(self.path / "submission.json", self.model_dump(mode="json"))

    @property
    def selection(self) -> dict[str, Any]:
        """The options of `draft` that chose its runs."""
        return {name: getattr(self, name) for name in SELECTION}

    @property
    def is_rehearsed(self) -> bool:
        """Whether it went to the rehearsal cluster."""
        return Path(self.cluster).stem == "rehearsal"

    @property
    def tasks(self) -> list[Task]:
        """Every array task, then the report's job."""
        runs = [
            Task(f"{job.id}_{number}", run)
            for job in self.jobs
            for number, runs in enumerate(job.tasks)
            for run in runs
        ]
        return runs + [Task(job.id, "") for job in self.jobs if not job.tasks]

    @property
    def job_ids(self) -> list[str]:
        return [job.id for job in self.jobs]

    def job(self, task: Task, jobs: Mapping[str, slurm_commands.Job]) -> slurm_commands.Job | None:
        """That of `task` among `jobs`; None if there is none, or another one has its id by now."""
        job = jobs.get(task.id)
        return job if job and job.name.startswith(self.job_name) else None

    def log(self, task: str) -> Path:
        """The log of that job or array task."""
        return self.path / "logs" / f"{task}.log"


def submissions(study: str | None = None) -> list[Submission]:
    """All submissions, oldest first; of one study, by its name, by the index's or by its file."""
    study = Path(study).stem if study and study.endswith(".toml") else study
    stored_submissions = map(read_submission, sorted(paths.submissions().glob("*/submission.json")))
    return [submission for submission in stored_submissions if study in (None, submission.study, submission.index)]


def read_submission(path: Path) -> Submission:
    """The submission whose `submission.json` is `path`."""
    try:
        return Submission(path=path.parent, **json.loads(path.read_text()))
    except (TypeError, ValueError) as error:  # pydantic's are ValueErrors
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"{path}: damaged, or of another version of the compendium ({reason}): move its folder out of {paths.submissions()}"
        ) from None


def write_points(path: Path, tasks: Sequence[Sequence[Request]]) -> None:
    """Write the runs of each task."""
    points = [
        {
            "task": number,
            "run_id": request.run_id,
            "notebook": str(request.notebook),
            "parameters": dict(request.inject),
            "layout": [request.layout.nodes, request.layout.ranks_per_node],
            "redo": request.redo,
        }
        for number, requests in enumerate(tasks)
        for request in requests
    ]
    atomic.write_json(path, points)


def read_task(path: Path, number: int) -> list[Request]:
    """The requests of task `number`, prepared on the node that runs them.

    Raises:
        ConfigError: one is another run by now: code or cluster changed since it was submitted.
    """
    todo = []
    for point in (point for point in json.loads(path.read_text()) if point["task"] == number):
        request = prepare(Path(point["notebook"]), point["parameters"], Layout(*point["layout"]), needs_data=False)
        if request.run_id != point["run_id"]:
            raise ConfigError(
                f"the code of {request.config.workload}, the notebook, the configuration's defaults or HPC_CLUSTER changed since "
                f"{point['run_id']} was submitted: it is {request.run_id} by now; submit it again"
            )
        todo.append(replace(request, redo=point["redo"]))
    return todo


class Group(NamedTuple):
    """Runs of one launcher: one array job. A task's runs take turns on the nodes of the layout, which is the largest of them."""

    layout: Layout
    tasks: list[list[Request]]

    @property
    def requests(self) -> list[Request]:
        return [request for requests in self.tasks for request in requests]

    @property
    def threads(self) -> int:
        """The most threads of a rank, for which every job of the array has cores."""
        return max(request.config.threads_per_rank or 1 for request in self.requests)


@dataclass(frozen=True)
class Draft:
    """What a submission would do.

    Attributes:
        plan: all runs of the study on this cluster. complete, queued: run ids that need nothing, queued ones with their jobs.
        groups: what is left, one array job each.
    """

    plan: study.Plan
    cluster: Cluster
    node: NodeType
    complete: set[str]
    queued: Mapping[str, str]
    groups: list[Group]

    @property
    def runs(self) -> int:
        return sum(len(group.requests) for group in self.groups)

    @property
    def node_hours(self) -> float:
        """At most: if every job takes its whole time limit."""
        return sum(len(group.tasks) * group.layout.nodes for group in self.groups) * self._hours

    @property
    def cost(self) -> float:
        """The same as the cluster bills it."""
        return sum(
            len(group.tasks)
            * self.node.cost(group.layout.nodes, group.layout.ranks_per_node, self._hours, group.threads)
            for group in self.groups
        )

    @property
    def _hours(self) -> float:
        return self.cluster.slurm.seconds / 3600


def target_on(cluster: Cluster, node: NodeType, study_name: str, variant: Variant = PLAIN) -> Target:
    """The cluster's nodes of one type as that study's target.

    Raises:
        ClusterError: the file does not give the nodes of a job.
    """
    if not (cluster.rehearsal or node.most_nodes):
        raise ClusterError(
            f"{cluster.source}: nodes.{node.name}: most_nodes is 0: give how many nodes a job may have (`sinfo`, `sacctmgr show qos`)"
        )
    overrides = cluster.overrides(study_name, node.name)
    share = variant.parameters.get("cores_per_rank", overrides.parameters.get("cores_per_rank"))
    command = ["hpc", "submit", "STUDY", "--cluster", cluster.source, "--nodes-of", node.name, *variant.options]
    most_nodes = len(slurm_commands.nodes(node.partition)) if cluster.rehearsal else node.most_nodes
    fixed_links = Target.fixed_links
    if cluster.rehearsal:
        fixed_links = (
            "its nodes have no links of their own (those need root)" if cluster.machine.links is None else ""
        )
    if links := cluster.machine.links:
        fixed_links = f"they are limited to {links} by hand: `hpc cluster shape --rate none` lifts that"
    return Target(
        hardware=cluster.hardware_id(node.name),
        ranks_per_node=job_environment.ranks_per_node(cluster, node, share),
        most_nodes=most_nodes or None,
        cores=job_environment.ranks_per_node(cluster, node) if cluster.rehearsal else node.cores,
        precisions=node.precisions,
        gpus=node.vendor,
        gpu=node.gpu,
        fixed_links=fixed_links,
        is_here=cluster.rehearsal,
        in_container=bool(cluster.software.container),
        overrides=overrides,
        variant=variant,
        command=shlex.join(command),
        setup=cluster.machine.setup,
        cluster_file=file(cluster.source),
    )


def draft(
    name: str,
    cluster: Cluster,
    node_type: str = "",
    *,
    queued: Mapping[str, str],
    variant: Variant = PLAIN,
    further: Mapping[str, int] = MappingProxyType({}),
    submitted: Collection[str] = (),
    in_turn: bool = False,
    **again: Any,
) -> Draft:
    """Find the missing runs, and with `again` those of `study.Plan.to_do`; nothing is written or submitted.

    Args:
        queued: as of `queued()`. further: as of `study.plan`. submitted: runs of earlier submissions; those that are further
            repeats remain in the plan. in_turn: one job makes
            all runs of a repeat, which take turns (`turns`), where they can.

    Raises:
        StudyError, ClusterError, DataError: a wrong file, or the data set is not here.
    """
    node = cluster.node(node_type)
    target = target_on(cluster, node, Path(name).stem, variant)
    if in_turn:
        target = replace(target, command=f"{target.command} --turns")
    plan = study.plan(name, target, queued={*queued, *submitted}, further=further)
    plan.require_points(cluster.title)
    if in_turn and not any(map(turns.takes_turns, plan.requests)):
        alone = "scripts, and runs with a profiler, a monitor, workers of a loader or limited links"
        raise StudyError(f"{plan.name}: --turns has no effect: {alone} are measured alone")
    missing = plan.to_do(**again)
    run_ids = {r.run_id for r in plan.requests}
    complete = {r.run_id for r in plan.requests if r.state == "complete"} - {r.run_id for r in missing}
    todo = [r for r in missing if r.run_id not in queued]
    planned_before = {run: job for run, job in queued.items() if run in run_ids}
    return Draft(plan, cluster, node, complete, planned_before, _groups(todo, in_turn))


def submit(
    name: str,
    cluster: Cluster,
    node_type: str = "",
    *,
    announce: Callable[[Draft], None] = lambda draft: None,
    **options: Any,
) -> tuple[Draft, Submission | None]:
    """Submit the missing runs: an array for each group, then the report after all of them and the queued ones, however they
    ended.

    Returns what was planned, and the submission (None if nothing was missing). `announce` is called before the first
    job; `options` are those of `draft`.

    Raises:
        as `draft`; SlurmError: Slurm does not answer, or refused a job. Earlier jobs of the submission remain and are
        recorded.
    """
    paths.submissions().mkdir(parents=True, exist_ok=True)
    with file_lock.hold(paths.submissions() / ".lock"):  # no run is submitted twice
        planned = draft(name, cluster, node_type, queued=queued(), **options)
        announce(planned)
        planned.plan.write()
        if not planned.groups:
            return planned, None
        index = planned.plan.name
        selection = {name: options[name] for name in SELECTION if name in options}
        submission = Submission.begin(name, index, cluster.source, planned.node.name, **selection)
        job_environment.write_environment(submission.path, cluster, planned.node)
        for number, group in enumerate(planned.groups, 1):
            points = submission.path / f"points-{number:02d}.json"
            options, variables = _array(planned, group, submission.path, submission.job_name)
            write_points(points, group.tasks)
            job = slurm_commands.sbatch(options, _script("sweep"), [str(points)], variables)
            submission.add(job, [[request.run_id for request in requests] for requests in group.tasks])
        options = [
            *job_environment.options(cluster, planned.node, Layout(), devices=False),
            f"--job-name={submission.job_name}-report",
            f"--dependency=afterany:{':'.join([*submission.job_ids, *sorted(set(planned.queued.values()))])}",
            "--kill-on-invalid-dep=yes",
            job_environment.output(submission.path, "%j"),
        ]
        variables = job_environment.variables(submission.path, Layout())
        submission.add(slurm_commands.sbatch(options, _script("report"), [index], variables), [])
        return planned, submission


def commands(planned: Draft) -> list[str]:
    """The commands that `submit` would run, as a person could type them; N is the submission's number."""
    lines = []
    for number, group in enumerate(planned.groups, 1):
        folder = paths.submissions() / f"N-{planned.plan.name}"
        options, variables = _array(planned, group, folder, _job_name(planned.plan.file.stem))
        assignments = [f"{name}={value}" for name, value in variables.items()]
        points = f"{folder}/points-{number:02d}.json"
        lines.append(shlex.join(["env", *assignments, "sbatch", *options, str(_script("sweep")), points]))
    return lines


def _array(planned: Draft, group: Group, folder: Path, name: str) -> tuple[list[str], dict[str, str]]:
    """(sbatch's options, the variables for its script) of a group."""
    slurm = planned.cluster.slurm
    options = [
        *job_environment.options(planned.cluster, planned.node, group.layout, threads=group.threads),
        f"--job-name={name}",
        f"--array=0-{len(group.tasks) - 1}",
        f"--time={slurm.time}",
        f"--signal=B:USR1@{slurm.signal_seconds}",
        job_environment.output(folder, "%A_%a"),
    ]
    variables = job_environment.variables(folder, group.layout)
    if group.requests[0].launcher:
        variables["LAUNCHER"] = (
            "srun"  # starts the ranks themselves, instead of a torchrun on each node (jobs/launch.sh)
        )
    return options, variables


def _job_name(study_name: str) -> str:
    return "hpc-" + re.sub(r"[^A-Za-z0-9_.-]+", "-", study_name)[:40]


def _script(name: str) -> Path:
    return paths.jobs() / f"{name}.sbatch"


def queued() -> dict[str, str]:
    """Runs of earlier submissions whose jobs still wait or run, each with the id of its job.

    Raises:
        SlurmError: there are earlier submissions, and Slurm does not answer.
    """
    tasks = [(submission, task) for submission in submissions() for task in submission.tasks if task.run_id]
    jobs = slurm_commands.jobs({task.id.partition("_")[0] for _, task in tasks})
    return {
        task.run_id: task.id.partition("_")[0]
        for submission, task in tasks
        if (job := submission.job(task, jobs)) and not job.state.is_over
    }


def _groups(requests: list[Request], in_turn: bool) -> list[Group]:
    """With `in_turn` first those of each repeat that can take turns. Then runs by layout and launcher, at most `ARRAY` together.
    With several layouts, also by repeat, in turn: else one layout's repeats would all be measured before the next one's,
    and a drift of the machine would look like scaling.
    """
    if in_turn:
        together = [group for group in measure.groups(requests) if len(group) > 1]
        members = [request for group in together for request in group]
        rest = _groups([request for request in requests if request not in members], False)
        if not members:
            return rest
        nodes = max(request.layout.nodes for request in members)
        ranks_per_node = max(request.layout.ranks_per_node for request in members)
        return [Group(Layout(nodes, ranks_per_node), together), *rest]
    several = len({request.layout for request in requests}) > 1
    members_by_key: dict[tuple[int, Layout, bool, int], list[Request]] = {}
    for place, request in enumerate(requests):
        key = request.config.repeat if several else 0, request.layout, request.launcher is not None, place // ARRAY
        members_by_key.setdefault(key, []).append(request)
    return [Group(layout, [[run] for run in members]) for (_, layout, *_), members in members_by_key.items()]

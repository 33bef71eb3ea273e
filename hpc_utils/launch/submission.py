"""What was handed to Slurm: one folder a submission, `results/submissions/<number>-<study>-<hardware>/`.

submission.json  study (and the file it was read from), cluster, and each job with the runs of its tasks
points-<n>.json  what each task of the n-th array runs
environment.sh   the cluster's environment, which the jobs source
logs/            what the jobs print
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, Field, PrivateAttr, TypeAdapter, ValidationError

from hpc_utils import paths
from hpc_utils.config import ConfigError
from hpc_utils.records import atomic

from .request import Layout, Request, prepare


class Kind(StrEnum):
    """What a job of a submission does."""

    RUNS = "runs"
    REPORT = "report"


class SubmittedJob(BaseModel):
    """One job; its task number i makes the run `runs[i]`."""

    id: str
    kind: Kind
    runs: list[str]


class Task(NamedTuple):
    """One job or array task: `id` as Slurm shows it, the run it makes ("" for the report)."""

    id: str
    run_id: str


class Submission(BaseModel):
    """A submission's content; `add` and `save` keep the file true after every job.

    Attributes:
        source: the study's name, or its file. index: the name of its index. cluster: by name, or its file.
    """

    study: str
    source: str
    index: str
    cluster: str
    node_type: str
    jobs: list[SubmittedJob] = Field([])
    written: str = ""
    _path: Path = PrivateAttr()

    @property
    def path(self) -> Path:
        return self._path

    @classmethod
    def begin(cls, source: str, index: str, cluster: str, node_type: str) -> Submission:
        """A new folder with the next number."""
        folder = paths.submissions()
        folder.mkdir(parents=True, exist_ok=True)
        number = 1 + max((int(p.name[:4]) for p in folder.glob("[0-9][0-9][0-9][0-9]-*")), default=0)
        path = folder / f"{number:04d}-{index}"
        (path / "logs").mkdir(parents=True)
        # Absolute: `hpc retry` may be called from another folder.
        source, cluster = (str(Path(n).absolute()) if n.endswith(".toml") else n for n in (source, cluster))
        made = cls(study=Path(source).stem, source=source, index=index, cluster=cluster, node_type=node_type)
        made._path = path
        return made

    @classmethod
    def read(cls, path: Path) -> Submission | None:
        """The submission in that folder; None if it is not whole."""
        try:
            found = cls.model_validate_json((path / "submission.json").read_bytes())
        except (OSError, ValidationError):
            return None
        found._path = path
        return found

    def save(self) -> None:
        self.written = datetime.now(UTC).isoformat(timespec="seconds")
        atomic.write_json(self.path / "submission.json", self.model_dump(mode="json"))

    def add(self, job_id: str, kind: Kind, run_ids: list[str]) -> None:
        """Note a job."""
        self.jobs.append(SubmittedJob(id=job_id, kind=kind, runs=run_ids))
        self.save()

    @property
    def tasks(self) -> list[Task]:
        """Every array task, then the report's job."""
        runs = [Task(f"{job.id}_{place}", run) for job in self.jobs for place, run in enumerate(job.runs)]
        return runs + [Task(job.id, "") for job in self.jobs if job.kind == Kind.REPORT]

    @property
    def job_ids(self) -> list[str]:
        return [job.id for job in self.jobs]

    def log(self, task: str) -> Path:
        """Where that job or array task prints."""
        return self.path / "logs" / f"{task}.log"


def submissions(study: str | None = None) -> list[Submission]:
    """All submissions, oldest first; of one study, by its name or by the index's."""
    found = [Submission.read(path) for path in sorted(paths.submissions().glob("[0-9]*-*"))]
    return [one for one in found if one and study in (None, one.study, one.index)]


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Of several processes that submit at once, one plans and submits, then the next: no run is submitted twice."""
    folder = paths.submissions()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class _Point(BaseModel):
    """What one task of an array runs."""

    run_id: str
    notebook: Path
    parameters: dict[str, Any]
    nodes: int
    ranks_per_node: int
    redo: bool


_POINTS = TypeAdapter(list[_Point])


def write_points(path: Path, requests: list[Request], *, redo: bool = False) -> None:
    """Write what each task runs; the place in the list is the task's number."""
    points = [
        _Point(
            run_id=request.run_id,
            notebook=request.notebook,
            parameters=dict(request.inject),
            nodes=request.layout.nodes,
            ranks_per_node=request.layout.ranks_per_node,
            redo=redo,
        )
        for request in requests
    ]
    atomic.write_json(path, _POINTS.dump_python(points, mode="json"))


def read_point(path: Path, number: int) -> tuple[Request, bool]:
    """The request behind task `number`, made anew on the node that runs it, and whether it is to be measured again.

    Raises:
        ConfigError: no such point, or it is another run by now: code or cluster changed since it was submitted.
    """
    try:
        points = _POINTS.validate_json(path.read_bytes())
    except (OSError, ValidationError):
        raise ConfigError(f"{path} holds no list of points") from None
    if not 0 <= number < len(points):
        raise ConfigError(f"{path}: no point {number} (it has 0 to {len(points) - 1})")
    point = points[number]
    request = prepare(point.notebook, point.parameters, Layout(point.nodes, point.ranks_per_node))
    if request.run_id != point.run_id:
        raise ConfigError(
            f"{path}, point {number} was submitted as {point.run_id}, but here it is {request.run_id}: the notebook, "
            f"the configuration's defaults or HPC_CLUSTER changed since; submit it again"
        )
    return request, point.redo

"""What was handed to Slurm: one folder a submission, `results/submissions/<number>-<study>-<hardware>/`.

submission.json  study (and the file it was read from), cluster, and each job with the runs of its tasks
points-<n>.json  what each task of the n-th array runs
environment.sh   the cluster's environment, which the jobs source
logs/            what the jobs printed
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hpc_utils import paths
from hpc_utils.config import ConfigError
from hpc_utils.records import atomic
from hpc_utils.records.folder import read_json

from .request import Layout, Request, prepare


@dataclass(frozen=True)
class Task:
    """One job or array task of a submission: `id` as Slurm shows it, the run it makes ("" for the report)."""

    id: str
    run_id: str


@dataclass
class Submission:
    """A submission's folder and content; `add` and `save` keep the file true after every job."""

    path: Path
    study: str
    source: str
    index: str
    cluster: str
    node_type: str
    jobs: list[dict[str, Any]]

    @classmethod
    def begin(cls, source: str, index: str, cluster: str, node_type: str) -> Submission:
        """A new folder with the next number."""
        folder = paths.submissions()
        folder.mkdir(parents=True, exist_ok=True)
        number = 1 + max((int(p.name[:4]) for p in folder.glob("[0-9][0-9][0-9][0-9]-*")), default=0)
        path = folder / f"{number:04d}-{index}"
        (path / "logs").mkdir(parents=True)
        # Wherever `hpc retry` is called from later, a file stays the same file.
        source, cluster = (
            str(Path(name).absolute()) if name.endswith(".toml") else name for name in (source, cluster)
        )
        return cls(path, Path(source).stem, source, index, cluster, node_type, [])

    @classmethod
    def read(cls, path: Path) -> Submission | None:
        """The submission in that folder; None if it is not whole."""
        content = read_json(path / "submission.json")
        if not content:
            return None
        return cls(path, *(content[name] for name in ("study", "source", "index", "cluster", "node_type", "jobs")))

    def save(self) -> None:
        content = {"study": self.study, "source": self.source, "index": self.index, "cluster": self.cluster}
        content |= {
            "node_type": self.node_type,
            "jobs": self.jobs,
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        atomic.write_json(self.path / "submission.json", content)

    def add(self, job_id: str, kind: str, run_ids: list[str]) -> None:
        """Note a job; its task number i makes run `run_ids[i]`."""
        self.jobs.append({"id": job_id, "kind": kind, "runs": run_ids})
        self.save()

    @property
    def tasks(self) -> list[Task]:
        """Every array task, and the report's job."""
        return [Task(f"{job['id']}_{place}", run) for job in self.jobs for place, run in enumerate(job["runs"])] + [
            Task(job["id"], "") for job in self.jobs if not job["runs"]
        ]

    @property
    def job_ids(self) -> list[str]:
        return [job["id"] for job in self.jobs]


def submissions(study: str | None = None) -> list[Submission]:
    """All submissions, oldest first; of one study, by its name or by the index's."""
    found = [Submission.read(path) for path in sorted(paths.submissions().glob("[0-9]*-*"))]
    return [one for one in found if one and study in (None, one.study, one.index)]


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Of several who submit at once one looks and submits, then the next: no run is handed in twice."""
    folder = paths.submissions()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def write_points(path: Path, requests: list[Request], *, redo: bool = False) -> None:
    """Leave what each task runs; its place in the list is the task's number."""
    points = [
        {
            "run_id": request.run_id,
            "notebook": str(request.notebook),
            "parameters": dict(request.inject),
            "nodes": request.layout.nodes,
            "ranks_per_node": request.layout.ranks_per_node,
            "redo": redo,
        }
        for request in requests
    ]
    atomic.write_json(path, points)


def read_point(path: Path, number: int) -> tuple[Request, bool]:
    """The request behind task `number`, made anew on the node that runs it, and whether it is to be measured again.

    Raises:
        ConfigError: no such point, or it is another run by now: code or cluster changed since it was submitted.
    """
    points = read_json(path)
    if not isinstance(points, list) or not 0 <= number < len(points):
        has = f"0 to {len(points) - 1}" if isinstance(points, list) else "no list of points"
        raise ConfigError(f"{path}: no point {number} (it has {has})")
    point = points[number]
    layout = Layout(point["nodes"], point["ranks_per_node"])
    request = prepare(Path(point["notebook"]), point["parameters"], layout)
    if request.run_id != point["run_id"]:
        raise ConfigError(
            f"{path}, point {number} was submitted as {point['run_id']}, but here it is {request.run_id}: the notebook, "
            f"the configuration's defaults or HPC_CLUSTER changed since; submit it again"
        )
    return request, point["redo"]

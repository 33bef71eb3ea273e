"""A study from `hpc submit` to its figures, on two real nodes."""

from __future__ import annotations

import re
import shlex
import tempfile
from pathlib import Path

import pandas as pd
import pytest

from hpc_utils import paths, records
from hpc_utils.records.folder import read_json

from .conftest import Desk, submissions

SUBMIT, STATUS = "hpc submit strong --cluster rehearsal --wait", "hpc status --all"  # docs/cluster.md, executed here


@pytest.fixture(scope="module")
def done(cluster, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """That study, each point measured once, submitted and waited for, from a folder whose name is hostile to a shell."""
    desk = Desk(tmp_path_factory.mktemp("desk") / "o'desk $(touch pwned) %j; x", cluster)
    shipped = (paths.jobs() / "studies/strong.toml").read_text()
    chapters = re.compile(r"    \{ notebook = .*(01_baseline|02_ddp|03_scaling).*\n")  # one of the four is enough
    for old, new in (("repeats = 3", "repeats = 1"), ("ranks = [1, 2, 4, 8, 12]", "ranks = [2]")):
        shipped = shipped.replace(old, new)
    once(desk).write_text(chapters.sub("", shipped))
    words = (once(desk) if word == "strong" else word for word in SUBMIT.split()[1:])
    # A temporary folder of its own has the lock of the cores: no other test's runs are waited for.
    with tempfile.TemporaryDirectory(prefix="hpc-") as own:
        said = desk.hpc(*words, HPC_SHARED="", TMPDIR=own)  # figures are drawn of these runs
    (desk.folder / "said.txt").write_text(said.stdout)
    return desk


def once(desk: Desk) -> Path:
    return desk.folder / "strong.toml"


def asked(desk: Desk) -> list[str]:
    """The ids of the runs that were submitted."""
    return [run for job in submissions(desk)[0]["jobs"] for task in job["tasks"] for run in task]


def test_a_submitted_study_ends_in_records_of_two_nodes(done: Desk) -> None:
    found = records.load(done.results)
    assert not found.refused
    assert not found.unfinished
    assert sorted(found.runs.run_id) == sorted(asked(done))
    assert {1, 2} <= set(found.runs.world_size)
    two = done.results / "runs" / found.runs[found.runs.nodes == 2].iloc[0].run_id
    assert sorted(set(records.load_run(two)["ranks"].host)) == ["node1", "node2"]
    origin = read_json(two / "provenance.json")
    assert (origin["start"], origin["job"]["scheduler"], origin["job"]["nodes"]) == ("cold", "slurm", 2)
    assert origin["job"]["array_task_id"] is not None
    for run in found.runs.run_id:  # the report's job has asked the accounting
        jobs = pd.read_csv(done.results / "runs" / run / "sacct.csv")
        assert len(jobs) > 1 and set(jobs.State) <= {"COMPLETED", "RUNNING"}


def test_it_ends_in_a_report_and_a_scaling_figure(done: Desk) -> None:
    """Chained behind the runs; no other command was needed."""
    (made,) = submissions(done)
    assert made["jobs"][-1]["tasks"] == []
    text = (done.results / "report/index.html").read_text()
    assert text.count("data:image/png;base64") >= 2
    figure = done.results / f"figures/{made['index']}-efficiency.pdf"
    assert figure.stat().st_size > 5_000


def test_a_hostile_folder_reached_no_shell(done: Desk) -> None:
    assert not list(Path(paths.root()).glob("pwned*"))
    assert not list(done.folder.parent.rglob("pwned"))
    logs = list(done.results.glob("submissions/*/logs/*.log"))
    assert len(logs) == len(asked(done)) + 1, "each task's log lies where it should, % and all"


def test_the_wait_prints_each_change_of_state(done: Desk) -> None:
    printed = (done.folder / "said.txt").read_text()
    assert printed.count("COMPLETED") >= len(asked(done)) + 1 and "RUNNING" in printed


def test_what_is_complete_is_shown_and_not_submitted_again(done: Desk) -> None:
    again = done.hpc("submit", once(done), "--cluster", "rehearsal")
    assert f"{len(asked(done))} complete, 0 in the queue, 0 to submit" in again.stdout
    assert len(submissions(done)) == 1
    status = done.hpc(*STATUS.split()[1:]).stdout
    assert status.count("COMPLETED") == len(asked(done)) + 2, "each run, the report and the sum"
    none = done.hpc("logs", "strong", check=False)
    assert none.returncode == 2 and "failed" in none.stderr
    run = next(path for path in done.runs if "ddp2x1-fp32" in path.name)
    logs = done.hpc("logs", run.name).stdout
    for part in ("attempt 1", "launcher.log", "rank0.log", "rank1.log", "samples/s"):
        assert part in logs


def test_27_points_are_one_array(done: Desk) -> None:
    """On the shipped rehearsal file: one sbatch."""
    study = done.study(ranks="[2]", rates=str([rate / 100 for rate in range(1, 28)]), name="matrix")
    dry = done.hpc("submit", study, "--cluster", "rehearsal", "--dry-run").stdout
    (command,) = [line for line in dry.splitlines() if line.startswith("env ")]
    assert "--array=0-26" in shlex.split(command)
    assert len(submissions(done)) == 1, "nothing was submitted"


def test_the_dry_runs_command_is_the_one_that_submits(done: Desk, tmp_path: Path) -> None:
    """Typed by hand into a shell, quoting and all, it is accepted as it stands."""
    dry = done.hpc("submit", done.study(name="other"), "--cluster", "rehearsal", "--dry-run", "--redo").stdout
    line = next(line for line in dry.splitlines() if line.startswith("env "))
    assert "to start at" in done.run("bash", "-c", line.replace("sbatch ", "sbatch --test-only ", 1)).stderr

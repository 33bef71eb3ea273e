"""A job on two nodes in which the runs of a repeat take turns."""

from __future__ import annotations

import pytest

from hpc_utils import records

from .conftest import Desk, submissions


@pytest.mark.soak
def test_runs_of_a_repeat_take_turns_in_one_job(desk: Desk) -> None:
    study = desk.study()
    study.write_text(study.read_text().replace("steps_per_epoch = 6", "steps_per_epoch = 12"))
    desk.hpc("submit", study, "--cluster", "rehearsal", "--turns", "--wait", HPC_SHARED="1")
    (submission,) = submissions(desk)
    assert records.studies(desk.results)[0].command.endswith("--turns")
    job, report = submission["jobs"]
    assert [len(task) for task in job["tasks"]] == [2] and report["tasks"] == []
    record_set = records.load(desk.results)
    runs = record_set.runs
    assert (
        not record_set.refused
        and not record_set.unfinished
        and set(runs.run_id) == {run for task in job["tasks"] for run in task}
    )
    assert sorted(runs.nodes) == [1, 2]
    rounds = records.load_rounds(runs, desk.results)
    assert rounds.session.nunique() == 1 and set(rounds.run_id) == set(runs.run_id)
    assert (rounds.groupby(["session", "round"]).place.agg(sorted).map(tuple) == (1, 2)).all()
    assert (rounds.groupby("run_id").steps.sum() == 24).all()

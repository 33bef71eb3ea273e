from __future__ import annotations

from hpc_utils.provenance import job

ARRAY = {
    "SLURM_JOB_ID": "4713",
    "SLURM_ARRAY_JOB_ID": "4711",
    "SLURM_ARRAY_TASK_ID": "2",
    "SLURM_JOB_NAME": "strong",
    "SLURM_JOB_NODELIST": "gpu[01-02]",
    "SLURM_JOB_PARTITION": "gpu",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_RESTART_COUNT": "1",
    "SLURM_JWT": "a token",
}


def test_outside_a_job() -> None:
    assert job({}) == {"scheduler": None}
    assert job({"SLURM_CLUSTER_NAME": "x"}) == {"scheduler": None}


def test_an_array_task_that_was_requeued() -> None:
    assert job(ARRAY) == {
        "scheduler": "slurm",
        "id": "4713",
        "array_job_id": "4711",
        "array_task_id": "2",
        "name": "strong",
        "partition": "gpu",
        "account": None,
        "nodelist": "gpu[01-02]",
        "nodes": 2,
        "restart_count": 1,
    }


def test_a_plain_job_has_not_restarted() -> None:
    found = job({"SLURM_JOB_ID": "1"})
    assert (found["id"], found["array_job_id"], found["restart_count"]) == ("1", None, 0)

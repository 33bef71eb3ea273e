"""Ranks that srun starts on two nodes of a real Slurm."""

from __future__ import annotations

import pytest
import torch

from tests.slurm.conftest import Desk, desk  # noqa: F401
from tests.slurm.test_faults import ranks
from tests.train.support import saved


@pytest.mark.soak
def test_one_rank_is_killed_and_the_next_job_ends_with_the_same_weights(desk: Desk) -> None:  # noqa: F811
    parameters = {"workload_args.dataset": "digits", "epochs": 3, "steps_per_epoch": 5000, "global_batch": 16}
    parameters |= {"weight_decay": 0, "checkpoint_every": 1, "save_weights": "true"}
    submitted = {"parameters": parameters, "script": "companions/mpi/mpi.sbatch", "MPI_TYPE": "pmi2"}
    ends = []
    for one in (Desk(desk.folder / "calm", desk.cluster), desk):
        job = one.submit_training(**submitted)
        if one is desk:
            one.wait(lambda: desk.step() > 1.5 * parameters["steps_per_epoch"])
            ranks(one)[1].kill()
            one.wait_for(job, "FAILED")
            job = one.submit_training(**submitted)
        one.wait_for(job, "COMPLETED", "FAILED")
        assert one.state(job) == "COMPLETED", one.log(job)
        ends.append(saved(one.runs[0])["parameters"])
    assert "epoch 2, step" in desk.log(job)
    assert torch.equal(*ends)

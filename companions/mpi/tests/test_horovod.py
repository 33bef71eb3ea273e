"""Horovod's ranks train as DDP's, where `make horovod` has built it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from companions.mpi.horovod import Horovod
from companions.mpi.launcher import horovod_packages
from hpc_utils import records
from hpc_utils.config import RunConfig
from hpc_utils.train import WorkloadError
from tests.launch.conftest import TRAIN, Bench

PARAMETERS = """
workload = "cnn"
workload_args = {}
parallel = "ddp"
device = "cpu"
epochs = 2
steps_per_epoch = 6
global_batch = 32
lr = 0.3
phase_every = 1
augment = False
save_weights = True
"""
HOROVOD = {"workload": "companions.mpi.horovod:Horovod", "parallel": "own", "augment": "true"}
HOROVOD |= {"workload_args": '{"model": "cnn", "dataset": "digits"}'}


@pytest.mark.soak
@pytest.mark.skipif(not horovod_packages(), reason="needs `make horovod`")
def test_it_ends_with_ddps_bits(tmp_path: Path, server: int) -> None:
    bench = Bench(tmp_path)
    notebook = bench.notebook(TRAIN, parameters=PARAMETERS)
    for changes in ({}, HOROVOD):
        options = [word for name, value in changes.items() for word in ("-p", f"{name}={value}")]
        outcome = bench.hpc("run", notebook, "--nproc", 2, *options)
        assert outcome.code == 0, outcome.err
    weights = [
        torch.load(run / "weights.pt", weights_only=True) for run in sorted((bench.results / "runs").iterdir())
    ]
    assert len(weights) == 2 and all(torch.equal(one, weights[1][name]) for name, one in weights[0].items())
    epochs = [records.load_run(run)["epochs"] for run in (bench.results / "runs").iterdir() if "Horovod" in run.name]
    (waited,) = [rows.comm_seconds for rows in epochs]
    assert (waited > 0).all() and (waited < epochs[0].optimizer_seconds).all(), "in the step of the optimizer"
    assert not bench.left()


def test_what_horovod_cannot_reduce_is_refused() -> None:
    with pytest.raises(WorkloadError, match="precision=bf16"):
        Horovod(RunConfig(workload="companions.mpi.horovod:Horovod", parallel="own", precision="fp16"))

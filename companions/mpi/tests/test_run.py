"""`hpc run -p workload=companions.mpi.training:Mpi`: real ranks under mpiexec, their records, and their ends."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL, SIGTERM, SIGUSR1

import pytest
import torch

from hpc_utils import records
from hpc_utils.records.folder import read_json
from tests.launch.conftest import TRAIN, Bench

pytest.importorskip("mpi4py")
STEPS, EPOCHS = 500, 3
PARAMETERS = f"""
workload = "companions.mpi.training:Mpi"
workload_args = {{"dataset": "digits", "augment": True}}
device = "cpu"
parallel = "own"
epochs = {EPOCHS}
steps_per_epoch = {STEPS}
lr = 0.01
lr_scaling = "none"
global_batch = 16
nesterov = False
weight_decay = 0.0
bucket_mb = 0.1
save_weights = True
"""


@pytest.fixture
def bench(tmp_path: Path, server: int) -> Iterator[Bench]:
    bench = Bench(tmp_path, server)
    yield bench
    assert not bench.left()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory, server: int) -> Path:
    """The folder of a complete run on two ranks."""
    bench = Bench(tmp_path_factory.mktemp("uninterrupted"), server)
    outcome = bench.hpc("run", bench.notebook(TRAIN, parameters=PARAMETERS), "--nproc", 2)
    assert outcome.code == 0, outcome.err
    return bench.run


def test_two_ranks_learn_as_one_process_of_torch_and_record_their_communication(bench: Bench):
    notebook = bench.notebook(TRAIN, parameters=PARAMETERS)
    torch_alone = ("-p", "parallel=none", "-p", "workload=mnist_cnn", "-p", "workload_args={}")
    for ranks, other in ((1, torch_alone), (2, ())):
        some = ("--nproc", ranks, *other, "-p", "steps_per_epoch=50", "-p", "epochs=2")
        outcome = bench.hpc("run", notebook, *some)
        assert outcome.code == 0, outcome.err
    found = records.load(bench.results)
    torchs, ours = (found.epochs[found.epochs.run_id.str.contains(name)] for name in ("-none1-", "-own2-"))
    for name in ("train_loss", "test_loss"):
        assert ours[name].to_list() == pytest.approx(torchs[name].to_list(), abs=1e-4), name
    run = found.runs[found.runs.parallel == "own"].iloc[0]
    assert (run["backend"], run["world_size"], run["ranks_per_node"]) == ("mpi", 2, 2)
    assert run["flops_per_sample"] > 0
    assert read_json(bench.results / "runs" / run.run_id / "provenance.json")["start"] == "cold"
    assert (ours.comm_seconds > 0).all() and (ours.comm_seconds < ours.step_mean).all()
    assert ((ours.overlap_seconds >= 0) & (ours.overlap_seconds <= ours.comm_seconds)).all()


@pytest.mark.gpu
def test_a_gpu_learns_as_the_cpu(bench: Bench):
    notebook = bench.notebook(TRAIN, parameters=PARAMETERS)
    for device in ("cpu", "cuda"):
        outcome = bench.hpc(
            "run", notebook, "--nproc", 1, "-p", f"device={device}", "-p", "steps_per_epoch=50", "-p", "epochs=2"
        )
        assert outcome.code == 0, outcome.err
    losses = [one.test_loss.to_list() for _, one in records.load(bench.results).epochs.groupby("run_id")]
    assert losses[0] == pytest.approx(losses[1], abs=1e-3)


@pytest.mark.soak  # tests/train kills and stops ranks of torch, which save and resume alike
@pytest.mark.parametrize("signals", [((SIGKILL, 1),), ((SIGUSR1, 75), (SIGTERM, 143))])
def test_a_run_that_is_killed_or_stopped_at_any_moment_ends_with_the_same_bits(
    bench: Bench, uninterrupted: Path, signals
):
    command = ("run", bench.notebook(TRAIN, parameters=PARAMETERS), "--nproc", 2, "-p", "checkpoint_every=1")
    for number, code in signals:
        until = step(bench) + random.randrange(1, STEPS)
        running = bench.start(*command)
        bench.wait_for(lambda: step(bench) > until)  # noqa: B023
        lines = {one: one.cmdline() for one in bench.left()}
        ranks = [one for one, line in lines.items() if "hpc_utils.launch.rank" in line and "mpiexec" not in line[0]]
        (random.choice(ranks) if number == SIGKILL else running.process).send_signal(number)
        outcome = running.end()
        assert outcome.code == code, outcome.err
    assert bench.hpc(*command).code == 0
    weights = [torch.load(run / "weights.pt", weights_only=True)["parameters"] for run in (bench.run, uninterrupted)]
    assert torch.equal(*weights)
    losses = [records.load_run(run)["epochs"].train_loss.to_list() for run in (bench.run, uninterrupted)]
    assert losses[0] == losses[1]


def step(bench: Bench) -> int:
    return (read_json(bench.run / "progress.json") or {}).get("step", 0) if bench.runs else 0


@pytest.mark.parametrize("cell", ["raise RuntimeError('early')", "os._exit(5)"], ids=["raises", "exits"])
def test_a_rank_that_does_not_join_ends_all(bench: Bench, cell: str):
    before = f"import os\nif os.environ['RANK'] == '1': {cell}"
    outcome = bench.hpc("run", bench.notebook(before, TRAIN, parameters=PARAMETERS), "--nproc", 2)
    assert outcome.code == 1 and outcome.seconds < 60
    expected = "rank 1 raised RuntimeError: early" if "raise" in cell else "the launcher ended with exit code 5"
    assert bench.status()["reason"].startswith(expected)


def test_the_bench_measures_mpi_beside_gloo(bench: Bench):
    outcome = bench.hpc("bench", "allreduce", "--mpi", "--nproc", 2, "--largest", 1, "--repeats", 1)
    assert outcome.code == 0, outcome.err
    (record,) = map(read_json, (bench.results / "probes/mpi").iterdir())
    assert (record["backend"], record["world_size"]) == ("mpi", 2)
    samples = record["groups"]["all"]["samples"]
    assert samples[-1]["bytes"] == 2**20 and all(0 < one["seconds"][0] < 10 for one in samples)

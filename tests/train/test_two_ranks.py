"""Several real processes. One start of two ranks serves many assertions."""

from __future__ import annotations

import os
import textwrap
import time
from pathlib import Path

import pandas as pd
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hpc_utils import records
from hpc_utils.analyze.profiles import readers
from hpc_utils.analyze.profiles.devices import Devices
from hpc_utils.analyze.profiles.judge import judge
from hpc_utils.analyze.profiles.verdict import Bound
from hpc_utils.config import RunConfig
from hpc_utils.provenance import core_groups
from hpc_utils.records import checks
from hpc_utils.records.folder import read_json
from hpc_utils.train import Recorder, Result, train
from hpc_utils.train.vision import small_cnn

from . import tokens
from .forked import Ranks, Two, trained
from .support import BRIEF, PHASES, distance, fit, remarks, same
from .test_profile_window import ranges

STRONG = {"workload": "cnn", "epochs": 2, "global_batch": 128, "eval_batch": 50, "lr": 0.2, "phase_every": 3}
WEAK = STRONG | {"global_batch": None, "batch_per_device": 64}
SLOW = {"workload": "counted:slow", "epochs": 1, "global_batch": 8, "evaluate_every": 0, "warmup_steps": 0}
PROFILED = SLOW | {"steps_per_epoch": 8, "profile": "torch", "profile_steps": 5, "monitor_seconds": 0.1}

COUNTED = """
    import os
    import time
    import torch
    from torch import nn
    from torch.utils.data import Dataset
    from hpc_utils.train import Workload

    class Numbers(Dataset):
        def __init__(self, size):
            self.size = size

        def __len__(self):
            return self.size

        def __getitem__(self, index):
            return torch.tensor([float(index)]), index

    def make(forward=lambda model, inputs: model(inputs)):
        return Workload(
            model=lambda: nn.Linear(1, 1),
            train=Numbers(16),
            test=Numbers(11),
            loss=lambda outputs, targets: outputs.square().mean() * 1e-6,
            metrics={"seen": lambda outputs, targets: (2.0**targets).sum()},  # each sample is a binary digit
            forward=forward,
        )

    def slow():
        def forward(model, inputs):
            time.sleep(0.1 * (os.environ.get("RANK") == "1"))
            return model(inputs)

        return make(forward)

    def broken():
        calls = []

        def forward(model, inputs):
            calls.append(1)
            outputs = model(inputs)
            return outputs * float("nan") if len(calls) == 3 and os.environ.get("RANK") == "1" else outputs

        return make(forward)
"""


def each_rank() -> dict:
    """What each of two ranks does."""
    reports: dict[str, dict] = {}

    def run(name: str, parameters: dict) -> None:
        result, weights = fit(**parameters)
        reports[name] = {"run": result.run_id}
        torch.save(weights, f"{name}.rank{os.environ['RANK']}.pt")

    run("strong", STRONG)
    reports["complete already"] = {"run": train(RunConfig(**WEAK)).run_id}
    run("weak", WEAK)
    run("compiled", BRIEF | {"compile": "default", "warmup_steps": 1, "loader": "device"})
    run("counted", {"workload": "counted:make", "epochs": 1, "global_batch": 8, "eval_batch": 5})
    run("tokens", tokens.RUN)
    run("slow", SLOW)
    run("profiled", PROFILED)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    reports["foreign"] = foreign()
    reports["uneven"] = waiting("uneven", 0, 0.2 * rank, together=False)
    reports["late"] = waiting("late", 0.6 * (rank == 0), 0, together=True)
    dist.destroy_process_group()
    return reports


def foreign() -> dict:
    """A user's own loop with DDP and a DataLoader."""
    torch.manual_seed(0)
    points = torch.randn(48, 4)
    data = torch.utils.data.TensorDataset(points, (points.sum(1) > 0).long())
    sampler = torch.utils.data.DistributedSampler(data, seed=1)
    loader = torch.utils.data.DataLoader(data, batch_size=4, sampler=sampler)
    model = DistributedDataParallel(nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Recorder("mine", global_batch=8, parameters={"lr": 0.1}) as run:
        for epoch in range(2):
            sampler.set_epoch(epoch)
            for x, y in run.epoch(loader):
                loss = nn.functional.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                run.step(samples=len(x), loss=loss)
            run.note(test_loss=float(epoch))
    return {"run": run.path.name}


def waiting(name: str, before: float, step: float, *, together: bool) -> dict:
    """A loop that sleeps before the epoch and in each step, in which the ranks wait for each other or not."""
    with Recorder(name, global_batch=4, parameters={"parallel": "own"}) as run:
        time.sleep(before)
        for _ in run.epoch(range(3)):
            time.sleep(step)
            if together:
                dist.all_reduce(torch.zeros(1))
            run.step(samples=2)
    return {"run": run.path.name}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Two:
    folder = tmp_path_factory.mktemp("two")
    (folder / "counted.py").write_text(textwrap.dedent(COUNTED))
    return Two(each_rank, folder)


@pytest.fixture(scope="module")
def one(own_results: Path) -> tuple[Result, dict]:
    """The same training in this process."""
    return fit(**STRONG)


def test_ranks_agree_and_train_like_one_process(two: Two, one) -> None:
    """The same global batch gives the same model whatever the number of ranks.

    Up to rounding, and only without batch statistics: batch norm normalises over the samples that one rank
    holds, so a ResNet's gradients depend on the batch per device.
    """
    ours, theirs = two.weights("strong")
    result, weights = one
    assert same(ours, theirs), "the ranks have drifted apart"
    torch.manual_seed(0)
    assert distance(ours, weights) < 1e-4 < 0.05 < distance(small_cnn(1, 10).state_dict(), weights)
    epochs, alone = two.tables("strong")["epochs"], result.tables()["epochs"]
    for name, tolerance in (("loss", {"rel": 1e-4}), ("accuracy", {"abs": 0.006})):
        for column in (f"train_{name}", f"test_{name}"):
            assert epochs[column].tolist() == pytest.approx(alone[column].tolist(), **tolerance)
    assert epochs.test_accuracy.iloc[-1] > 0.5, "it has learnt something"
    assert epochs.lr.tolist() == alone.lr.tolist()


def test_a_fixed_batch_per_device_is_the_global_batch_over_the_ranks(two: Two) -> None:
    assert same(two.weights("weak")[0], two.weights("strong")[0])
    assert two.of("weak", "run") == two.of("strong", "run") == two.of("complete already", "run"), "one measurement"


def test_every_recorded_number_of_samples_is_counted_once(two: Two) -> None:
    loaded = records.load(two.results)
    assert loaded.refused == {} and loaded.unfinished == {} and len(loaded.runs) == 9
    epochs = loaded.epochs.merge(loaded.runs[["run_id", "global_batch", "world_size"]], on="run_id")
    assert (epochs.samples == epochs.steps * epochs.global_batch).all()
    assert (epochs.world_size == 2).all() and (epochs.padded_samples == 0).all()
    assert not [fault for row in epochs.to_dict("records") for fault in checks.epoch_faults(row)]
    strong, counted = two.tables("strong"), two.tables("counted")["epochs"].iloc[0]
    assert strong["ranks"].samples.tolist() == strong["epochs"].samples.tolist() == [1408, 1408]
    assert strong["epochs"].dropped_samples.tolist() == [1437 - 1408] * 2
    assert counted.train_seen * 16 == 2**16 - 1 and counted.test_seen * 11 == pytest.approx(2**11 - 1, abs=1e-6)


def test_quotients_and_tokens_are_exact_over_ranks_of_unequal_lengths(two: Two) -> None:
    epochs = two.tables("tokens")["epochs"]
    for part, data in (("train", tokens.make().train), ("test", tokens.make().test)):
        for name in ("perplexity", "accuracy", "penalty"):
            assert epochs[f"{part}_{name}"].tolist() == pytest.approx([tokens.exact(data)[name]] * 2, rel=1e-6)
    assert epochs.units.tolist() == [tokens.exact(tokens.make().train)["tokens"]] * 2


def test_time_is_the_longest_ranks_and_begins_when_all_are_there(two: Two) -> None:
    for name, sleep in (("slow", 2 * 0.1), ("uneven", 3 * 0.2)):
        tables = two.tables(name)
        (seconds,) = tables["epochs"].seconds
        assert seconds == tables["ranks"].seconds.max() >= sleep
    ours, theirs = two.tables("uneven")["ranks"].seconds
    assert ours < theirs - 0.4, "rank 0 waits for nobody inside its own time"
    assert two.tables("uneven")["epochs"].throughput[0] == pytest.approx(3 * 4 / theirs)
    assert two.tables("late")["epochs"].seconds[0] < 0.4, "rank 1 has waited 0.6 s for rank 0 before the epoch"


def test_each_ranks_steps_add_up_to_its_time(two: Two) -> None:
    for name in ("strong", "foreign", "uneven"):
        tables = two.tables(name)
        steps = tables["steps"].groupby("rank").seconds.sum()
        assert steps.tolist() == pytest.approx(tables["ranks"].seconds.tolist(), rel=0.05, abs=0.05)


def test_ddps_own_counters_and_each_ranks_memory_are_recorded(two: Two) -> None:
    tables = two.tables("strong")
    epochs, ranks, peaks = tables["epochs"], tables["ranks"], tables["ranks"].peak_rss_bytes
    for name in ("train_loss", "train_accuracy"):  # equal samples on each rank
        assert ranks[name].mean() == pytest.approx(epochs[name].iloc[-1]) and ranks[name].nunique() == 2
    assert epochs.ended.diff().iloc[1] > epochs.seconds.iloc[1] > 0
    assert (epochs.comm_seconds > 0).all() and (epochs.overlap_seconds <= epochs.comm_seconds).all()
    assert (epochs.comm_seconds < epochs.step_mean.cummax() * 2).all()  # means over all steps so far
    assert len(peaks) == 2 and peaks.between(50e6, 20e9).all() and tables["run"]["peak_rss_bytes"] == peaks.max()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system pins nothing")
def test_ranks_are_pinned_to_cores_of_their_own(two: Two) -> None:
    if len(core_groups()) < 2:
        pytest.skip("one core is not enough for two ranks")
    tables = two.tables("strong")
    assert tables["run"]["pinned"] and not tables["run"]["oversubscribed"] and tables["run"]["threads_per_rank"] == 1
    cores = [{int(core) for core in str(cell).split()} for cell in tables["ranks"].cores]
    assert all(cores) and not cores[0] & cores[1] and set.union(*cores) <= os.sched_getaffinity(0)


def test_a_users_own_loop_leaves_the_same_records(two: Two) -> None:
    tables = two.tables("foreign")
    run, epochs = tables["run"], tables["epochs"]
    assert (run["workload"], run["world_size"], run["backend"]) == ("mine", 2, "gloo")
    assert tables["ranks"].samples.tolist() == epochs.samples.tolist() == [48, 48]
    assert epochs.steps.tolist() == [6, 6] and epochs.test_loss.tolist() == [0.0, 1.0]


def test_two_ranks_leave_a_trace_each_and_one_monitor(two: Two) -> None:
    run = two.path("profiled")
    for rank in (0, 1):
        assert [name for name, *_ in ranges(run, rank)] == ["step", *PHASES] * 5
    about = read_json(run / "run.json")["profiled"]
    assert list(about["files"]) == ["rank0.trace.json.gz", "rank1.trace.json.gz"] and remarks(run) == []
    (monitor,) = (run / "monitor").iterdir()
    resident = pd.read_csv(monitor).pivot_table(index="time", columns="device", values="rss_bytes")
    assert (resident.cpu == resident.rank0 + resident.rank1).all() and resident.min().min() > 100e6


def test_a_profile_on_cpus_shows_what_limits_them(two: Two) -> None:
    found = readers.gather([two.path("profiled")])
    assert found.worked == found.timelines, "five steps are enough"
    verdict, devices = judge(found), Devices(found)
    assert verdict.bound in (Bound.STRAGGLER, Bound.LAUNCH, Bound.HOST), "one rank waits for the other, which sleeps"
    one = devices.straggler
    assert (one.label, one.last, one.of, one.per) == ("rank 1", 5, 5, "step")
    waiting, sleeping = devices.parts
    assert waiting["exposed_communication_ns"] > 0.8 * 5 * 0.1e9 > sleeping["exposed_communication_ns"]
    assert sleeping["otherwise_idle_ns"] > 0.8 * 5 * 0.1e9 > waiting["otherwise_idle_ns"]


def test_two_ranks_that_compile_at_once_train_like_one_process(two: Two, results: Path) -> None:
    ours, theirs = two.weights("compiled")
    assert same(ours, theirs) and 0 < distance(ours, fit(**BRIEF)[1]) < 1e-4


def test_a_rank_whose_loss_is_no_number_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "counted.py").write_text(textwrap.dedent(COUNTED))
    parameters = {"workload": "counted:broken", "steps_per_epoch": 40, "global_batch": 8, "warmup_steps": 0}
    ranks = Ranks(2, trained, parameters, folder=tmp_path, results=tmp_path)
    assert ranks.end()[1] == 1
    assert "NonFiniteLoss: the loss became nan by step 3 of epoch 1 on rank 1" in ranks.output()
    loaded = records.load(tmp_path)
    assert len(loaded.runs) == 0 and [*loaded.unfinished.values()] in (["failed"], ["dead"])

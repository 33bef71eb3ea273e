"""Several real processes. One launch serves many assertions: `on_two_ranks` is what it runs."""

from __future__ import annotations

import json
import os
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from hpc_utils import records
from hpc_utils.provenance import core_groups
from hpc_utils.records import checks, schema
from hpc_utils.train import Result

from . import on_two_ranks
from .conftest import launch
from .support import BRIEF, distance, fit, same

HERE = Path(__file__).parent

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


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """What one launch of `on_two_ranks` left."""
    folder = tmp_path_factory.mktemp("two")
    (folder / "counted.py").write_text(textwrap.dedent(COUNTED))
    results = folder / "results"
    done = launch(2, HERE / "on_two_ranks.py", results, results=results, folder=folder, timeout=200)
    assert done.returncode == 0, done.stderr
    told = [json.loads((results / f"told.rank{rank}.json").read_text()) for rank in range(2)]
    return SimpleNamespace(
        results=results,
        folder=folder,
        told=told,
        out=done.stdout,
        weights=lambda name: [torch.load(results / f"{name}.rank{rank}.pt") for rank in range(2)],
        tables=lambda name: records.load_run(results / "runs" / told[0][name]),
    )


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """The same training in this process."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("RANK", "WORLD_SIZE", "HPC_LAUNCH"):
            patch.delenv(name, raising=False)
        patch.setenv("HPC_RESULTS", str(tmp_path_factory.mktemp("one")))
        result, weights = fit(**on_two_ranks.STRONG)
        return SimpleNamespace(weights=weights, tables=result.tables())


def test_ranks_agree_and_train_like_one_process(two, one) -> None:
    """The same global batch gives the same model whatever the number of ranks.

    Up to rounding, and only without batch statistics: batch norm normalises over the samples that one rank
    holds, so a ResNet's gradients depend on the batch per device.
    """
    ours, theirs = two.weights("strong")
    assert same(ours, theirs), "the ranks have drifted apart"
    fresh = fit_nothing_like(one.weights)
    assert distance(ours, one.weights) < 1e-4 < 0.05 < fresh
    epochs, alone = two.tables("strong")["epochs"], one.tables["epochs"]
    for name in ("train_loss", "test_loss"):
        assert epochs[name].tolist() == pytest.approx(alone[name].tolist(), rel=1e-4)
    for name in ("train_accuracy", "test_accuracy"):
        assert epochs[name].tolist() == pytest.approx(alone[name].tolist(), abs=0.006)
    assert epochs.test_accuracy.iloc[-1] > 0.5, "it has learnt something"
    assert epochs.lr.tolist() == alone.lr.tolist()


def fit_nothing_like(weights: dict) -> float:
    """How far the trained weights are from those of the first moment."""
    from hpc_utils.train.vision import small_cnn

    torch.manual_seed(0)
    return distance(small_cnn(1, 10).state_dict(), weights)


def test_a_fixed_batch_per_device_is_the_global_batch_over_the_ranks(two) -> None:
    assert same(two.weights("weak")[0], two.weights("strong")[0])
    told = two.told[0]
    assert told["weak"] == told["strong"], "one measurement, one name"


def test_a_complete_run_is_skipped_on_every_rank(two) -> None:
    for told in two.told:
        assert told["complete already"] == told["strong"]
    assert two.out.count("is complete already: its records are read") == 1


def test_every_recorded_number_of_samples_is_counted_once(two) -> None:
    loaded = records.load(two.results)
    assert loaded.refused == {} and loaded.unfinished == {}
    assert len(loaded.runs) == 8
    epochs = loaded.epochs.merge(loaded.runs[["run_id", "global_batch", "world_size"]], on="run_id")
    assert (epochs.samples == epochs.steps * epochs.global_batch).all()
    assert (epochs.world_size == 2).all() and (epochs.padded_samples == 0).all()
    for row in epochs.to_dict("records"):
        assert not [*checks.epoch_faults(row)]
        assert row["throughput"] * row["seconds"] == pytest.approx(row["samples"])
    strong = two.tables("strong")
    assert strong["ranks"].samples.tolist() == [1408, 1408]
    assert strong["epochs"].samples.tolist() == [1408, 1408]
    assert strong["epochs"].dropped_samples.tolist() == [1437 - 1408] * 2


def test_each_sample_is_trained_on_and_evaluated_once(two) -> None:
    row = two.tables("counted")["epochs"].iloc[0]
    assert row.train_seen * 16 == 2**16 - 1
    assert row.test_seen * 11 == pytest.approx(2**11 - 1, abs=1e-6)


def test_time_is_the_longest_ranks(two) -> None:
    for name, sleep in (("slow", 2 * 0.1), ("uneven", 3 * 0.2)):
        tables = two.tables(name)
        (seconds,) = tables["epochs"].seconds
        assert seconds == tables["ranks"].seconds.max() >= sleep
    ours, theirs = two.tables("uneven")["ranks"].seconds
    assert ours < theirs - 0.4, "rank 0 waits for nobody inside its own time"
    assert two.tables("uneven")["epochs"].throughput[0] == pytest.approx(3 * 4 / theirs)


def test_time_begins_when_all_are_there(two) -> None:
    assert two.tables("late")["epochs"].seconds[0] < 0.4, "rank 1 has waited 0.6 s for rank 0 before the epoch"


def test_each_ranks_steps_add_up_to_its_time(two) -> None:
    for name in ("strong", "slow", "foreign", "uneven"):
        tables = two.tables(name)
        steps = tables["steps"].groupby("rank").seconds.sum()
        assert steps.tolist() == pytest.approx(tables["ranks"].seconds.tolist(), rel=0.05, abs=0.05)
    steps = two.tables("strong")["steps"]
    assert steps.columns.tolist() == schema.names(schema.STEPS)
    sampled = steps[steps.forward.notna()]
    assert {*sampled.step} == {1, 4, 7, 10} and {*sampled["rank"]} == {0, 1}
    phases = sampled[["data", "forward", "backward", "optimizer"]]
    assert phases.sum(axis=1).tolist() == pytest.approx(sampled.seconds.tolist())
    epoch = two.tables("strong")["epochs"].iloc[0]
    assert epoch.step_mean == pytest.approx(steps[steps.epoch == 1].seconds.mean())
    assert epoch.backward_seconds == pytest.approx(sampled[sampled.epoch == 1].backward.mean())


def test_ddps_own_counters_are_recorded(two) -> None:
    epochs = two.tables("strong")["epochs"]
    assert (epochs.comm_seconds > 0).all()
    assert (epochs.overlap_seconds <= epochs.comm_seconds).all()
    assert (epochs.comm_seconds < epochs.step_mean.cummax() * 2).all()  # means over all steps so far


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system pins nothing")
def test_ranks_are_pinned_to_cores_of_their_own(two) -> None:
    tables = two.tables("strong")
    if len(core_groups()) < 2:
        pytest.skip("one core is not enough for two ranks")
    assert tables["run"]["pinned"] and not tables["run"]["oversubscribed"]
    assert tables["run"]["threads_per_rank"] == 1
    cores = [{int(core) for core in str(cell).split()} for cell in tables["ranks"].cores]
    assert all(cores) and not cores[0] & cores[1]
    assert set.union(*cores) <= os.sched_getaffinity(0)
    assert all(told["restored"] for told in two.told)


def test_more_threads_than_cores_is_recorded_and_not_pinned(two) -> None:
    tables = two.tables("crowded")
    assert tables["run"]["oversubscribed"] and not tables["run"]["pinned"]
    assert tables["run"]["threads_per_rank"] == len(core_groups())
    assert tables["ranks"].cores.isna().all()


def test_somebodys_own_loop_leaves_the_same_records(two) -> None:
    tables = two.tables("foreign")
    assert tables["run"]["workload"] == "mine"
    assert (tables["run"]["world_size"], tables["run"]["backend"]) == (2, "gloo")
    assert tables["ranks"].samples.tolist() == [48, 48]
    assert tables["epochs"].samples.tolist() == [48, 48]
    assert tables["epochs"].steps.tolist() == [6, 6]
    assert tables["epochs"].test_loss.tolist() == [0.0, 1.0]
    assert tables["epochs"].train_loss.iloc[1] < tables["epochs"].train_loss.iloc[0]
    assert same(*two.weights("foreign"))


def test_each_ranks_memory_is_recorded(two) -> None:
    peaks = two.tables("strong")["ranks"].peak_rss_bytes
    assert len(peaks) == 2 and peaks.between(50e6, 20e9).all()
    assert two.tables("strong")["run"]["peak_rss_bytes"] == peaks.max()


@pytest.mark.soak
def test_four_ranks_from_the_command_line(one, tmp_path: Path) -> None:
    parameters = [f"{name}={value}" for name, value in on_two_ranks.STRONG.items()]
    done = launch(4, "-m", "hpc_utils.train", *parameters, "epochs=1", results=tmp_path, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    path = Path(done.stdout.splitlines()[-1])
    assert path.parent == tmp_path / "runs", "rank 0 alone says where the records are"
    tables = Result(path).tables()
    assert tables["run"]["world_size"] == 4 and tables["run"]["batch_per_device"] == 32
    assert tables["run"]["oversubscribed"] == (len(core_groups()) < 4)
    assert tables["ranks"].samples.tolist() == [352] * 4
    assert tables["epochs"].samples.tolist() == [1408]
    alone = one.tables["epochs"].iloc[0]
    # One epoch of warm-up is the same beginning, whether or not a second follows.
    assert tables["epochs"].train_loss[0] == pytest.approx(alone.train_loss, rel=1e-4)
    assert tables["epochs"].test_accuracy[0] == pytest.approx(alone.test_accuracy, abs=0.006)


def test_a_rank_whose_loss_is_no_number_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "counted.py").write_text(textwrap.dedent(COUNTED))
    parameters = ["workload=counted:broken", "steps_per_epoch=40", "global_batch=8", "warmup_steps=0"]
    done = launch(2, "-m", "hpc_utils.train", *parameters, results=tmp_path, folder=tmp_path)
    assert done.returncode != 0
    assert "NonFiniteLoss: the loss became nan by step 3 of epoch 1 on rank 1" in done.stderr
    loaded = records.load(tmp_path)
    assert len(loaded.runs) == 0 and [*loaded.unfinished.values()] in (["failed"], ["dead"])


def test_brief_runs_are_like_one_process_on_two_ranks_too(two, results: Path) -> None:
    """Also oversubscribed, where the order of events is another."""
    _, weights = fit(**BRIEF)
    assert distance(two.weights("crowded")[1], weights) < 1e-4


def test_ranks_that_compile_at_once_and_hold_all_images_train_like_one_process(two, results: Path) -> None:
    ours, theirs = two.weights("compiled")
    assert same(ours, theirs) and 0 < distance(ours, fit(**BRIEF)[1]) < 1e-4

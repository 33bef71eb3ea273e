"""The MPI framework beside DDP: hand-made runs whose ratios are known."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest

from benchmarks import measure
from companions.mpi import analysis as mpi
from companions.mpi import plots as mpi_plots
from hpc_utils import datasets
from hpc_utils.launch import study as studies
from hpc_utils.launch.target import Target
from hpc_utils.records import probes, schema
from tests.analyze.runs import repeated

PHASES = ("data", "forward", "backward", "optimizer")


def measured(results: Path, *kinds: tuple[str, int, float, bool]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """`mpi.measure` and the epochs of (parallel, ranks, seconds of ten steps, overlap), three repeats each."""
    rows, epochs = [], []
    for parallel, ranks, seconds, overlap in kinds:
        rows += repeated(ranks, seconds, parallel=parallel, workload="mnist_cnn", settings=str(overlap))
    for number, row in enumerate(rows):
        row["run_id"] = f"run{number}"
        blank = dict.fromkeys(schema.names(schema.EPOCHS)) | {
            "run_id": row["run_id"],
            "epoch": 1,
            "test_accuracy": 0.99,
        }
        several = {"comm_seconds": 0.3, "overlap_seconds": 0.1} if row["world_size"] > 1 else {}
        epochs.append(blank | {f"{phase}_seconds": 1.0 for phase in PHASES} | several)
        folder = results / "runs" / row["run_id"]
        folder.mkdir(parents=True)
        record = {"config": {"overlap": row["settings"] == "True"}, "train_samples": 1000}
        (folder / "run.json").write_text(json.dumps(record))
    frame = pd.DataFrame(epochs).astype({f"{name}_seconds": float for name in (*PHASES, "comm", "overlap")})
    return mpi.measure(results, pd.DataFrame(rows), frame), frame


def test_configurations_stand_beside_ddp_and_their_own_one_rank(tmp_path: Path) -> None:
    kinds = (("mpi", 1, 8.0, True), ("mpi", 2, 5.0, True), ("mpi", 2, 6.0, False), ("ddp", 2, 6.25, True))
    runs, epochs = measured(tmp_path, *kinds)
    found = mpi.configurations(runs).set_index(["parallel", "world_size", "overlap"])
    assert found.over_ddp["mpi", 2, True] == pytest.approx(0.8) and found.over_ddp["mpi", 2, False] == pytest.approx(
        0.96
    )
    assert found.over_ddp_low["mpi", 2, True] < 0.8 < found.over_ddp_high["mpi", 2, True]
    assert found.speedup["mpi", 2, True] == pytest.approx(1.6) and pd.isna(found.speedup["ddp", 2, True])
    (axes,) = mpi_plots.speedup(found[found.speedup.notna()].reset_index()).figure.axes
    assert axes.containers[0].lines[0].get_ydata()[0] == 1, "of one rank"
    two = found.loc["mpi", 2, True]
    assert (two.exposed_seconds, two.hidden_seconds) == pytest.approx((0.2, 0.1))
    assert sum(two[name] for name in mpi.TIMES) == pytest.approx(4.0), "the parts are the step"
    assert two.pass_seconds == pytest.approx(1000 / (5120 / 5)) and two.repeats == 3
    assert mpi.learned(runs, epochs).test_accuracy.eq(0.99).all()
    crowded = runs.assign(oversubscribed=runs.parallel == "ddp")
    assert "ddp" not in set(mpi.configurations(crowded).parallel), "its times do not count, its accuracy does"
    assert len(mpi.learned(crowded, epochs)) == len(runs)
    none = mpi.measure(tmp_path, runs.assign(workload="cnn"), epochs)
    assert none.empty and mpi.configurations(none).empty and mpi.learned(none, epochs).empty


def test_a_checkpoint_s_pause_stands_beside_the_steps_while_it_is_written(tmp_path: Path) -> None:
    runs, _ = measured(tmp_path, ("mpi", 2, 5.0, True), ("ddp", 2, 5.0, True))
    seconds = [9.0, 2.0, 2.2, 2.0, 2.2]  # the first warms up, the third and the fifth follow a checkpoint
    pauses = [0.0, 0.1, 0.0, 0.3, 0.0]
    by_epoch = {"epoch": range(1, 6), "seconds": seconds, "steps": 10, "checkpoint_seconds": pauses}
    by_epoch |= {f"{phase}_seconds": 1.0 for phase in (*PHASES, "comm", "overlap")}
    epochs = pd.concat([pd.DataFrame(by_epoch).assign(run_id=run) for run in runs.run_id], ignore_index=True)
    is_ddp = epochs.run_id.isin(runs.run_id[runs.parallel == "ddp"])
    epochs["checkpoint_seconds"] = epochs.checkpoint_seconds.mask(is_ddp, 0.0)
    runs = mpi.measure(tmp_path, runs, epochs)
    assert runs.groupby("parallel").checkpoints.unique().map(list).to_dict() == {"mpi": [2], "ddp": [0]}
    (row,) = mpi.checkpoints(runs, epochs).itertuples()
    assert (row.parallel, row.repeats) == ("mpi", 3)
    assert row.pause_seconds == pytest.approx(0.2)
    assert (row.plain_step_seconds, row.writing_step_seconds) == pytest.approx((0.2, 0.22))
    assert row.writing_over_plain == pytest.approx(1.1)


def test_horovod_waits_in_the_optimizer_s_step(tmp_path: Path) -> None:
    runs, epochs = measured(tmp_path, ("horovod", 2, 5.0, True))
    runs = mpi.measure(tmp_path, runs, epochs.assign(overlap_seconds=0.0))
    (row,) = mpi.configurations(runs).itertuples()
    assert (row.exposed_seconds, row.compute_seconds, row.optimizer_seconds) == pytest.approx((0.3, 2.0, 0.7))
    assert pd.isna(row.hidden_seconds), "nobody measures it"
    unmeasured = mpi.measure(tmp_path, runs, epochs.assign(comm_seconds=float("nan"), overlap_seconds=float("nan")))
    (row,) = mpi.configurations(unmeasured).itertuples()
    assert pd.isna(row.exposed_seconds)
    assert (row.compute_seconds, row.optimizer_seconds) == pytest.approx((2.0, 1.0))


def test_an_all_reduce_of_mpi_stands_beside_torch_s_on_the_same_ranks(results: Path) -> None:
    assert mpi.allreduces(results).empty
    place = {"hardware_id": "here", "nodes": 1, "ranks_per_node": 2, "link_gbit": None}

    def samples(factor: float) -> dict[str, object]:
        times = [{"bytes": size, "seconds": [factor * size * 1e-9] * 3} for size in (4, 4096, 2**22)]
        return {"groups": {"all": {"ranks": 2, "nodes": 1, "ranks_per_node": 2, "samples": times}}}

    probes.keep("mpi", "here", place | {"backend": "mpi"} | samples(1.0))
    probes.keep("allreduce", "elsewhere", place | {"hardware_id": "there", "backend": "nccl"} | samples(9.0))
    assert mpi.allreduces(results).empty, "other ranks"
    probes.keep("allreduce", "here", place | {"backend": "gloo"} | samples(3.0))
    table = mpi.allreduces(results).set_index(["library", "bytes"]).allreduce_seconds
    assert table["torch.distributed, gloo", 4096] == pytest.approx(3 * table["MPI_Allreduce", 4096])
    assert len(table) == 6 and mpi_plots.allreduce(mpi.allreduces(results)).figure is not None


def test_a_gpu_stands_beside_ddp_on_a_gpu(tmp_path: Path) -> None:
    kinds = (("mpi", 1, 8.0, True), ("ddp", 1, 4.0, True), ("mpi", 2, 5.0, True), ("ddp", 2, 10.0, True))
    runs, _ = measured(tmp_path, *kinds)
    is_two = runs.world_size == 2  # stands for one rank on the same machine's GPU
    runs = runs.assign(device=runs.device.mask(is_two, "cuda"), world_size=1, nodes=1, ranks_per_node=1)
    table = mpi.configurations(runs).set_index(["parallel", "device"])
    assert table.over_ddp["mpi", "cpu"] == pytest.approx(2) and table.over_ddp["mpi", "cuda"] == pytest.approx(0.5)
    (axes,) = mpi_plots.step_parts(table.reset_index()).figure.axes
    assert sorted(label.get_text() for label in axes.get_yticklabels()) == [
        "DDP on CUDA, 1 rank",
        "DDP, 1 rank",
        "MPI framework on CUDA, 1 rank",
        "MPI framework, 1 rank",
    ]


def test_the_study_on_gpus_is_the_framework_on_both_devices(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "load", lambda *_: None)
    target = Target("here", ranks_per_node=4, gpus="nvidia")
    points = studies.plan("mpi-cuda", target).points
    kinds = {(point.series, point.request.config.device, point.ranks) for point in points}
    on_gpus = {(series, "cuda", ranks) for series in ("mpi-cuda", "ddp-cuda") for ranks in (1, 2, 4)}
    assert kinds == on_gpus | {("mpi-cpu", "cpu", 1)}
    assert {point.request.config.evaluate_every for point in points} == {0}


def test_a_benchmark_is_read_with_its_ratios_to_the_first_variant(tmp_path: Path) -> None:
    assert mpi.benchmark(tmp_path, "mpi", "throughput", "throughput").empty
    rows = [measure.Row("mnist", name, "throughput", "images/s", value, value - 1, value + 1, 3, ratio=ratio)
            for name, value, ratio in (("DataLoader", 10.0, None), ("ours", 1000.0, 100.0))]  # fmt: skip
    rows.append(measure.Row("step", "ours", "step_time", "s", 1.0, 1.0, 1.0, 3))
    (tmp_path / "bench").mkdir()
    pd.DataFrame(map(asdict, rows)).to_csv(tmp_path / "bench/mpi.csv", index=False)
    found = mpi.benchmark(tmp_path, "mpi", "throughput", "throughput").set_index("variant")
    assert list(found.index) == ["DataLoader", "ours"] and found.ratio["ours"] == 100
    assert (found.throughput_low["ours"], found.throughput_high["ours"]) == (999, 1001)
    assert not mpi_plots.side_by_side(found.reset_index(), "throughput").data.empty

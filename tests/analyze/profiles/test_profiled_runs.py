"""Which runs are repeats of one profiled configuration, and which are the same without a profiler."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from hpc_utils import paths, records
from hpc_utils.analyze.profiles import profiled_runs
from hpc_utils.analyze.profiles.profiled_runs import Profile, configurations
from hpc_utils.records import schema


def asked(run: str, series: str, ranks: int = 1, **parameters: object) -> dict:
    return {"run_id": run, "series": series, "ranks": ranks, "parameters": {"profile": None, "seed": 0} | parameters}


def runs(*studied: dict, also: tuple[str, ...] = ()) -> pd.DataFrame:
    every = [(one["run_id"], one["parameters"]) for one in studied] + [(run, {"profile": "torch"}) for run in also]
    rows = [{"run_id": run, "profile": one["profile"], "repeat": one.get("repeat", 1)} for run, one in every]
    same = {"workload": "cnn", "dataset": "digits", "precision": "fp32", "world_size": 1, "global_batch": 8}
    return pd.DataFrame(rows).assign(**same, throughput=[100.0 + number for number in range(len(rows))])


def found(studied: list[dict], also: tuple[str, ...] = ()) -> dict[str, Profile]:
    return configurations(Path("set"), runs(*studied, also=also), studied)


def test_repeats_belong_together_and_to_their_plain_runs() -> None:
    studied = [
        asked("a1", "slow", profile="torch", profile_steps=2, seed=0, repeat=1),
        asked("a2", "slow", profile="torch", profile_steps=2, seed=1, repeat=2),
        asked("b1", "slow-plain", seed=0, repeat=1),
        asked("b2", "slow-plain", seed=1, repeat=2),
        asked("c1", "other-plain", seed=0, loader="host"),
    ]
    (one,) = found(studied).values()
    assert one.name == "slow" and one.paths == {run: [Path(f"set/runs/{run}")] for run in ("a1", "a2")}
    plain = [[1, "b1", 102.0], [2, "b2", 103.0]]
    assert one.plain.to_numpy().tolist() == plain, "another loader is another configuration"


def test_what_varies_inside_a_series_joins_its_name_and_a_run_of_no_study_stands_for_itself() -> None:
    studied = [
        asked("a", "torch", 1, profile="torch", precision="fp32"),
        asked("b", "torch", 2, profile="torch", precision="fp32"),
        asked("c", "torch", 2, profile="torch", precision="bf16"),
    ]
    names = found(studied, also=("cnn_Digits-1",))
    assert list(names) == ["torch-1-fp32", "torch-2-fp32", "torch-2-bf16", "cnn-digits-1"]
    assert names["cnn-digits-1"].plain.empty


HEADER = ",".join(schema.names(schema.MONITOR))


def row(time: float, host: str, device: str, percent: float, power: str = "") -> str:
    known = {"time": time, "host": host, "device": device, "utilization_percent": percent, "power_watts": power}
    return ",".join(str(known.get(name, "")) for name in schema.names(schema.MONITOR))


def test_every_host_and_device_has_its_own_curve_on_one_clock(tmp_path: Path) -> None:
    folder = tmp_path / "runs/run/monitor"
    folder.mkdir(parents=True)
    first = [row(100.0, "a", "cpu", 5), row(100.0, "a", "cuda:0", 90, "400"), row(101.0, "a", "cpu", 7)]
    ranks = [row(101.0, "a", "rank0", 99)]  # a rank's processes: no device
    (folder / "a.csv").write_text("\n".join([HEADER, *first, *ranks, "1765.25,no"]))  # the last line is cut
    (folder / "b.csv").write_text("\n".join([HEADER, row(100.5, "b", "cpu", 9)]) + "\n")
    log = profiled_runs.monitors(tmp_path, ["run", "without a monitor"])["run"]
    found = dict(list(log.groupby("device")))
    assert list(log.device.unique()) == ["a, cpu", "a, cuda:0", "b, cpu"]
    assert found["a, cpu"].seconds.tolist() == [0.0, 1.0] and found["b, cpu"].seconds.tolist() == [0.5]
    assert found["a, cuda:0"].power_watts.tolist() == [400.0] and found["a, cpu"].power_watts.isna().all()
    assert list(profiled_runs.monitors(tmp_path, ["run"], least=3)) == []


def test_what_was_monitored_while_training_is_a_row_for_each_configuration() -> None:
    folder = paths.reference() / "h200"
    found = records.load(folder)
    table = profiled_runs.monitored(folder, found.runs, found.epochs)
    assert len(table) == table.runs.str[0].nunique() == 3 and (table.repeats == 1).all()
    assert table.utilisation.between(0, 1).all() and table.temperature.between(30, 100).all()
    run = table.runs[0][0]
    log = profiled_runs.read_log(folder, run)
    assert table.memory_bytes[0] <= log.memory_bytes[log.device == "cuda:0"].max()
    epochs = found.epochs.assign(ended=found.epochs.ended - 1e6)
    assert profiled_runs.monitored(folder, found.runs, epochs).empty, "no sample is of the training parts"


def test_the_time_by_kind_of_kernel_of_profiled_runs_has_a_row_for_each_configuration() -> None:
    folder = paths.reference() / "epyc-avx512-profiles"
    found = records.load(folder)
    kinds = profiled_runs.kernel_kinds(folder, found.runs)
    assert kinds.configuration.is_unique and set(kinds.runs.str[0]) <= set(found.runs.run_id)
    assert kinds.drop(columns=["configuration", "runs"]).sum(axis=1).tolist() == pytest.approx([1.0] * len(kinds))


def test_the_memory_of_a_gpu_grows_apart_from_its_process(tmp_path: Path) -> None:
    folder = tmp_path / "runs/run/monitor"
    folder.mkdir(parents=True)
    seconds = range(16)
    columns = {"time": seconds, "host": "a"}
    gpu = pd.DataFrame(columns | {"device": "cuda:0", "memory_used_bytes": [1000 + 100 * time for time in seconds]})
    process = pd.DataFrame(
        columns | {"device": "rank0", "rss_bytes": [5000 + 100 * min(time, 4) for time in seconds]}
    )
    host = pd.DataFrame(columns | {"device": "cpu", "memory_used_bytes": 9000.0})
    pd.concat([gpu, process, host]).reindex(columns=schema.names(schema.MONITOR)).to_csv(
        folder / "a.csv", index=False
    )
    epochs = pd.DataFrame({"run_id": ["run"], "ended": [15.0], "seconds": [15.0]})
    runs = pd.DataFrame({"run_id": ["run", "without a monitor"]})
    table = profiled_runs.memory_growth(tmp_path, runs, epochs).set_index("device")
    assert table.is_leak.to_dict() == {"cuda:0": True, "rank0": False}
    assert (table.second_quarter_bytes["cuda:0"], table.last_quarter_bytes["cuda:0"]) == (1550, 2350)
    assert profiled_runs.memory_growth(tmp_path, runs, epochs.assign(ended=6.0, seconds=6.0)).empty, "too few samples"

"""`hpc monitor`: the last sample of a running run, from tables that its monitor writes meanwhile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from companions.monitor import live
from hpc_utils import cli
from hpc_utils.provenance.monitor import COLUMNS
from hpc_utils.records.folder import RunFolder

CPU = {"device": "cpu", "utilization_percent": 95.4, "memory_used_bytes": 3 * 2**30, "memory_total_bytes": 24 * 2**30}
GPU = {"device": "cuda:0", "utilization_percent": 87, "power_watts": 412.3, "throttle": "gpu_idle"}
RANK = {"device": "rank0", "utilization_percent": 99.0, "rss_bytes": 2**29}


def moment(at: float, received: int) -> str:
    """The rows of one moment; `received`: bytes since the first."""
    rows = [CPU | {"network_received_bytes": received, "network_sent_bytes": 2 * received}, RANK, GPU]
    lines = [",".join(str((row | {"time": at, "host": "node1"}).get(name, "")) for name in COLUMNS) for row in rows]
    return "\n".join(lines) + "\n"


@pytest.fixture
def run(results: Path) -> Path:
    """A run that this process claims, and that has a monitor."""
    folder = RunFolder.claimed(results / "runs/mine").path
    (folder / "monitor").mkdir()
    (folder / "progress.json").write_text(json.dumps({"step": 30, "steps": 100, "at": 0.0}))
    return folder


def write(run: Path, *moments: str) -> None:
    (run / "monitor/node1.csv").write_text(",".join(COLUMNS) + "\n" + "".join(moments))


def test_rates_are_those_between_the_last_two_whole_rows(run: Path) -> None:
    many = [moment(float(at), 0) for at in range(2000)]  # longer than what is read
    write(run, *many, moment(2000.0, 10**6), moment(2002.0, 5 * 10**6), "2003.0,node1,cpu,9")
    cpu, rank, gpu = (row.dropna().to_dict() for _, row in live.latest(run).iterrows())
    assert (cpu["device"], cpu["time"], cpu["utilization_percent"]) == ("cpu", 2002.0, 95.4)
    assert [cpu.get(name) for name in live.COUNTERS] == [2e6, 4e6, None, None], "no InfiniBand there"
    at = {"time": 2002.0, "host": "node1"}
    assert rank == at | RANK
    assert gpu == at | GPU
    write(run, moment(1.0, 0))
    assert live.latest(run)[live.COUNTERS].isna().all(axis=None), "of one sample"


def test_the_only_running_run_is_shown_once(run: Path) -> None:
    def monitor(*words: str) -> Result:
        return CliRunner().invoke(cli.main, ["monitor", *words])

    assert monitor().exit_code == 1, "no sample yet"
    write(run, moment(1.0, 0), moment(2.0, 10**6))
    first, _, header, cpu, rank, gpu = monitor().output.splitlines()
    assert first == "mine: step 30 of 100 (30%)"
    assert cpu.split() == ["node1", "cpu", "95.4", "3.0", "24.0", "1.0", "2.0"]
    assert "412.3" in gpu.split() and "0.5" in rank.split() and "RDMA" not in header, "what no row has"
    assert monitor("other").exit_code == 2
    RunFolder.claimed(run.with_name("second"))
    assert monitor().exit_code == 2 and "second" in monitor().output
    assert monitor("mine").exit_code == 0
    RunFolder(run).close("complete")
    RunFolder(run.with_name("second")).close("failed")
    assert monitor().exit_code == 2

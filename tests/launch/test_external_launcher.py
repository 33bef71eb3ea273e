"""Ranks that a launcher starts, as torchrun does in jobs: signals on their way to them, and their failures."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hpc_utils.records.folder import read_json, state

from .conftest import PARAMETERS, TRAIN, Bench

TORCHRUN = ["--", sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


@pytest.mark.soak  # tests/slurm does it by srun
def test_under_torchrun_a_run_is_stopped_and_then_loses_a_rank(bench: Bench) -> None:
    parameters = PARAMETERS.replace("steps_per_epoch = 6", "steps_per_epoch = 20000")
    command = ("run", bench.notebook(TRAIN, parameters=parameters), "--nproc", 2, *TORCHRUN)
    running = bench.start(*command)
    bench.wait_for(lambda: bench.runs and (read_json(bench.run / "progress.json") or {}).get("step"))
    running.process.send_signal(signal.SIGUSR1)
    outcome = running.end()
    assert outcome.code == 75, outcome.err
    assert state(bench.run) == "stopped" and bench.left() == []
    assert read_json(bench.run / "provenance.json")["start"] == "cold"

    outcome = bench.hpc(*command, FAULT="kill")
    assert outcome.code == 1 and "rank 1 was killed by SIGKILL" in bench.status()["reason"]
    assert bench.left() == []


def test_a_rank_reads_the_signals_of_its_launcher(tmp_path: Path) -> None:
    """Those that were written before it started too; of a node's ranks the first alone."""
    code = (
        "import signal, sys, time\nfrom pathlib import Path\nfrom hpc_utils.launch.external_launcher import receive_signals\n"
        "received = []\n"
        "for number in (signal.SIGUSR1, signal.SIGTERM):\n"
        "    signal.signal(number, lambda number, _: received.append(number) or print(number, flush=True))\n"
        "receive_signals(Path(sys.argv[1]))\n"
        "end = time.monotonic() + float(sys.argv[2])\n"
        "while len(received) < 2 and time.monotonic() < end:\n"
        "    time.sleep(0.02)\n"
    )
    (tmp_path / "logs").mkdir()
    written = tmp_path / "logs" / "signal"
    written.write_text(str(int(signal.SIGUSR1)))
    for place, numbers in (("0", [signal.SIGUSR1, signal.SIGTERM]), ("1", [])):
        seconds = "60" if numbers else "1.5"
        command = [sys.executable, "-c", code, str(tmp_path), seconds]
        with subprocess.Popen(command, env={"LOCAL_RANK": place}, stdout=subprocess.PIPE, text=True) as rank:
            for number in numbers:
                assert int(rank.stdout.readline()) == number
                written.write_text(str(int(signal.SIGTERM)))
            assert rank.stdout.read() == ""

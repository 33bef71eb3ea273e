"""`hpc doctor` on this machine: as it is, and with faults injected."""

from __future__ import annotations

import json
import signal
import sys

import pytest

from hpc_utils.doctor.runner import CHECKS
from hpc_utils.launch import cluster
from hpc_utils.launch import diagnostics as starting
from tests.support import wait_for

from .conftest import Doctor

NAMES = ["ranks", *(judge.name for check in CHECKS for judge in check.judges)]


def test_one_rank_is_examined_in_full_also_under_another_launcher(doctor: Doctor) -> None:
    found = doctor.hpc(RANK="3", WORLD_SIZE="8", MASTER_ADDR="192.0.2.1", MASTER_PORT="1")
    rows = [line for line in found.out.splitlines() if line[:1] in "✔✘?–" and line[:1]]
    assert [row[2:18].strip() for row in rows] == [check["name"] for check in found.report["checks"]] == NAMES
    for name in ("ranks", "software", "data sets", "names", "process group", "cores"):
        assert found.verdict(name) == "pass", found.out
    for name in ("time limit", "shared results", "interface", "transport", "all-reduce", "clock skew"):
        assert found.verdict(name) == "not applicable", found.out
    assert "GFLOP/s" in found["compute"]["measured"]
    assert found.report["seconds"] < 120
    assert "\x1b" not in found.out, "no colours into a file"
    assert found["environment"]["verdict"] == "fail"
    assert "MASTER_ADDR MASTER_PORT RANK WORLD_SIZE" in found["environment"]["measured"]
    assert found.code == 1


@pytest.mark.soak  # tests/slurm has two ranks on two nodes
def test_two_ranks_are_examined_together(doctor: Doctor) -> None:
    """The module, as a job script starts it."""
    found = doctor.ranks(2, CUDA_VISIBLE_DEVICES="")
    assert found.code == 0, found.err
    assert found["ranks"]["measured"].startswith("2 of 2 ranks started")
    assert found.verdict("process group") == "pass"
    assert found["interface"]["measured"].startswith("gloo over lo"), found.out
    assert "GB/s" in found["all-reduce"]["measured"]
    saw = found.report["saw"]
    assert (len(saw["compute"]), len(saw["cores"]), len(saw["software"])) == (2, 2, 1), "software: one look a node"
    assert next(iter(saw["all-reduce"].values()))["sizes"][0]["bytes"] == 2**20
    pinned = [set(facts["pinned"]) for facts in saw["cores"].values()]
    assert found.verdict("cores") == "fail" or not pinned[0] & pinned[1], "fail: oversubscribed"
    (kept,) = doctor.results.glob("doctor/*/doctor.json")
    assert json.loads(kept.read_text()) == found.report, "the copy is the report"
    assert doctor.left() == [] and not list(doctor.folder.glob("hpc-*"))


def test_a_rank_that_dies_is_reported_through_hpc(doctor) -> None:
    dies = doctor.sabotage(
        """
        import os, time
        if os.environ.get("RANK") == "1":
            time.sleep(3)
            raise SystemExit("rank 1 has no libraries")
        """
    )
    found = doctor.hpc("--nproc=2", PYTHONPATH=dies)
    assert found.code == 1
    assert found.verdict("launcher") == "fail"
    assert "rank 1 has no libraries" in found.err
    assert doctor.left() == []


def test_interrupted_by_hand_it_leaves_no_process_and_no_report(doctor) -> None:
    process = doctor.start([sys.executable, "-m", "hpc_utils.cli", "doctor"])
    wait_for(lambda: len(doctor.left()) >= 3)  # hpc, torchrun, the rank
    process.send_signal(signal.SIGINT)
    examined = doctor.end(process)
    assert (examined.code, examined.report) == (130, None)
    wait_for(lambda: not doctor.left())


@pytest.mark.parametrize(("here", "known"), [("lumi-g-gpu", True), ("elsewhere", False)])
def test_the_torch_build_is_the_cluster_files_where_the_machine_is_one(here, known) -> None:
    assert starting._build(here) == (cluster.read_cluster("lumi-g").software.torch if known else "")


@pytest.mark.gpu
def test_a_rank_on_each_gpu(doctor) -> None:
    import torch

    number = torch.cuda.device_count()
    found = doctor.ranks(number)
    for name in ("driver and torch", "GPUs", "process group", "cores"):
        assert found.verdict(name) == "pass", found.out + found.err
    assert found.verdict("transport") == ("not applicable" if number == 1 else "pass")
    assert found.verdict("clocks") in (("unknown",) if torch.version.hip else ("pass", "fail"))
    assert not list(doctor.folder.glob("hpc-*")), "NCCL's log is removed"

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hpc_utils.records import ClaimedElsewhere, claim

ROUNDS, RACERS = 60, 3
SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def run(results: Path) -> Path:
    return results / "runs" / "cnn-digits"


def someone_else(run: Path, **changes: Any) -> None:
    """Another process's claim, the newest."""
    number, _ = claim.current(run)
    (run / "claims").mkdir(parents=True, exist_ok=True)
    content = claim.claimant() | {"job": ""} | changes
    (run / "claims" / f"{number + 1:04d}.json").write_text(json.dumps(content))


def race(folder: Path, barrier, wins) -> None:
    """One racer: for each round's run, claim it at the same moment as the others."""
    for number in range(ROUNDS):
        barrier.wait(30)
        try:
            claim.claim(folder / f"run{number}")
        except ClaimedElsewhere:
            continue
        wins.put((number, os.getpid()))
    barrier.wait(30)  # no process ends, and so gives up its claim, before all have raced


@pytest.mark.parametrize("takeover", [False, True], ids=["unclaimed", "dead claimant"])
def test_of_racing_processes_exactly_one_wins(results: Path, takeover: bool) -> None:
    if takeover:
        for number in range(ROUNDS):
            someone_else(results / f"run{number}", started=0)
    barrier, wins = SPAWN.Barrier(RACERS), SPAWN.Queue()
    racers = [SPAWN.Process(target=race, args=(results, barrier, wins)) for _ in range(RACERS)]
    for racer in racers:
        racer.start()
    try:
        won = [wins.get(timeout=60) for _ in range(ROUNDS)]
        for racer in racers:
            racer.join(30)
    finally:
        for racer in racers:
            racer.kill()
            racer.join()
    assert [racer.exitcode for racer in racers] == [0] * RACERS
    assert wins.empty()
    assert sorted(number for number, _ in won) == list(range(ROUNDS))
    assert len({pid for _, pid in won}) > 1, "one racer won every round: that was no race"
    for number in range(ROUNDS):
        claims = {path.name for path in (results / f"run{number}" / "claims").iterdir()}
        assert claims == {f"{n:04d}.json" for n in range(1, 2 + takeover)}


def test_a_living_claimant_is_respected_and_a_dead_one_taken_over(run: Path) -> None:
    code = "import sys, pathlib; from hpc_utils.records import claim; claim.claim(pathlib.Path(sys.argv[1]))"
    code += "; print('claimed', flush=True); sys.stdin.read()"
    other = subprocess.Popen(
        [sys.executable, "-c", code, run], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout.readline() == "claimed\n"
        with pytest.raises(ClaimedElsewhere, match=rf"cnn-digits is being run by process {other.pid} on .*delete"):
            claim.claim(run)
    finally:
        other.kill()
        # Not waited for yet: a zombie works on nothing either.
        deadline = time.monotonic() + 10
        while "Z" not in Path(f"/proc/{other.pid}/stat").read_text().split(") ")[1][:1]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        number = claim.claim(run)
        other.communicate()
    assert number == 2
    assert claim.current(run)[1]["pid"] == os.getpid()


def test_a_reused_pid_is_not_the_claimant(run: Path) -> None:
    someone_else(run, pid=os.getppid(), started=12345)  # alive, but another process than the one that claimed
    assert claim.claim(run) == 2


def test_a_claimant_before_the_last_boot_has_ended(run: Path) -> None:
    someone_else(run, pid=os.getppid(), started=claim.started(os.getppid()))
    with pytest.raises(ClaimedElsewhere):
        claim.claim(run)
    someone_else(run, pid=os.getppid(), started=claim.started(os.getppid()), boot="former")
    assert claim.claim(run) == 3


def test_a_process_is_known_by_its_start_whatever_its_name(tmp_path: Path) -> None:
    program = tmp_path / "a) Z 1 (b"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "30"]) as process:
        start = claim.started(process.pid)
        assert claim.started(os.getpid()) <= start == claim.started(process.pid)
        process.kill()
        while claim.started(process.pid) is not None:  # a zombie before it is waited for
            time.sleep(0.01)


def test_another_machines_claimant_is_respected(run: Path) -> None:
    someone_else(run, host="elsewhere", pid=2**22 + 1)
    with pytest.raises(ClaimedElsewhere, match="on elsewhere"):
        claim.claim(run)


def test_the_same_job_requeued_on_another_machine_is_taken_over(run: Path, monkeypatch) -> None:
    someone_else(run, host="elsewhere", job="17")
    with pytest.raises(ClaimedElsewhere, match=r"\(job 17\)"):
        claim.claim(run)
    monkeypatch.setenv("SLURM_JOB_ID", "18")
    with pytest.raises(ClaimedElsewhere):
        claim.claim(run)
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    with pytest.raises(ClaimedElsewhere):  # on another node of the same allocation
        claim.claim(run)
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert claim.claim(run) == 2


def test_a_released_run_can_be_claimed(run: Path) -> None:
    someone_else(run, host="elsewhere")
    claim.release(run)
    assert claim.current(run) == (1, None)
    assert claim.claim(run) == 2
    assert claim.current(run)[1]["pid"] == os.getpid()

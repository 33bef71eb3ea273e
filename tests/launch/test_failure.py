"""What a failed job's log says, in one line, and what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpc_utils.launch import failure, symptoms
from tests.launch.test_symptoms import LOGS
from tests.train.support import small_disk

LOG = """job 7 on node[1-2]: 2 x 1 ranks, attempt 1
Traceback (most recent call last):
  File "train.py", line 3, in <module>
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
srun: error: node2: task 1: Exited with exit code 1
slurmstepd: error: *** STEP 7.0 ON node1 CANCELLED AT 2026-11-21T09:00:00 ***
"""


def test_the_last_line_that_matters_is_the_error_not_what_came_of_it(tmp_path: Path) -> None:
    log = tmp_path / "7.log"
    log.write_text(LOG)
    assert (
        failure.explain_job("FAILED", "", log)[1]
        == "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    )
    assert (
        failure.explain_job("FAILED", "rank 1 raised ValueError: x\nTraceback", log)[1]
        == "rank 1 raised ValueError: x"
    )
    assert failure.explain_job("FAILED", "", tmp_path / "missing")[1] == ""
    log.write_text("failed: " + "x" * 500 + "\ngiving up\nsrun: error: node1: task 0: Exited with exit code 1\n")
    line = failure.explain_job("FAILED", "", log)[1]
    assert line.startswith("failed: xxx") and len(line) == 200


def test_a_log_of_a_gigabyte_is_read_from_its_end(tmp_path: Path) -> None:
    log = tmp_path / "long.log"
    with log.open("wb") as file:
        file.seek(1 << 30)  # sparse
        file.write(b"\nRuntimeError: the end\n")
    assert failure.explain_job("FAILED", "", log)[1] == "RuntimeError: the end"


@pytest.mark.parametrize(
    ("state", "text", "becomes", "advice"),
    [
        ("FAILED", LOG, "FAILED", "batch_per_device"),
        ("FAILED", "slurmstepd: error: Detected 1 oom_kill event", "OUT_OF_MEMORY", "memory"),
        ("FAILED", "NonFiniteLoss: the loss became nan by step 3", "FAILED", "smaller lr"),
        ("FAILED", "error: cifar10 is not here: hpc data fetch cifar10", "FAILED", "internet"),
        ("FAILED", "ModuleNotFoundError: No module named 'einops'", "FAILED", "pip install"),
        ("FAILED", "something new", "FAILED", "hpc logs"),
        ("TIMEOUT", LOG, "TIMEOUT", "raise [slurm] time"),
        ("NODE_FAIL", "", "NODE_FAIL", "hpc retry"),
        ("CANCELLED", "", "CANCELLED", "stays cancelled"),
    ],
)
def test_each_failure_comes_with_what_to_do(tmp_path: Path, state: str, text: str, becomes: str, advice: str) -> None:
    found, _, told = failure.explain_job(state, text, tmp_path / "no.log")
    assert found == becomes
    assert advice in told


def test_a_full_disk_is_the_reason_where_nothing_else_could_be_written() -> None:
    with small_disk(0.06) as run:
        (run / "logs").mkdir()
        (run / "logs" / "launcher.log").touch()
        with pytest.raises(OSError), (run / "ballast").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        first, *_ = failure.explain(run, 1).splitlines()
    assert "No space left on device" in first and "HPC_RESULTS" in first


@pytest.mark.parametrize("raised", [True, False])
def test_torchrun_that_ends_the_other_ranks_is_no_cancellation_if_a_rank_raised(tmp_path: Path, raised: bool) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    words = "torch.distributed.elastic.multiprocessing.api.SignalException: Process 31 got signal: 15\n"
    (logs / "launcher.log").write_text(words)
    if raised:
        report = {"rank": 1, "at": 1.0, "name": "ValueError", "message": "mine", "traceback": "Cell 3"}
        (logs / "rank1.error").write_text(json.dumps(report))
    reason = failure.explain(tmp_path, 1)
    assert reason.startswith("rank 1 raised ValueError: mine") == raised
    assert ("scancel" in reason) != raised
    *_, told = failure.explain_job("FAILED", reason, logs / "launcher.log")
    assert ("scancel" in told) != raised


@pytest.mark.parametrize("ended", [True, False])
def test_losses_that_other_ranks_report_later_hide_no_cause(tmp_path: Path, ended: bool) -> None:
    log = tmp_path / "7.log"
    log.write_text(f"{'Process 31 got signal: 15' if ended else ''}\nrank 0: epoch 3 loss: 0.51\n")
    *_, told = failure.explain_job("FAILED", "rank 1 was killed by SIGKILL\nIts last lines:\nepoch 3", log)
    assert told == symptoms.catalogue()["killed"].fix


RECORDED = {one["first"]: one["text"] for one in LOGS if one["first"] in symptoms.catalogue()}
FAILURES = {name for name, one in symptoms.catalogue().items() if one.kind != symptoms.Kind.HINT} - {"configuration"}


@pytest.mark.parametrize("name", sorted(RECORDED.keys() & FAILURES))
def test_status_and_failure_report_give_the_remedy_of_the_first_cause_in_a_recorded_log(
    tmp_path: Path, name: str
) -> None:
    require_same_remedy(tmp_path, name, RECORDED[name])


def require_same_remedy(run: Path, name: str, text: str) -> None:
    (run / "logs").mkdir(parents=True)
    log = run / "logs" / "launcher.log"
    log.write_text(text)
    symptom = symptoms.catalogue()[name]
    remedy = symptom.here or symptom.fix
    reason = failure.explain(run, 1)
    assert reason.endswith(f"{symptom.title}: {remedy}")
    for told in ("", reason):
        assert failure.explain_job("FAILED", told, log)[::2] == (symptom.state or "FAILED", remedy)

"""Profiles and the monitor on real processes: two ranks under torchrun, and py-spy on one."""

from __future__ import annotations

import csv
import json
import os
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from hpc_utils import profilers

from .conftest import launch
from .test_window import PHASES, profiled, ranges

RUN = ["workload=cnn", "epochs=1", "evaluate_every=0", "warmup_steps=1", "device=cpu", "threads_per_rank=1"]


def test_two_ranks_leave_a_trace_each_and_one_monitor(results: Path, tmp_path: Path) -> None:
    more = ["steps_per_epoch=12", "global_batch=64", "profile=torch", "profile_steps=4", "monitor_seconds=0.1"]
    done = launch(2, "-m", "hpc_utils.train", *RUN, *more, results=results, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    (run,) = (results / "runs").iterdir()
    for rank in (0, 1):
        assert [name for name, *_ in ranges(run, rank)] == ["step", *PHASES] * 4
    about = profiled(run)
    assert (about["first_step"], about["steps"]) == (3, 4)
    assert list(about["files"]) == ["rank0.trace.json.gz", "rank1.trace.json.gz"]
    assert json.loads((run / "run.json").read_text())["remarks"] == []
    (seen,) = (run / "monitor").iterdir()
    assert seen.stem == socket.gethostname()
    text = seen.read_text()
    rows = list(csv.DictReader(text.splitlines()))
    assert text.endswith("\n") and rows
    assert max(int(row["rss_bytes"]) for row in rows) > 2 * 100e6, "both ranks' memory"


def test_py_spy_sees_what_a_rank_is_at(results: Path, tmp_path: Path) -> None:
    try:
        profilers.require("cpu")
    except Exception as error:
        pytest.skip(str(error))
    more = ["parallel=none", "steps_per_epoch=60", "global_batch=128", "profile=cpu", "profile_steps=50"]
    environment = os.environ | {"HPC_RESULTS": str(results)}
    command = [sys.executable, "-m", "hpc_utils.train", *RUN, *more]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=90)
    if "py-spy may not look into this process" in done.stderr:
        pytest.skip("ptrace is forbidden here")
    assert done.returncode == 0, done.stderr
    (run,) = (results / "runs").iterdir()
    assert profiled(run)["steps"] == 50
    seen = json.loads((run / "profile/rank0.speedscope.json").read_text())
    frames = [frame["name"] for frame in seen["shared"]["frames"]]
    names = Counter(frames[place] for one in seen["profiles"] for sample in one["samples"] for place in sample)
    assert any("train_on" in name for name in names), names

"""Many ranks on one node at once: nobody races for a port or a claim."""

from __future__ import annotations

import json

import pytest

from hpc_utils import records

from .conftest import TRAIN

# A process group without training: every rank adds its number plus one.
GROUP = """
import json, os
import torch
from hpc_utils import workspace
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1])
dist.all_reduce(total)
json.dump([int(total), os.environ["MASTER_PORT"]], open(f"{workspace.launch().run}/total{dist.get_rank()}", "w"))
dist.destroy_process_group()
"""


@pytest.mark.soak
def test_concurrent_groups_find_ports_of_their_own(bench):
    notebook = bench.notebook(GROUP)
    running = [bench.start("run", notebook, "--nproc", 2, "-p", f"seed={seed}") for seed in range(4)]
    outcomes = [one.end() for one in running]
    assert all("records contradict each other" in outcome.err for outcome in outcomes)  # it trains nothing
    found = [json.loads(path.read_text()) for run in bench.runs for path in run.glob("total*")]
    assert [total for total, _ in found] == [3] * 8
    assert len({port for _, port in found}) == 4
    assert bench.left() == []


def test_of_several_launchers_one_runs(bench):
    notebook = bench.notebook(TRAIN)
    running = [bench.start("run", notebook, "-p", "parallel=none") for _ in range(4)]
    codes = [one.end().code for one in running]
    assert sorted(codes) == [0, 3, 3, 3]
    assert len(records.load(bench.results).runs) == 1
    assert [path.name for path in (bench.run / "claims").glob("*.json")] == ["0001.json"]

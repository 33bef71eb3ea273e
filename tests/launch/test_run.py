"""A run on two ranks that goes well, and who may run it."""

from __future__ import annotations

import json

from hpc_utils import records, workspace
from hpc_utils.launch.request import prepare
from hpc_utils.records.folder import read_json

from .conftest import PARAMETERS, TRAIN, is_marked_failed, kept

HOSTILE = 'it\'s "quoted"; rm -rf ~ $(touch pwned) `touch pwned` \\ ${HOME}\n../../x %s {0} é'

OWN = PARAMETERS + 'title = "none"\ncount = 1\n'

# What rank 0 and rank 1 see of themselves, left as seen0.json and seen1.json.
LOOK = """
import faulthandler, json, os, signal, sys
import psutil

rank = os.environ["RANK"]
called = []
signal.signal(signal.SIGUSR1, lambda *_: called.append("SIGUSR1"))
os.kill(os.getpid(), signal.SIGUSR1)
seen = {
    "parent": psutil.Process(os.getppid()).cmdline(),
    "own": psutil.Process(os.getpid()).cmdline(),
    "called": called,
    "handles_faults": faulthandler.is_enabled(),
    "title": title,
    "count": count,
    "cwd": os.getcwd(),
}
json.dump(seen, open(f"seen{rank}.json", "w"))
print("python says", rank)
os.write(1, f"C says {rank}\\n".encode())
os.write(2, f"C complains {rank}\\n".encode())
"""
ORPHAN = """
import subprocess
subprocess.Popen(["sleep", "600"], start_new_session=True)
"""


def test_run_that_goes_well(bench, server: int):
    notebook = bench.notebook(LOOK, TRAIN, ("print('tables')", "rank0"), ORPHAN, parameters=OWN)
    arguments = ["run", notebook, "--nproc", 2, "-p", f"title={HOSTILE}", "-p", "count=7", "-p", "lr=0.01"]
    stale = {"RANK": 5, "WORLD_SIZE": 9, "MASTER_PORT": 1, "LOCAL_RANK": 3, "TORCHELASTIC_RUN_ID": "other"}
    bench.server, temporary = 0, bench.folder / "tmp"  # as a user's
    temporary.mkdir()
    outcome = bench.hpc(*arguments, **stale, TMPDIR=temporary)
    bench.server = server
    assert outcome.code == 0, outcome.err
    assert outcome.out.strip() == str(bench.run)
    assert "python says 0" in outcome.err and "says 1" not in outcome.err
    assert bench.left() == []
    assert not [path for path in temporary.iterdir() if path.is_dir() and not path.name.startswith("torchinductor_")]
    assert bench.status()["state"] == "complete"
    assert list(records.load(bench.results).runs.run_id) == [bench.run.name]

    # The process that runs the cells is no kernel: signals and profilers meet the code that trains.
    for rank in range(2):
        seen = json.loads((bench.folder / f"seen{rank}.json").read_text())
        assert seen["parent"] == seen["own"] and any("multiprocessing.forkserver" in word for word in seen["own"])
        assert seen["called"] == ["SIGUSR1"] and seen["handles_faults"]
        assert (seen["title"], seen["count"], seen["cwd"]) == (HOSTILE, 7, str(bench.folder))
        log = (bench.run / "logs" / f"rank{rank}.log").read_text()
        for line in (f"python says {rank}", f"C says {rank}", f"C complains {rank}"):
            assert line in log
        assert ("tables" in log) == (rank == 0)
    assert not list(bench.folder.rglob("pwned"))

    notebook = kept(bench.run)
    assert not is_marked_failed(bench.run)
    injected = next(cell for cell in notebook.cells if "injected-parameters" in cell.metadata.get("tags", ()))
    assert "lr = 0.01" in injected.source
    assert [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"] == list(range(1, 7))
    assert "python says 0\n" in notebook.cells[2].outputs[0].text
    assert read_json(bench.run / "request.json")["parameters"]["title"] == HOSTILE

    again = bench.hpc(*arguments)
    assert again.code == 0 and "complete already" in again.err
    assert again.out.strip() == str(bench.run)


def test_no_value_leads_out_of_the_runs_folder(bench):
    """A workload's name is part of the run's; this one is refused, and a run of it would be in its own folder."""
    notebook = bench.notebook(TRAIN, parameters=None)
    hostile = "../../../x/$(touch pwned); rm -rf /:f\n'"
    assert bench.hpc("run", notebook, "-p", "parallel=none", "-p", f"workload={hostile}").code == 2
    assert not list(bench.folder.rglob("pwned"))
    with workspace.using(HPC_RESULTS=str(bench.results)):
        run = prepare(notebook, {"workload": hostile, "parallel": "none"}, needs_data=False).path
    assert run.parent == bench.results / "runs"
    assert set(run.name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")


def test_of_several_launchers_one_runs(bench):
    notebook = bench.notebook(TRAIN)
    running = [bench.start("run", notebook, "-p", "parallel=none") for _ in range(4)]
    outcomes = sorted((command.end() for command in running), key=lambda outcome: outcome.code)
    assert [outcome.code for outcome in outcomes] == [0, 3, 3, 3]
    winner = next(command.process for command in running if command.process.returncode == 0)
    assert all(f"process {winner.pid} on " in outcome.err for outcome in outcomes[1:])
    assert len(records.load(bench.results).runs) == 1
    assert [path.name for path in (bench.run / "claims").glob("*.json")] == ["0001.json"]

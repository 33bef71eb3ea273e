"""The runs of a study take turns: their records, their weights, their ends, and what they use while they wait."""

from __future__ import annotations

import time
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from pathlib import Path
from signal import SIGUSR1
from types import SimpleNamespace
from unittest import mock

import pandas as pd
import psutil
import pytest

from hpc_utils import provenance, records
from hpc_utils.launch import local, study, turns
from hpc_utils.launch.request import Layout, prepare
from hpc_utils.launch.study_run import execute
from hpc_utils.launch.target import Target
from hpc_utils.provenance import nvml
from hpc_utils.records.folder import read_json, state
from tests.train.support import same, saved

from .conftest import PARAMETERS, TRAIN, Bench, Started

STEPS = 50  # of an epoch: several rounds
DIGITS = f"""
title = "Three runs take turns, one is measured alone"
[parameters]
workload = "cnn"
epochs = 2
steps_per_epoch = {STEPS}
global_batch = 64
save_weights = true
[[series]]
name = "process"
notebook = "nb.ipynb"
ranks = [1]
parameters = {{ parallel = "none" }}
matrix = {{ lr = [0.01, 0.02] }}
[[series]]
name = "ranks"
notebook = "nb.ipynb"
ranks = [2]
[[series]]
name = "workers"
notebook = "nb.ipynb"
ranks = [1]
parameters = {{ parallel = "none", loader = "workers", loader_workers = 1 }}
"""
FAULTY = """
title = "Two ranks, on which a fault may occur, and one"
[parameters]
epochs = 2
[[series]]
name = "ranks"
notebook = "nb.ipynb"
ranks = [2]
matrix = { lr = [0.01, 0.02] }
[[series]]
name = "process"
notebook = "nb.ipynb"
ranks = [1]
parameters = { parallel = "none" }
"""


def study_file(bench: Bench, text: str) -> str:
    path = bench.folder / "mine.toml"
    path.write_text(text)
    bench.notebook(TRAIN, parameters=PARAMETERS if text == FAULTY else "")
    return str(path)


def start(bench: Bench, text: str, *more: str, **env: str) -> Started:
    """Start `hpc study run` of that study."""
    return bench.start("study", "run", study_file(bench, text), "--no-report", *more, **env)


def rounds(run: Path) -> pd.DataFrame:
    return pd.read_csv(run / "rounds.csv")


def with_turns(bench: Bench) -> list[Path]:
    return [run for run in bench.runs if (run / "rounds.csv").exists()]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, server: int) -> Bench:
    """The complete study of digits."""
    bench = Bench(tmp_path_factory.mktemp("measured"), server)
    outcome = start(bench, DIGITS).end()
    assert outcome.code == 0, outcome.err
    return bench


@pytest.fixture
def here(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A bench at which this process works."""
    monkeypatch.setenv("HPC_RESULTS", str(bench.results))
    monkeypatch.chdir(bench.folder)
    return bench


def test_every_round_has_a_block_of_each_run_in_random_order(measured: Bench) -> None:
    blocks = {run.name: rounds(run) for run in with_turns(measured)}
    assert len(blocks) == 3 and len(measured.runs) == 4
    of_all = pd.concat(blocks)
    assert of_all.session.nunique() == 1
    orders = [tuple(of_round.place) for _, of_round in of_all.groupby("round")]
    assert all(sorted(order) == [1, 2, 3] for order in orders)
    assert len(set(orders)) > 1
    assert all(of_run["round"].tolist() == [*range(len(orders))] for of_run in blocks.values())


@pytest.mark.parametrize(
    ("on_gpus", "steps", "expected"), [(False, 100, 25), (False, 10, 2), (True, 100, 1), (True, 400, 4)]
)
def test_a_block_on_a_gpu_is_long_enough_for_its_energy_counter(on_gpus: bool, steps: int, expected: int) -> None:
    member = turns.Member(SimpleNamespace(on_gpus=on_gpus), life=None, steps=steps, step_seconds=0.01)
    slower = turns.Member(SimpleNamespace(on_gpus=on_gpus), life=None, steps=steps, step_seconds=0.1)
    assert turns.block_count([slower, member], epochs=2) == expected


def test_the_blocks_of_an_epoch_add_up_to_it_and_are_loaded_over_the_mean(measured: Bench) -> None:
    loaded = records.load(measured.results).runs.set_index("run_id")
    for run in with_turns(measured):
        epochs = pd.read_csv(run / "epochs.csv").set_index("epoch")
        sums = rounds(run).groupby("epoch")[["steps", "samples", "seconds"]].sum()
        assert epochs.steps.tolist() == sums.steps.tolist() == [STEPS, STEPS]
        assert epochs.samples.tolist() == sums.samples.tolist()
        assert (sums.seconds > epochs.seconds - 1e-6).all()
        if "none" in run.name:  # else they are sums of each block's slowest rank
            assert sums.seconds.tolist() == pytest.approx(epochs.seconds.tolist(), abs=1e-6)
        mean = epochs.seconds.sum() / epochs.samples.sum()
        later = rounds(run)[1:]
        expected = dict(
            zip(zip(later.session, later["round"], strict=True), later.seconds / later.samples / mean, strict=True)
        )
        assert len(expected) > 1 and loaded.blocks[run.name] == pytest.approx(expected)


def test_a_run_is_the_same_alone(measured: Bench, here: Bench) -> None:
    for request in study.plan(study_file(here, DIGITS)).requests:
        if request.config.loader_workers or request.config.lr == 0.02:
            continue
        alone = local.run(request)
        in_turn = measured.results / "runs" / alone.name
        assert same(saved(alone), saved(in_turn))
        accuracies = [pd.read_csv(run / "epochs.csv").test_accuracy.tolist() for run in (alone, in_turn)]
        assert accuracies[0] == accuracies[1]
    assert len(here.runs) == 2 and not with_turns(here)
    assert records.load(here.results).runs.blocks.tolist() == [{}, {}]


def test_stopped_runs_continue_in_a_session_of_their_own(measured: Bench, bench: Bench) -> None:
    running = start(bench, DIGITS)
    bench.wait_for(lambda: len(with_turns(bench)) == 3)  # each has ended an epoch
    running.process.send_signal(SIGUSR1)
    assert running.end().code == 75
    assert [state(run) for run in bench.runs] == ["stopped"] * 3
    assert all([*run.glob("checkpoints/*")] for run in bench.runs)
    assert start(bench, DIGITS).end().code == 0
    for run in with_turns(bench):
        assert rounds(run).session.nunique() == 2
        assert read_json(run / "run.json")["restarts"] == 1
        assert same(saved(run), saved(measured.results / "runs" / run.name))
    assert records.load(bench.results).unfinished == {} and len(with_turns(bench)) == 3


def test_a_rank_that_is_lost_in_its_first_turn_ends_its_run_alone(bench: Bench) -> None:
    third_call = ["-p", "warmup_steps=2", "-p", "steps_per_epoch=600", "--as", "third-call"]
    outcome = start(bench, FAULTY, *third_call, FAULT="kill").end()
    assert outcome.code == 1
    states = {run.name: state(run) for run in bench.runs}
    assert sorted(states.values()) == ["complete", "failed", "failed"]
    (complete,) = (run for run in bench.runs if state(run) == "complete")
    assert "none" in complete.name and len(rounds(complete)) > 1 + 2, "several blocks an epoch"
    assert bench.left() == []


def test_who_waits_uses_no_core(bench: Bench) -> None:
    start(bench, FAULTY, FAULT="hang")
    bench.wait_for((bench.folder / "hanging").exists)
    time.sleep(0.2)
    processes = [psutil.Process(bench.hpc_pid), *bench.left()]
    assert len(processes) > 5  # two ranks of the run that hangs, three that wait
    begun = time.monotonic()
    before = [sum(process.cpu_times()[:2]) for process in processes]
    time.sleep(1.5)
    used = [sum(process.cpu_times()[:2]) - earlier for process, earlier in zip(processes, before, strict=True)]
    assert max(used) < 0.05 * (time.monotonic() - begun)


@pytest.mark.parametrize(
    ("parameters", "refused"),
    [
        ({}, False),
        ({"profile": "torch"}, True),
        ({"monitor_seconds": 1.0}, True),
        ({"workload": "cnn", "loader": "workers", "loader_workers": 1}, True),
        ({"parallel": "own"}, True),
        ({"link_gbit": 1.0}, True),
    ],
    ids=lambda value: next(reversed(value), "plain") if isinstance(value, dict) else "",
)
def test_what_could_disturb_or_be_disturbed_takes_no_turns(here: Bench, parameters: dict, refused: bool) -> None:
    request = prepare(here.notebook(TRAIN), {"parallel": "none"} | parameters, Layout(), imports=False)
    assert turns.takes_turns(request) != refused


def test_without_memory_for_another_run_the_others_are_measured_alone(here: Bench, monkeypatch) -> None:
    free = iter([[100, 100], [100, 50]])  # of the machine, and of a GPU
    monkeypatch.setattr(turns, "_free_memory", lambda: next(free))
    execute(study_file(here, FAULTY), Target.here())
    assert [state(run) for run in here.runs] == ["complete"] * 3
    (first,) = with_turns(here)
    assert set(rounds(first).place) == {1}


def test_memory_is_known_where_nvidias_library_finds_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "hardware", lambda: provenance.Hardware())
    monkeypatch.setattr(nvml, "installed", lambda: True)
    monkeypatch.setattr(nvml, "library", mock.Mock(side_effect=RuntimeError("Driver Not Loaded")))
    assert len(turns._free_memory()) == 1


def test_a_stranger_and_a_dead_rank_of_another_run_disturb_no_session(here: Bench) -> None:
    session = turns.Session([])
    host, port, key = session.address.split()
    with pytest.raises(AuthenticationError):
        Client((host, int(port)), authkey=b"wrong")
    Client((host, int(port)), authkey=bytes.fromhex(key)).close()
    with Client((host, int(port)), authkey=bytes.fromhex(key)) as dead:
        dead.send_bytes(b'{"run": "failed as it started", "rank": 0}')
    request = prepare(here.notebook(TRAIN), {"parallel": "none"}, Layout())
    outcomes = session.run([(request, local.attend(request, [], turns=session.address))], lambda *_: None)
    assert outcomes == {request.run_id: None}
    assert state(request.path) == "complete"

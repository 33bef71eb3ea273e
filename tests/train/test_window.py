"""The profiled window on one process: which steps, which ranges, and that it ends in order however the run does."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from hpc_utils import records
from hpc_utils.analyze.curves import usable
from hpc_utils.config import ConfigError, RunConfig
from hpc_utils.records import identity
from hpc_utils.train import NonFiniteLoss, Recorder, Stopped, train, window
from hpc_utils.train.loop import Trainer
from hpc_utils.train.ranges import Step
from hpc_utils.train.ranks import Ranks
from hpc_utils.workspace import Launch, Profiler

from .support import BRIEF

PHASES = ["data", "forward", "backward", "optimizer"]
RUN = BRIEF | {"parallel": "none", "device": "cpu", "profile": "torch", "monitor_seconds": 0}


def ranges(run: Path, rank: int = 0) -> list[tuple[str, float, float]]:
    """(name, start, end) of the trace's ranges, in the order of their starts."""
    with gzip.open(run / f"profile/rank{rank}.trace.json.gz", "rt") as file:
        events = json.load(file)["traceEvents"]
    known = {"step", *PHASES}
    found = [(e["name"], e["ts"], e["ts"] + e["dur"]) for e in events if e.get("cat") == "user_annotation"]
    return sorted((one for one in found if one[0] in known), key=lambda one: (one[1], -one[2]))


def profiled(run: Path) -> dict:
    return json.loads((run / "run.json").read_text())["profiled"]


def test_the_trace_holds_the_window_s_steps_and_nothing_else(results: Path) -> None:
    done = train(RunConfig(**RUN | {"steps_per_epoch": 8, "epochs": 2, "profile_steps": 3}))
    found = ranges(done.path)
    assert Counter(name for name, *_ in found) == dict.fromkeys(["step", *PHASES], 3)
    assert [name for name, *_ in found] == ["step", *PHASES] * 3
    for place in range(0, 15, 5):
        (_, begun, ended), *inner = found[place : place + 5]
        assert begun <= inner[0][1] and inner[-1][2] <= ended
        assert all(one[2] <= other[1] for one, other in itertools.pairwise(inner)), "one after the other"
    about = profiled(done.path)
    assert (about["tool"], about["epoch"], about["first_step"], about["steps"]) == ("torch", 1, 3, 3)
    assert about["version"] == torch.__version__ and about["begun"] < about["ended"]
    assert about["files"] == {"rank0.trace.json.gz": (done.path / "profile/rank0.trace.json.gz").stat().st_size}
    assert not list((done.path / "profile").glob(".*")), "nothing half is left"
    tables = done.tables()
    assert tables["run"]["profile"] == "torch"
    assert tables["epochs"].checkpoint_seconds[0] > 0, "the writing stands beside T, not in it"
    assert tables["epochs"].checkpoint_seconds[1] == 0


def test_a_profiled_run_is_another_measurement_and_stands_in_no_figure(results: Path) -> None:
    plain = {name: value for name, value in RUN.items() if name not in ("profile", "monitor_seconds")}
    for more in ({}, {"profile": "torch", "monitor_seconds": 0}):
        train(RunConfig(**plain | more | {"steps_per_epoch": 4}))
    found = records.load(results).runs
    assert len(found) == 2 and found.settings.nunique() == 2
    assert usable(found).profile.isna().all() and len(usable(found)) == 1


def test_runs_from_before_there_were_profiles_keep_their_names() -> None:
    asked = identity.measured(RunConfig(workload="cnn"), 1)
    assert not {"profile", "profile_steps", "monitor_seconds"} & set(asked)


@pytest.mark.parametrize(("steps", "held"), [(4, 2), (3, 1), (2, 0)])
def test_an_epoch_that_ends_before_the_window_does(results: Path, steps: int, held: int) -> None:
    """... ends it: what is profiled is less, and that is said; never a step that was none."""
    done = train(RunConfig(**RUN | {"steps_per_epoch": steps}))
    assert profiled(done.path)["steps"] == held
    remarks = json.loads((done.path / "run.json").read_text())["remarks"]
    if held:
        assert Counter(name for name, *_ in ranges(done.path)) == dict.fromkeys(["step", *PHASES], held)
        assert remarks == []
    else:
        assert "no step was profiled" in remarks[0]
        assert profiled(done.path)["files"] == {}


def test_epochs_shorter_than_what_is_left_out(results: Path) -> None:
    """The first steps of the run are left out, not those of each epoch."""
    done = train(RunConfig(**RUN | {"steps_per_epoch": 2, "epochs": 3}))
    about = profiled(done.path)
    assert (about["epoch"], about["first_step"], about["steps"]) == (2, 1, 2)
    assert [name for name, *_ in ranges(done.path)] == ["step", *PHASES] * 2


@pytest.mark.parametrize("how", ["stopped", "failed"])
def test_a_run_that_ends_inside_the_window_leaves_what_was_seen(
    results: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """... and a stopped one has a window again when it goes on."""
    true_step, done = Trainer.train_on, [0]

    def step(self: Trainer, *batch: object) -> None:
        true_step(self, *batch)
        done[0] += 1
        if done[0] == 4 and how == "stopped":
            os.kill(os.getpid(), signal.SIGUSR1)
        if done[0] == 4 and how == "failed":
            raise NonFiniteLoss("so to speak")

    monkeypatch.setattr(Trainer, "train_on", step)
    config = RunConfig(**RUN | {"steps_per_epoch": 12})
    with pytest.raises(Stopped if how == "stopped" else NonFiniteLoss):
        train(config)
    (run,) = (results / "runs").iterdir()
    first = Counter(name for name, *_ in ranges(run))
    assert first["step"] >= 2 and first["optimizer"] == first["step"]
    if how == "stopped":
        again = train(config)
        about = profiled(again.path)
        assert about["steps"] == 5 and about["first_step"] > 6
        assert Counter(name for name, *_ in ranges(again.path))["step"] == 5
        assert (run / "earlier/0001/profile/rank0.trace.json.gz").exists()


def test_ranks_stand_still_together_though_one_cannot_be_watched() -> None:
    """What all do at the window's end, that rank does too, or it would meet the others in no collective any more."""
    stood: dict[str, list[int]] = {}
    for name, words in (("watched", ""), ("blind", "no space left")):

        class Watcher:
            version, speaker = "1", None

            def __init__(self, words: str) -> None:
                self.words = words

            def open(self) -> None:
                if self.words:
                    raise OSError(self.words)

            def close(self) -> None:
                assert not self.words, "nothing was begun that could be ended"

        done = [0]

        @contextlib.contextmanager
        def pause(name: str = name, done: list[int] = done) -> Iterator[None]:
            stood.setdefault(name, []).append(done[0])
            yield

        one = window.Window("cpu", Watcher(words), 3, synchronize=lambda: None, pause=pause)
        for _ in one.over(range(9), epoch=1, done=0, left=9):
            done[0] += 1
        assert one.facts["steps"] == (0 if words else 3)
        assert one.problems == ([f"no profile: OSError: {words}"] if words else [])
    assert stood["watched"] == stood["blind"] == [5]


def test_a_loop_of_one_s_own_is_profiled_too(results: Path) -> None:
    """Its phases are those whose ends it marks, as often as they come; one that marks none has data alone."""
    parameters = {"profile": "torch", "profile_steps": 2, "monitor_seconds": 0}
    with Recorder("mine", global_batch=1, parameters=parameters) as run:
        for _ in run.epoch(range(6)):
            for phase in ("forward", "backward") * 2:
                torch.zeros(3).sum()
                run.lap(phase)
            run.step(samples=1)
    step = ["step", "data", "forward", "backward", "forward", "backward", "optimizer"]
    assert [name for name, *_ in ranges(run.path)] == step * 2
    with Recorder("other", global_batch=1, parameters=parameters) as run:
        for _ in run.epoch(range(3)):  # a loader whose length nobody knows
            run.step(samples=1)
    assert [name for name, *_ in ranges(run.path)][:2] == ["step", "data"]
    assert profiled(run.path)["steps"] == 1


def test_a_step_without_a_profile_says_nothing() -> None:
    said: list[str] = []

    class Speaker:
        def push(self, name: str) -> None:
            said.append(f"+{name}")

        def pop(self) -> None:
            said.append("-")

    step = Step()
    for phase in ("data", "forward"):
        step.lap(phase)
    step.end()
    assert said == []
    step.begin(Speaker())
    for phase in ("data", "forward"):
        step.lap(phase)
    step.end()
    step.lap("data")
    assert said == ["+step", "+data", "-", "+forward", "-", "+optimizer", "-", "-"]


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"profile": "perf"}, "profile='perf'"),
        ({"profile_steps": 5}, "no profile is asked for"),
        ({"profile": "torch", "profile_steps": 0}, "profile_steps=0"),
        ({"profile": "ncu", "device": "cpu"}, "counts on a GPU"),
        ({"monitor_seconds": -1}, "monitor_seconds=-1"),
    ],
)
def test_a_profile_that_makes_no_sense_is_refused(parameters: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        RunConfig(**parameters)


def test_none_and_notebooks_parameters() -> None:
    from hpc_utils.config import parse_assignments

    assert RunConfig(**parse_assignments(["profile=none", "monitor_seconds=none"])) == RunConfig()
    assert RunConfig.from_notebook({"profile": "nsys", "result": 3}).profile == "nsys"


@pytest.mark.parametrize(
    ("profile", "ranks", "under", "words"),
    [
        ("nsys", Ranks(), None, "nsys must have started this rank.*torchrun --no-python"),
        ("nsys", Ranks(), Profiler("nsys", "cuda"), "waits for a window on a GPU, but this rank trains on cpu"),
        ("ncu", Ranks(), None, "torch sees none here"),
        ("ncu", Ranks(world_size=2, device=torch.device("cuda")), None, "on 2 ranks"),
        ("other", Ranks(), None, "expected one of torch, nsys, ncu, cpu"),
    ],
)
def test_what_cannot_be_had_on_a_rank_is_refused_before_it_trains(
    monkeypatch: pytest.MonkeyPatch, profile: str, ranks: Ranks, under: Profiler | None, words: str
) -> None:
    monkeypatch.setenv("HPC_LAUNCH", Launch(profiler=under).variables["HPC_LAUNCH"])
    with pytest.raises(ConfigError, match=words):
        window.window({"profile": profile}, ranks, lambda: None)

"""The profile window on one process: its steps and ranges, and that it closes however the run ends."""

from __future__ import annotations

import contextlib
import gzip
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from signal import SIGUSR1

import pytest
import torch

from hpc_utils import profilers, workspace
from hpc_utils.config import ConfigError, RunConfig
from hpc_utils.records.folder import read_json
from hpc_utils.train import NonFiniteLoss, Recorder, Stopped, profile_window, train
from hpc_utils.train.profilers import Profiler
from hpc_utils.train.ranks import Ranks

from .support import BRIEF, PHASES, after_steps, gets, remarks

RUN = BRIEF | {"parallel": "none", "device": "cpu", "profile": "torch", "monitor_seconds": 0}


def ranges(run: Path, rank: int = 0) -> list[tuple[str, float, float]]:
    """(name, start, end) of the trace's ranges, in the order of their starts."""
    with gzip.open(run / f"profile/rank{rank}.trace.json.gz", "rt") as file:
        events = json.load(file)["traceEvents"]
    marked = [
        event for event in events if event.get("cat") == "user_annotation" and event["name"] in ("step", *PHASES)
    ]
    spans = [(event["name"], event["ts"], event["ts"] + event["dur"]) for event in marked]
    return sorted(spans, key=lambda span: (span[1], -span[2]))


def profiled(run: Path) -> dict:
    return read_json(run / "run.json")["profiled"]


def test_the_trace_holds_the_window_s_steps_and_nothing_else(results: Path) -> None:
    done = train(RunConfig(**RUN | {"steps_per_epoch": 8, "epochs": 2, "profile_steps": 3}))
    found = ranges(done.path)
    assert [name for name, *_ in found] == ["step", *PHASES] * 3
    about = profiled(done.path)
    assert (about["tool"], about["epoch"], about["first_step"], about["steps"]) == ("torch", 1, 3, 3)
    assert about["version"] == torch.__version__ and about["begun"] < about["ended"]
    (trace,) = (done.path / "profile").iterdir()
    assert about["files"] == {trace.name: trace.stat().st_size}
    tables = done.tables()
    assert tables["run"]["profile"] == "torch"
    epochs = tables["epochs"]
    assert (epochs.profile_seconds > 0).tolist() == [True, False], "the writing stands beside T, not in it"
    assert (epochs.checkpoint_seconds == 0).all()


@pytest.mark.parametrize(("steps", "epochs", "held"), [(4, 1, (1, 3, 2)), (2, 3, (2, 1, 2)), (2, 1, None)])
def test_an_epoch_that_ends_before_the_window_does(results: Path, steps: int, epochs: int, held: tuple) -> None:
    """... ends it: what is profiled is less, with a remark; never a step that was none. The first steps of the run are
    left out, not those of each epoch."""
    run = train(RunConfig(**RUN | {"steps_per_epoch": steps, "epochs": epochs})).path
    about = profiled(run)
    if held is None:
        assert about["steps"] == 0 and about["files"] == {} and "no step was profiled" in remarks(run)[0]
        return
    assert (about["epoch"], about["first_step"], about["steps"]) == held
    assert [name for name, *_ in ranges(run)] == ["step", *PHASES] * held[2] and remarks(run) == []


@pytest.mark.parametrize(("number", "error"), [(SIGUSR1, Stopped), (None, NonFiniteLoss)])
def test_a_run_that_ends_inside_the_window_leaves_what_was_seen(
    results: Path, number: signal.Signals | None, error: type
) -> None:
    """... and a stopped one has a window again when it goes on."""

    def fail(_: object) -> None:
        raise NonFiniteLoss("so to speak")

    config = RunConfig(**RUN | {"steps_per_epoch": 12})
    with after_steps({4: gets(number) if number else fail}), pytest.raises(error):
        train(config)
    (run,) = (results / "runs").iterdir()
    first = Counter(name for name, *_ in ranges(run))
    assert first["step"] >= 2 and first["optimizer"] == first["step"]
    if number:
        about = profiled(train(config).path)
        assert about["steps"] == 5 and about["first_step"] > 6
        assert (run / "earlier/0001/profile/rank0.trace.json.gz").exists()


@pytest.mark.parametrize("problem", ["", "no space left"])
def test_ranks_stand_still_together_though_one_cannot_be_watched(monkeypatch, problem: str) -> None:
    """What all do at the window's end, that rank does too, or it would meet the others in no collective any more."""
    steps, stood = 0, []

    class Blind(Profiler):
        def start(self) -> None:
            if problem:
                raise OSError(problem)

        def stop(self) -> None:
            assert not problem, "nothing was begun that could be ended"

    @contextlib.contextmanager
    def pause() -> Iterator[None]:
        stood.append(steps)
        yield

    monkeypatch.setattr(profile_window, "profiler", lambda profile, ranks: Blind())
    one = profile_window.ProfileWindow({"profile": "cpu", "profile_steps": 3}, Ranks(), pause)
    one.on_start(Path())
    one.on_epoch([], 1, 9)
    for steps in range(1, 10):  # noqa: B007
        one.begin_step()
        one.on_step(False)
    assert one.facts["steps"] == (0 if problem else 3)
    assert one.problems == ([f"no profile: OSError: {problem}"] if problem else [])
    assert stood == [5]


def test_a_loop_of_one_s_own_is_profiled_too(results: Path) -> None:
    """Its phases are those whose ends it marks, as often as they come."""
    parameters = {"profile": "torch", "profile_steps": 2, "monitor_seconds": 0}
    with Recorder("mine", global_batch=1, parameters=parameters) as run:
        for _ in run.epoch(range(6)):
            for phase in ("forward", "backward") * 2:
                torch.zeros(3).sum()
                run.lap(phase)
            run.step(samples=1)
    step = ["step", "data", "forward", "backward", "forward", "backward", "optimizer"]
    assert [name for name, *_ in ranges(run.path)] == step * 2


@pytest.mark.parametrize(
    ("profile", "ranks", "under", "words"),
    [
        ("nsys", Ranks(), None, "nsys must start this rank.* nvtx window for cpu: use `hpc run`"),
        ("ncu", Ranks(), workspace.Profiler("ncu", "nvtx"), "one rank on a GPU"),
        ("ncu", Ranks(world_size=2, device=torch.device("cuda")), None, "one rank on a GPU"),
        ("other", Ranks(), None, "expected one of torch, nsys, ncu, cpu"),
    ],
)
def test_what_cannot_be_had_on_a_rank_is_refused_before_it_trains(
    profile: str, ranks: Ranks, under: workspace.Profiler | None, words: str
) -> None:
    started = workspace.Launch(profiler=under).variables
    with workspace.using(**started), pytest.raises(ConfigError, match=words):
        profile_window.ProfileWindow({"profile": profile}, ranks, lambda: None)


def test_py_spy_sees_what_a_rank_is_at(results: Path, tmp_path: Path) -> None:
    try:
        profilers.require("cpu")
    except ConfigError as error:
        pytest.skip(str(error))
    more = {"profile": "cpu", "steps_per_epoch": 60, "global_batch": 128, "profile_steps": 50}
    words = [f"{name}={value}" for name, value in (RUN | more).items()]
    command = [sys.executable, "-m", "hpc_utils.train", *words]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=90)
    (run,) = (results / "runs").iterdir()
    if "Permission denied" in " ".join(remarks(run)):
        pytest.skip("ptrace is forbidden here")
    assert profiled(run)["steps"] == 50
    frames = read_json(run / "profile/rank0.speedscope.json")["shared"]["frames"]
    assert any("train_on" in frame["name"] for frame in frames)

"""`hpc study new`: a draft plans as it stands, fits the machine and the workload, and replaces no file."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from companions.drafts import study as study_draft
from hpc_utils import paths
from hpc_utils.cli import main
from hpc_utils.launch import study as studies
from tests.launch.test_script import write_loop

WORKLOADS = """
import dataclasses, time, torch
from hpc_utils.train import Workload
metrics = {"accuracy": lambda outputs, targets: (outputs.argmax(1) == targets).sum()}
def small(width=4):
    data = torch.utils.data.TensorDataset(torch.randn(100, 2), torch.zeros(100, dtype=torch.long))
    return Workload(lambda: torch.nn.Linear(2, width), data, data, torch.nn.functional.cross_entropy, metrics)
def own():
    made = small()
    several = torch.utils.data.ConcatDataset([made.test] * 300)
    slow = lambda model, inputs: time.sleep(0.2) or model(inputs)
    return Workload(made.model, several, several, made.loss, forward=slow, optimizer=sgd)
def sgd(model, config, lr):
    return torch.optim.SGD(model.parameters(), lr)
def unoptimized():
    return dataclasses.replace(small(), optimizer=lambda *given: None)
def unscheduled():
    return dataclasses.replace(small(), schedule=lambda *given: float("nan"))
def diverged():
    return dataclasses.replace(small(), loss=lambda outputs, targets: outputs.sum() * float("nan"))
def vector():
    return dataclasses.replace(small(), metrics={"accuracy": lambda outputs, targets: outputs.argmax(1) == targets})
def averaged():
    return dataclasses.replace(small(), metrics={"size": lambda outputs, targets: outputs.abs().mean()})
def unpaired():
    return dataclasses.replace(small(), collate=lambda samples: {"x": torch.zeros(3, 2)})
def broken():
    return small(width=0)
def none():
    return 1
def raising():
    return {}["width"]
"""


@pytest.fixture
def folder(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder with a module, in which drafts go instead of jobs/studies."""
    (tmp_path / "drafted.py").write_text(WORKLOADS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(paths, "studies", lambda: tmp_path / "studies")
    return tmp_path


def new(*arguments: str):
    return CliRunner().invoke(main, ["study", "new", *arguments])


@pytest.mark.parametrize("given", ["mine", "elsewhere.toml"])
def test_the_draft_is_where_the_command_says_and_its_next_commands_work(folder: Path, given: str) -> None:
    done = new(given, "--workload", "drafted:small")
    assert done.exit_code == 0, done.output
    path = Path(done.output.splitlines()[0])
    assert path == (Path(given) if given.endswith(".toml") else folder / f"studies/{given}.toml")
    planned = re.search(r"hpc (study plan \S+)", done.output)[1].split()
    assert CliRunner().invoke(main, planned).exit_code == 0
    assert f"hpc study run {given} " in done.output
    before = path.read_text()
    assert new(given, "--workload", "cnn").exit_code == 2 and path.read_text() == before
    assert new("Mine_1", "--workload", "cnn").exit_code == 2, "a wrong name"


@pytest.mark.parametrize(("devices", "ranks"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4]), (64, [1, 2, 4, 8])])
def test_the_draft_fits_the_machine_and_the_data(folder: Path, devices: int, ranks: list[int]) -> None:
    path = folder / "fits.toml"
    path.write_text(study_draft.draft("drafted:small", devices))
    plan = studies.plan(str(path))
    assert {series.name: series.ranks for series in plan.study.series} == {
        "baseline": [1],
        "strong": ranks,
        "weak": ranks,
    }
    parallel = {point.series: point.request.config.parallel for point in plan.points}
    assert parallel == {"baseline": "none", "strong": "ddp", "weak": "ddp"}
    batches = [point.request.config.batches(point.ranks)[0] for point in plan.points]
    assert max(batches) <= 100, "a batch is no larger than the data"
    assert plan.study.targets.strong_ranks == plan.study.targets.weak_ranks == max(2, ranks[-1])
    assert {chapter.notebook for chapter in plan.study.chapters} == {"03_scaling", "06_paper_figures"}


def test_a_slow_workload_has_few_steps_and_its_own_optimizer_and_rare_tests(folder: Path) -> None:
    small, own = (tomllib.loads(study_draft.draft(f"drafted:{name}"))["parameters"] for name in ("small", "own"))
    assert own["steps_per_epoch"] == 10 < small["steps_per_epoch"]
    assert "optimizer" not in own and "optimizer" in small
    assert own["evaluate_every"] == own["epochs"] > 1 == small["evaluate_every"]


@pytest.mark.parametrize(
    "workload",
    ["nowhere:f", "drafted:f", "drafted:none", "drafted:broken", "drafted:raising", "drafted:diverged", "drafted:vector",
     "drafted:averaged", "drafted:unpaired", "drafted:unoptimized", "drafted:unscheduled", "cnm"],
)  # fmt: skip
def test_a_wrong_workload_drafts_nothing(folder: Path, workload: str) -> None:
    done = new("mine", "--workload", workload)
    assert done.exit_code == 2 and not list(folder.rglob("*.toml"))


def test_a_script_s_draft_plans_as_it_stands(tmp_path: Path, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_loop(tmp_path)
    monkeypatch.chdir(tmp_path)
    plan = studies.plan(str(study_draft.new("mine.toml", "my_loop.py")))
    layouts = {(point.series, point.request.config.parallel, point.ranks) for point in plan.points}
    assert {("baseline", "none", 1), ("strong", "ddp", 1), ("weak", "ddp", 1)} <= layouts
    assert {point.request.arguments[0] for point in plan.points if point.series != "weak"} == {"--global_batch=32"}

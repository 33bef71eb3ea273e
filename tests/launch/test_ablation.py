"""A study's ablation: its configurations, what a target leaves out of it, and how a wrong one is refused."""

from __future__ import annotations

import re

import pytest

from hpc_utils import datasets, paths, provenance
from hpc_utils.launch import study as studies
from hpc_utils.launch.cluster import Overrides
from hpc_utils.launch.study_file import StudyError, read_study_file
from hpc_utils.launch.target import Target
from hpc_utils.records import read_study

LADDER = """
title = "T"
repeats = 2
[parameters]
workload = "cnn"
device = "cpu"
[ladder]
notebook = "01_baseline"
[ladder.parameters]
parallel = "none"
channels_last = false
loader = "workers"
[[ladder.steps]]
name = "loader"
parameters = { loader = "device" }
about = "whole batches"
[[ladder.steps]]
name = "bf16"
parameters = { precision = "bf16" }
about = "half the bits"
[[ladder.steps]]
name = "layout"
parameters = { channels_last = true }
about = "pixels beside their channels"
"""
SHIPPED = [name for name in paths.study_files() if read_study_file(name).ablation]
TEXTBOOK = {"loader": "workers", "loader_workers": 0, "channels_last": False, "fused_optimizer": False,
            "precision": "fp32", "compile": "off", "parallel": "none", "pin_memory": True}  # fmt: skip


@pytest.fixture(autouse=True)
def needs_no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "load", lambda *_: None)


def changed(plan: studies.Plan) -> dict[str, tuple]:
    """(loader, precision, channels_last) of each rung of the first repeat."""
    return {
        p.series: (p.request.config.loader, p.request.config.precision, p.request.config.channels_last)
        for p in plan.points
        if p.repeat == 1
    }


def test_every_change_is_run_alone_and_with_all_before_it(write) -> None:
    plan = studies.plan(write(LADDER))
    assert changed(plan) == {
        "plain": ("workers", "fp32", False),
        "alone-loader": ("device", "fp32", False),
        "alone-bf16": ("workers", "bf16", False),
        "alone-layout": ("workers", "fp32", True),
        "upto-loader": ("device", "fp32", False),
        "upto-bf16": ("device", "bf16", False),
        "upto-layout": ("device", "bf16", True),
    }
    assert len(plan.points) == 2 * 7 and len(plan.requests) == 2 * 6, "first alone, and first of all, are one run"


def test_changes_alone_can_be_left_out(write) -> None:
    plan = studies.plan(write(LADDER.replace("[ladder]", "[ladder]\nalone = false")))
    assert changed(plan).keys() == {"plain", "upto-loader", "upto-bf16", "upto-layout"}
    assert len(plan.points) == len(plan.requests) == 2 * 4


def test_a_step_that_cannot_be_run_is_named_and_left_out_above_it(write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "emulates_bf16", lambda: True)
    plan = studies.plan(write(LADDER))
    configurations = changed(plan)
    assert configurations["upto-layout"] == ("device", "fp32", True)
    assert "alone-bf16" not in configurations and [point.series for point in plan.not_applicable] == ["alone-bf16"]
    plan.index.write()
    ablation = read_study("mine").ablation
    assert ablation.plain == "plain" and ablation.parameters["loader"] == "workers"
    steps = {step.name: step for step in ablation.steps}
    assert (steps["bf16"].about, steps["bf16"].parameters) == ("half the bits", {"precision": "bf16"})
    assert steps["bf16"].upto is None and "no instructions" in steps["bf16"].why
    assert (steps["layout"].upto, steps["layout"].why) == ("upto-layout", "")


def test_a_place_changes_the_plain_loop_and_no_step(write) -> None:
    parameters = {"epochs": 1, "channels_last": False}
    place = Target("there", overrides=Overrides(parameters=parameters, matrix={"precision": ["fp16"]}, ranks=[1, 2]))
    plan = studies.plan(write(LADDER), place)
    assert changed(plan)["upto-layout"] == ("device", "bf16", True)
    assert {(p.ranks, p.request.config.epochs) for p in plan.points} == {(1, 1)}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (LADDER.partition("[[ladder.steps]]")[0], r"ladder\.steps: this key is needed"),
        (LADDER.replace('name = "bf16"', 'name = "loader"'), r"two steps are named 'loader'"),
        (LADDER.replace("channels_last = true", "channels_last = false"), r"step 'layout' changes nothing: .*channels_last=False"),
        ('title = "T"', r"nothing to run: a study has \[\[series\]\], a \[ladder\] or a `ladder_of`"),
        ('title = "T"\nladder_of = "baseline"', r"mine\.toml: ladder_of: the study 'baseline' has no \[ladder\]"),
        ('ladder_of = "optimization"\n' + LADDER, r"not both"),
    ],
)  # fmt: skip
def test_a_wrong_ablation_is_refused(write, wrong: str, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        studies.plan(write(wrong))


def test_the_documented_ablation_is_valid(write) -> None:
    page = (paths.jobs() / "README.md").read_text()
    (example,) = [block for block in re.findall(r"```toml\n(.*?)```", page, re.S) if "[ladder]" in block]
    assert len(studies.plan(write(f'title = "T"\n{example}')).requests) == 2


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_ablations_start_from_the_textbook_and_change_one_thing_at_a_time(write, name: str) -> None:
    plan = studies.plan(name)
    (plain,) = [p.request.config for p in plan.points if p.series == "plain" and p.repeat == 1]
    start = {"parallel": "ddp", "compile": "off", "step_graph": False} if name.startswith("gpu-ddp") else TEXTBOOK
    assert {knob: getattr(plain, knob) for knob in start} == start
    graph = {"compile": "default", "step_graph": True}  # instead of the compiler's own graphs
    assert all(len(step.parameters) == 1 or step.parameters == graph for step in plan.study.ablation.steps)
    assert any(chapter.notebook == "05_optimization" for chapter in plan.study.chapters)

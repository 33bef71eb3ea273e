"""The cluster and study files that we ship: each is sound, and together they plan what the studies promise."""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hpc_utils import datasets, paths
from hpc_utils.launch import cluster as clusters
from hpc_utils.launch import job_environment
from hpc_utils.launch import study as studies
from hpc_utils.launch.target import Target
from hpc_utils.train import resolve

LARGER = ("workshop", "sensitivity", "profiling")  # those that rehearse a real network
ON_GPUS = [
    "baseline",
    "strong",
    "strong-512",
    "weak",
    "sensitivity",
    "profiling",
    "optimization",
    "cifar10-gpu",
    "workshop",
    "wide",
    "accuracy-devices",
]
ELSEWHERE = [
    (name, node) for name in clusters.known() if name != "rehearsal" for node in clusters.read_cluster(name).nodes
]


@pytest.fixture
def plan(results: Path, monkeypatch: pytest.MonkeyPatch):
    """A study's plan on a cluster's nodes, as `hpc submit` makes it, but whether or not the data set is here."""
    monkeypatch.setattr(datasets, "load", lambda *_: None)

    def plan(study: str, name: str, node_type: str = "", **place) -> studies.Plan:
        found = clusters.read_cluster(name)
        node = found.node(node_type)
        here = {"overrides": found.overrides(study, node.name)}
        known = {"ranks_per_node": node.ranks, "most_nodes": node.most_nodes or None, "precisions": node.precisions}
        return studies.plan(study, Target("here", **known | here | place))

    return plan


@pytest.mark.parametrize(("name", "node_type"), ELSEWHERE)
def test_jobs_there_have_an_environment(tmp_path: Path, name: str, node_type: str) -> None:
    found = clusters.read_cluster(name)
    text = job_environment.render(found, found.node(node_type), root=tmp_path)
    checker = shutil.which("shellcheck")
    if checker is None and not os.environ.get("CI"):
        pytest.skip("no shellcheck here")
    assert subprocess.run([checker, "-"], input=text, capture_output=True, text=True).stdout == ""


@pytest.mark.parametrize("study", sorted(path.stem for path in paths.root().glob("companions/*/studies/*.toml")))
def test_loops_use_every_option_that_their_study_gives(plan, study: str) -> None:
    points = plan(study, "nvidia").points
    assert points
    for point in points:
        if point.request.config.parallel == "own":
            # In a process of its own: MPI's initialisation ends helpers of multiprocessing. It raises WorkloadError for other options.
            resolved = multiprocessing.get_context("fork").Process(
                target=resolve.builder, args=(point.request.config,)
            )
            resolved.start()
            resolved.join()
            assert resolved.exitcode == 0


@pytest.mark.parametrize("study", ON_GPUS)
def test_every_study_can_be_planned_everywhere(plan, study: str) -> None:
    for found in (plan(study, name, node_type) for name, node_type in ELSEWHERE):
        require_chapters(found)


def require_chapters(found: studies.Plan) -> None:
    assert found.points
    most = max(point.ranks for point in found.points)
    for chapter in found.study.chapters:  # every chapter of the report has a run to show, if the nodes hold it
        wanted = chapter.run or {}
        if wanted.get("ranks", 1) > most:
            continue
        assert any(
            all((point.request.config.model_dump() | {"series": point.series, "ranks": point.ranks}).get(key) == value
                for key, value in wanted.items())
            for point in found.points
        ), chapter  # fmt: skip


def test_scaling_studies_keep_the_batch_that_they_promise(plan) -> None:
    for study, batch, most in (("strong", 768, 12), ("strong-512", 512, 16)):
        points = plan(study, "meluxina").points
        assert {p.ranks for p in points if p.series == "strong"} == {1, 2, 4, 8, most}
        assert {p.request.config.batches(p.ranks)[0] for p in points} == {batch}
        assert {p.request.config.parallel for p in points if p.series == "baseline"} == {"none"}
    weak = plan("weak", "lumi-g").points
    assert {(p.request.config.batches(p.ranks)[1], p.request.config.steps_per_epoch) for p in weak} == {(128, 100)}


def test_accuracy_is_measured_on_one_four_and_eight_devices(plan) -> None:
    points = plan("accuracy-devices", "meluxina").points
    assert {(point.ranks, point.request.config.parallel) for point in points} == {(1, "none"), (4, "ddp"), (8, "ddp")}
    configs = [point.request.config for point in points]
    assert {(config.device, config.evaluate_every, config.global_batch) for config in configs} == {("cuda", 1, 512)}
    assert {point.repeat for point in points} == {1, 2, 3}


def test_formats_that_a_gpu_lacks_are_not_applicable(plan) -> None:
    missing = plan("sensitivity", "university-ib", "v100").not_applicable
    assert [point.values["precision"] for point in missing] == ["bf16"] * 9
    (tf32,) = plan("baseline", "lumi-g").not_applicable
    assert tf32.values == {"precision": "tf32"}


def test_the_rehearsal_shows_what_its_cores_cannot_run(plan) -> None:
    """Two nodes of one core each."""
    two = {"ranks_per_node": 1, "most_nodes": 2}
    strong = plan("strong", "rehearsal", **two)
    assert {p.ranks for p in strong.points} == {1, 2}
    assert [p.ranks for p in strong.not_applicable] == [4, 8, 12]
    for study in ON_GPUS:
        configs = [point.request.config for point in plan(study, "rehearsal", **two).points]
        assert configs and {c.device for c in configs} == {"cpu"}
        assert {c.workload for c in configs} == {"resnet18" if study in LARGER else "cnn"}
        assert max(c.epochs * c.steps_per_epoch for c in configs) <= 80


def test_ddp_on_one_gpu_is_paired_with_no_process_group(plan) -> None:
    for study, batch in (("gpu-ddp", 512), ("gpu-ddp-64", 64)):
        configs = [point.request.config for point in plan(study, "meluxina").points if point.repeat == 1]
        steps = {name: {(c.compile, c.step_graph) for c in configs if c.parallel == name} for name in ("none", "ddp")}
        assert {c.global_batch for c in configs} == {batch}
        assert ("default", True) in steps["none"] < steps["ddp"] > {("off", False), ("off", True)}
    rehearsed = plan("gpu-ddp", "rehearsal", ranks_per_node=1)
    assert rehearsed.points and not any(point.request.config.step_graph for point in rehearsed.points)
    (graph, compiled) = rehearsed.index.ablation.steps
    assert "needs a GPU" in graph.why and compiled.upto == "upto-compile"


def test_the_rehearsed_factorial_has_all_27_points_of_the_real_one(plan) -> None:
    found = plan("sensitivity", "rehearsal", ranks_per_node=1, most_nodes=2)
    assert len(found.points) + len(found.not_applicable) == 27
    assert {point.values["precision"] for point in found.not_applicable} <= {"bf16"}, "an old processor's only"


def test_the_rehearsed_workshop_confounds_what_the_real_one_does(plan) -> None:
    """The protocol's loader and updates follow the layout and its rate does not; the adjusted series is the reverse."""
    found = {name: {} for name in ("protocol", "adjusted")}
    for point in plan("workshop", "rehearsal", ranks_per_node=8).points:
        config, ranks = point.request.config, point.ranks
        found[point.series][point.request.layout] = (
            config.loader_workers, config.epochs * config.steps_per_epoch, config.scaled_lr(8 * ranks) / ranks,
        )  # fmt: skip
    for series, is_constant in (("protocol", False), ("adjusted", True)):
        assert len(found[series]) == 7
        assert [len(set(values)) == 1 for values in zip(*found[series].values(), strict=True)] == [is_constant] * 3


def test_the_rehearsed_mpi_study_is_timed_on_shares_of_cores_and_learns_on_whole_ones(plan) -> None:
    for point in plan("mpi", "rehearsal", ranks_per_node=1).points:
        config = point.request.config
        timed = None if point.series.startswith("accuracy") else 20
        assert config.steps_per_epoch == timed and config.cores_per_rank == (timed and 0.4), point.series


def test_the_documented_cluster_file_is_one(tmp_path: Path) -> None:
    page = (paths.jobs() / "README.md").read_text()
    (example,) = [block for block in re.findall(r"```toml\n(.*?)```", page, re.S) if "[nodes." in block]
    (tmp_path / "example.toml").write_text(example)
    assert clusters.read_cluster(tmp_path / "example.toml").overrides("strong").ranks == [1, 2, 4]

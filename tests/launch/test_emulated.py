"""What an emulated run needs before it has a name: a profile, limited links, a dilation that is enough."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from hpc_utils.config import ConfigError, RunConfig, parse_assignments
from hpc_utils.launch import emulated
from hpc_utils.launch import study as studies
from hpc_utils.launch.place import Place
from hpc_utils.launch.request import Layout, Request, prepare
from hpc_utils.launch.submission import read_point, write_points
from hpc_utils.paths import notebooks
from hpc_utils.records import probes
from hpc_utils.records.compute_profile import computed
from hpc_utils.records.identity import settings

HERE = "rehearsal-cpu-0123abcd"
MEGABYTE = 10**6
WORKLOAD = {"workload": "cnn", "dataset": "digits", "evaluate_every": 0, "batch_per_device": 16}
EMULATED = WORKLOAD | {"device": "emulated"}


def measure_compute(**changes: Any) -> str:
    """Leave a profile of 10 MB of gradients on this machine."""
    times = {phase: [0.1] for phase in ("data", "forward", "backward", "optimizer")}
    record = computed(RunConfig(**WORKLOAD)) | {
        "hardware_id": "0123abcd", "threads_per_rank": 1, "gradient_bytes": 10 * MEGABYTE, "device_name": "Slow",
        "batches": [{"batch": batch, **times} for batch in (8, 32)], "ready": [],
    }  # fmt: skip
    return probes.keep("compute", "slow", record | changes).stem


def measure_allreduce(nodes: int = 2, seconds: float = 0.01, sizes: tuple = (5, 15), **changes: Any) -> None:
    samples = [{"bytes": size * MEGABYTE, "seconds": [size * seconds / 10, 9.0, 0.0]} for size in sizes]
    record = {"hardware_id": HERE, "nodes": nodes, "ranks_per_node": 1, "link_gbit": None}
    probes.keep("allreduce", "slow", record | {"groups": {"all": {"samples": samples}}} | changes)


def request(layout: Layout = Layout(2, 1), **parameters: Any) -> Request:  # noqa: B008
    return prepare(notebooks() / "02_ddp.ipynb", EMULATED | parameters, layout, hardware=HERE)


def test_the_newest_profile_and_the_least_dilation_are_part_of_the_run(results: Path) -> None:
    """10 MB over 2 nodes at 1 Gbit/s take a ring 80 ms; 33 ms unshaped are a tenth of that slowed down by 4.125."""
    name = measure_compute()
    measure_allreduce(seconds=0.033)
    made = request(link_gbit=1)
    assert (made.config.compute_profile, made.config.dilation) == (name, 5)
    assert "emulated" in made.run_id
    assert {"compute_profile": name, "dilation": 5} == {
        key: made.inject[key] for key in ("compute_profile", "dilation")
    }
    again = prepare(made.notebook, made.inject, made.layout, hardware=HERE)
    assert again.run_id == made.run_id, "a job makes the request anew"
    assert request(link_gbit=1, dilation=7).run_id != made.run_id
    assert request(link_gbit=0.3).config.dilation == 2
    assert request(Layout(), link_gbit=1).config.dilation == 1, "one rank communicates nothing"
    assert settings(made.config.model_dump()) == settings(request(link_gbit=1, dilation=7).config.model_dump())


def test_a_submitted_run_stays_what_it_was_named(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """... whatever is measured while it waits; a new one follows from the new record."""
    monkeypatch.setenv("HPC_CLUSTER", HERE)
    profile = Path(results / "probes/compute" / f"{measure_compute()}.json")
    measure_allreduce(seconds=0.033)
    made = request(link_gbit=1)
    write_points(tmp_path / "points.json", [made])
    measure_allreduce(seconds=0.066, provenance={"collected_at": "2999"})
    assert request(link_gbit=1).config.dilation == 9
    again, _ = read_point(tmp_path / "points.json", 0)
    assert (again.run_id, again.config.dilation) == (made.run_id, 5)
    profile.unlink()
    with pytest.raises(ConfigError, match="no such record"):
        read_point(tmp_path / "points.json", 0)


def test_a_newer_record_of_smaller_messages_hides_no_older_one(results: Path) -> None:
    measure_compute()
    measure_allreduce(seconds=0.033)
    measure_allreduce(seconds=0.066, sizes=(1, 2), provenance={"collected_at": "2999"})
    assert request(link_gbit=1).config.dilation == 5


@pytest.mark.parametrize(
    ("parameters", "layout", "words"),
    [
        ({"link_gbit": 1, "dilation": 4.9}, Layout(2, 1), "from dilation=5 on"),
        ({}, Layout(2, 1), "without link_gbit no link is limited"),
        ({"link_gbit": 1}, Layout(1, 2), "ranks of one node talk over no link"),
        ({"link_gbit": 1}, Layout(4, 1), "hpc bench allreduce` on 4 nodes x 1 ranks of rehearsal-cpu-0123abcd"),
        ({"batch_per_device": 65}, Layout(), "65 is too far from what was measured, 8 to 32"),
        ({"precision": "bf16"}, Layout(), "hpc bench compute -p workload=cnn -p dataset=digits -p precision=bf16"),
        ({"threads_per_rank": 2}, Layout(), "with 2 threads"),
        ({"compute_profile": "none-such"}, Layout(), "none-such"),
    ],
)
def test_what_is_not_measured_or_not_honest_is_refused(
    results: Path, parameters: dict, layout: Layout, words: str
) -> None:
    measure_compute()
    measure_allreduce(seconds=0.033)
    measure_allreduce(4, link_gbit=1)
    with pytest.raises(ConfigError, match=words):
        request(layout, **parameters)


def test_a_named_profile_is_of_the_same_model(results: Path) -> None:
    name = measure_compute(optimizer="adamw", hardware_id="another")
    with pytest.raises(ConfigError, match="another optimizer"):
        request(Layout(), compute_profile=name)
    assert request(Layout(), compute_profile=name, optimizer="adamw").config.compute_profile == name


def test_the_command_to_measure_asks_for_what_is_missing(results: Path) -> None:
    """What it says, typed as it stands, is the computing that was asked for."""
    config = RunConfig(**EMULATED | {"workload": "mine:make", "workload_args": {"depth": 2}, "channels_last": False})
    said = re.findall(r"-p (\S+)", emulated.command(config))
    assert computed(RunConfig(**parse_assignments(said))) == computed(config)


def test_a_plan_leaves_out_what_nothing_measured_tells(results: Path, tmp_path: Path) -> None:
    """... while to start it is an error that says what to measure."""
    measure_compute()
    text = 'title = "T"\n[parameters]\nworkload = "cnn"\ndevice = "emulated"\nevaluate_every = 0\nlink_gbit = 1\n'
    text += '[[series]]\nname = "weak"\nnotebook = "02_ddp"\nranks = [1, 2]\nparameters = { batch_per_device = 16 }\n'
    (tmp_path / "mine.toml").write_text(text)
    place = Place(HERE, ranks_per_node=1, fixed_links="")
    plan = studies.plan(str(tmp_path / "mine.toml"), place, needs_data=False)
    assert [point.ranks for point in plan.points] == [1]
    assert [point.ranks for point in plan.not_applicable] == [2]
    assert "hpc bench allreduce` on 2 nodes" in plan.impossible[0]
    with pytest.raises(studies.StudyError, match="hpc bench allreduce"):
        studies.plan(str(tmp_path / "mine.toml"), place)
    (tmp_path / "mine.toml").write_text(text.replace("batch_per_device = 16", "global_batch = 3"))
    with pytest.raises(studies.StudyError, match="global_batch=3"):
        studies.plan(str(tmp_path / "mine.toml"), place, needs_data=False)


def test_a_study_stays_emulated_where_a_cluster_says_cpu(results: Path, tmp_path: Path) -> None:
    measure_compute()
    text = 'title = "T"\n[parameters]\nworkload = "cnn"\ndevice = "emulated"\nevaluate_every = 0\nlink_gbit = 1\n'
    text += '[[series]]\nname = "weak"\nnotebook = "02_ddp"\nranks = [1]\nparameters = { batch_per_device = 16 }\n'
    (tmp_path / "mine.toml").write_text(text)
    place = Place(HERE, ranks_per_node=1, fixed_links="", parameters={"device": "cpu", "threads_per_rank": 1})
    (made,) = studies.plan(str(tmp_path / "mine.toml"), place).requests
    assert (made.config.device, made.config.threads_per_rank) == ("emulated", 1)

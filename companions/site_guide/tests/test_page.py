"""The guide of a cluster has the numbers of the records, commands that exist, and says what was not measured."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import click
import pandas as pd
import pytest
from click.testing import CliRunner

from companions.site_guide import collectives, page
from hpc_utils import paths
from hpc_utils.analyze import budget, recommend
from hpc_utils.cli import main
from hpc_utils.config import RunConfig, parse_assignments
from hpc_utils.launch.cluster import read_cluster
from hpc_utils.records import atomic, probes

REHEARSAL = paths.reference() / "rehearsal"
HARDWARE = "rehearsal-cpu-300bbc26"


def guide(*words: str) -> str:
    done = CliRunner().invoke(main, ["guide", *words])
    assert done.exit_code == 0, done.output
    return Path(done.stdout.strip()).read_text()


def section(text: str, title: str) -> str:
    return re.search(
        rf"^#+ {title}\n(.*?)(?=^#+ |\Z)", re.sub(r"^```\n.*?^```$", "", text, flags=re.M | re.S), re.M | re.S
    )[1]


def cells(text: str) -> list[list[str]]:
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line.startswith("|")
    ]
    return [row for row in rows if row[0].strip(":- ") or row[1].strip(":- ")]


@pytest.fixture(scope="module")
def site() -> page.Site:
    return page.Site.read(read_cluster("rehearsal"), REHEARSAL)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    return guide("rehearsal", "--results", "rehearsal", "-o", str(tmp_path_factory.mktemp("guide") / "page.md"))


def test_the_smallest_option_trains_the_hours_asked_for_and_all_others_the_same_samples(site: page.Site) -> None:
    for _, options, smallest, samples in page._works(site, 12):
        reference = options[[row == smallest.runs for row in options.runs]].iloc[0]
        assert reference.seconds * reference.world_size == pytest.approx(12 * 3600, rel=0.02)
        assert reference.parallel == "none" and reference.world_size == 1 and reference.precision == "fp32"
        runs = site.runs.set_index("run_id")
        for option in options.itertuples():
            rate = runs.throughput[[*option.runs]].median()
            assert option.seconds == pytest.approx(samples / rate, rel=0.02)


def test_options_are_ordered_by_time_with_their_device_seconds_as_efficiency(site: page.Site, text: str) -> None:
    work = next(work for work in page._works(site, 12) if work[0] == "cnn on digits")
    head, *rows = cells(section(text, "cnn on digits"))
    assert len(rows) == len(work[1]) and work[1].seconds.is_monotonic_increasing
    fastest = work[1].iloc[0]
    assert recommend.describe(fastest) == rows[0][1]
    speedup = float(rows[0][head.index("speed-up")].split()[0])
    assert speedup == pytest.approx(12 * 3600 / fastest.seconds, rel=0.05)
    efficiency = float(rows[0][head.index("efficiency")].split()[0])
    base = page._bases(work[1], page.SAME)[0]
    device_seconds = base.seconds * base.world_size / (fastest.seconds * fastest.world_size)
    assert efficiency == pytest.approx(100 * device_seconds, rel=0.05)
    marks = [row[-1] for row in rows]
    assert "the fastest" in marks[0] and sum("the cheapest" in mark for mark in marks) == 1
    assert sum(row[1].endswith("batch 768") and row[head.index("speed-up")] == "1" for row in rows) == 1


def test_a_planned_option_stands_among_the_measured_with_its_command(site: page.Site) -> None:
    _, options, smallest, samples = next(work for work in page._works(site, 12) if work[0] == "cnn on digits")
    steps = {"step_seconds": 0.05, "step_seconds_low": 0.04, "step_seconds_high": 0.08}
    layout = {"parallel": "ddp", "nodes": 16, "world_size": 16, "global_batch": 1024, "series": "wide"}
    point = {name: smallest.get(name) for name in budget.SAME} | layout | steps | {"basis": "model", "note": ""}
    point |= dict.fromkeys(budget.SECONDS, 3600.0) | dict.fromkeys(budget.STARTS, 0.0) | {"runs": 3, "source": "one"}
    measured = point | {"nodes": 2, "world_size": 2, "basis": "measured"}
    text = page.guide_page(site, 12, ("wide", pd.DataFrame([point, measured])))
    head, *rows = cells(section(text, "cnn on digits"))
    (planned,) = [row for row in rows if "planned" in row[-1]]
    assert len(rows) == len(options) + 1 and "16 devices" in planned[1]
    assert f"{3 * (16 + 2)} [54, 54] node-hours" in text, "of all runs"
    seconds = samples * 0.05 / 1024
    assert rows.index(planned) == (options.seconds < seconds).sum()
    speedup = smallest.seconds / seconds
    assert float(planned[head.index("speed-up")].split()[0]) == pytest.approx(speedup, rel=0.05)
    efficiency = float(planned[head.index("efficiency")].split()[0])
    assert efficiency == pytest.approx(100 * speedup / 16, rel=0.05)
    assert "hpc submit wide --cluster rehearsal --only series=wide --only nodes=16 --only ranks=16" in text


def test_every_option_can_be_launched_with_its_own_parameters(text: str) -> None:
    lines = [line for line in text.splitlines() if re.match(r"(RANKS_PER_NODE=\d+ )?sbatch |hpc submit ", line)]
    by_hand = [shlex.split(line) for line in lines if "sbatch" in line]
    assert len(by_hand) == 26
    for words in by_hand:
        parameters = [words[place + 1] for place, word in enumerate(words) if word == "-p"]
        config = RunConfig(**parse_assignments(parameters))
        assert config.global_batch and config.device == "cpu"
    submitted = [shlex.split(line)[2:] for line in lines if line.startswith("hpc submit")]
    assert len(submitted) >= 26
    submit = main.commands["submit"]
    for words in submitted:
        assert words[0] in paths.study_files()
        submit.make_context("submit", words, parent=click.Context(main), resilient_parsing=False)


def test_the_recommendation_is_there_for_development_and_production(text: str) -> None:
    head, *rows = cells(section(text, "Which option to use"))
    purposes = {(row[0], row[head.index("purpose")]) for row in rows}
    assert {("cnn on digits", "development"), ("cnn on digits", "production")} <= purposes


def test_what_was_not_measured_is_named_with_its_command(text: str, results: Path) -> None:
    assert "`hpc bench collectives --cluster rehearsal`" in section(text, "Collectives")
    facts = dict(row for row in cells(section(text, "Hardware and libraries")) if len(row) == 2)
    assert facts["processor"] == "AMD EPYC" and facts["torch"] == "2.13.0+cpu"
    assert "hpc doctor --cluster rehearsal" in facts["UCX"]
    empty = guide("leonardo")  # nothing has run in this set
    assert "hpc submit strong --cluster leonardo" in section(empty, "Options")
    assert ["NCCL_SOCKET_IFNAME", "ib0"] in [row[:2] for row in cells(empty)]
    planned = guide("leonardo", "--plan", "strong --throughput 2500")
    rows = cells(section(planned, "resnet18 on cifar10"))
    assert any(row[1].startswith("8 devices on 2 nodes") and row[-1].startswith("planned (stated)") for row in rows)


def test_the_doctors_answers_and_measured_collectives_complete_the_page(results: Path) -> None:
    report = {
        "made": "2030-01-01T00:00:00+00:00",
        "checks": [{"name": "transport", "measured": "nccl 2.28: NET/IB"}],
        "saw": {"software": {"node1 rank 0": {"MPI": "mpiexec (OpenRTE) 4.1.4", "UCX": ""}}},
        "provenance": {
            "hardware_id": HARDWARE, "hardware": {"memory_bytes": 2**35}, "versions": {"nccl": "2.28"},
            "environment": {"NCCL_IB_HCA": "mlx5_0", "OMP_NUM_THREADS": "1"},
        },
    }  # fmt: skip
    atomic.write_json(results / "doctor/x/doctor.json", report)
    sample = {"operation": "broadcast", "bytes": 2**20, "seconds": [0.002, 0.001, 0.004]}
    ranks = {"world_size": 2, "nodes": 2, "backend": "gloo", "device_name": "X"}
    probes.keep("collectives", "x", {"hardware_id": HARDWARE, "samples": [sample], **ranks})
    rows = cells(guide("rehearsal"))
    for row in (["memory", "32 GiB"], ["nccl", "2.28"], ["MPI", "mpiexec (OpenRTE) 4.1.4"], ["UCX", "none"]):
        assert row in rows
    assert ["NCCL_IB_HCA", "mlx5_0"] in [row[:2] for row in rows]
    assert "OMP_NUM_THREADS" not in [row[0] for row in rows]
    assert ["broadcast", "1 MiB", "2", "1", "4", "0.524"] in rows


@pytest.mark.soak
def test_five_collectives_are_measured_on_two_ranks(results: Path) -> None:
    done = CliRunner().invoke(main, ["bench", "collectives", "--nproc", "2", "--repeats", "2"])
    assert done.exit_code == 0, done.output
    (file,) = (results / "probes/collectives").glob("*.json")
    record = json.loads(file.read_text())
    assert record["kind"] == "collectives" and record["world_size"] == 2
    sizes = {(sample["operation"], sample["bytes"]) for sample in record["samples"]}
    assert sizes == {(name, length) for name in collectives.OPERATIONS for length in collectives.SIZES}
    assert all(len(sample["seconds"]) == 2 and min(sample["seconds"]) > 0 for sample in record["samples"])

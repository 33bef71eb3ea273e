"""The folder that a course asks for holds the numbers of the records, says what it lacks, and its page names real commands."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner, Result

from companions.export import hand_in
from hpc_utils import paths, records, workspace
from hpc_utils.cli import main
from hpc_utils.launch import study as studies
from hpc_utils.launch import submit
from hpc_utils.launch.cluster import read_cluster
from hpc_utils.launch.target import Target, Variant
from hpc_utils.records import atomic
from hpc_utils.records.folder import read_json
from tests.support import copy_runs, write_files

ASKED = (
    "jobid,commit,ts,epoch,world_size,nodes,global_batch,per_gpu_batch,train_top1,val_top1,images_per_sec,time_epoch_s,"
    "dl_time_s,fw_time_s,bw_time_s,comm_time_s,mem_gb,util_gpu,eff_strong,eff_weak"
)
LAPTOP, WORKSHOP = paths.reference() / "epyc-2core", paths.reference() / "workshop"
PAGE = (paths.root() / "docs/course.md").read_text()


def export(*words: str) -> Result:
    return CliRunner().invoke(main, ["export", "--course", *words])


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("course") / "laptop"
    done = export("laptop", "--results", "epyc-2core", "--output", str(folder))
    assert done.exit_code == 0 and done.stdout.strip() == str(folder), done.output
    return folder


@pytest.fixture(scope="module")
def rows(laptop: Path) -> pd.DataFrame:
    return pd.read_csv(laptop / "results.csv")


def test_the_columns_are_those_that_the_course_asks_for_and_a_row_is_its_record(rows: pd.DataFrame) -> None:
    assert ",".join(rows).startswith(f"{ASKED},") and f"\n{ASKED}\n" in PAGE
    epochs = pd.read_csv(LAPTOP / "csv/epochs.csv")
    assert len(rows) == len(epochs)
    row = rows[(rows.world_size == 2) & (rows.precision == "fp32") & (rows.global_batch == 512)].iloc[3]
    own = epochs[(epochs.run_id == row.run_id) & (epochs.epoch == row.epoch)].iloc[0]
    assert (row.time_epoch_s, row.images_per_sec) == (own.seconds, own.throughput)
    assert row.workload == "cnn" and "epochs=" in row.settings
    assert (row.train_top1, row.val_top1, row.per_gpu_batch) == (own.train_accuracy, own.test_accuracy, 256)
    parts = {"dl": "data", "fw": "forward", "bw": "backward", "comm": "comm"}
    for ours, theirs in parts.items():
        assert row[f"{ours}_time_s"] == pytest.approx(own[f"{theirs}_seconds"] * own.steps)
    memory = pd.read_csv(LAPTOP / "csv/ranks.csv").groupby("run_id").peak_rss_bytes.max()
    assert row.mem_gb == pytest.approx(memory[row.run_id] / 1e9)
    assert (rows.commit == "b2de18d7979b" + row.commit[12:]).all() and len(row.commit) == 40


def test_an_efficiency_is_t_of_one_over_n_t_of_n(rows: pd.DataFrame) -> None:
    alone, two = (rows[(rows.parallel == name) & (rows.precision == "fp32")] for name in ("none", "ddp"))
    two = two[two.world_size == 2]
    strong, weak = two[two.global_batch == 512], two[two.global_batch == 1024]
    t_one, t_strong, t_weak = (one.groupby("run_id").time_epoch_s.sum().median() for one in (alone, strong, weak))
    assert strong.eff_strong.unique() == pytest.approx([t_one / t_strong / 2])
    assert weak.eff_weak.unique() == pytest.approx([t_one / t_weak])
    assert (alone.eff_strong == 1).all() and strong.eff_weak.isna().all() and weak.eff_strong.isna().all()


def test_what_was_not_measured_is_empty_and_said(laptop: Path, rows: pd.DataFrame) -> None:
    assert rows[["jobid", "ts", "util_gpu"]].isna().all(axis=None)
    assert rows.comm_time_s.notna().equals(rows.world_size > 1)
    files = {path.name for path in laptop.iterdir()}
    assert files == {"results.csv", "run.sh", "submit.sbatch", "reproduce.md", "SYSTEM.md", "figures"}
    said = (laptop / "reproduce.md").read_text()
    assert "No `sacct.csv`: no run was a Slurm job." in said and "every row: jobid, ts, util_gpu." in said
    assert "24 runs" in said and "cnn on digits, in bf16, fp32, on 1, 2 ranks" in said
    assert "\nhpc export --course laptop\n" in said and {"laptop.toml", "cnn.py"}.isdisjoint(files)
    assert rows.commit[0] in said and "hpc study run laptop" in (laptop / "run.sh").read_text()
    figures = {path.name for path in (laptop / "figures").iterdir()}
    assert {f"laptop-efficiency.{kind}" for kind in ("pdf", "csv", "json")} <= figures


def test_a_study_of_slurm_has_its_jobs_and_the_script_that_they_ran(tmp_path: Path) -> None:
    (study,) = (path.stem for path in (WORKSHOP / "studies").glob("*.json"))
    done = export("--results", "workshop", "--output", str(tmp_path))  # its only study
    assert done.exit_code == 0, done.output
    rows, jobs = (pd.read_csv(tmp_path / name) for name in ("results.csv", "sacct.csv"))
    assert list(jobs) == ["JobID", "Elapsed", "AveCPU", "AveRSS", "MaxRSS", "AllocTRES", "State"]
    assert set(rows.jobid) <= set(jobs.JobID) and not jobs.duplicated().any()
    assert rows.jobid.nunique() == rows.run_id.nunique() == len(records.read_study(study, WORKSHOP).runs)
    ended = pd.read_csv(WORKSHOP / "csv/epochs.csv").ended
    assert pd.to_datetime(rows.ts.min()).timestamp() == int(ended.min())
    assert (tmp_path / "submit.sbatch").read_text() == (paths.jobs() / "sweep.sbatch").read_text()
    script = (tmp_path / "run.sh").read_text()
    assert "hpc data fetch tiny-imagenet\nhpc submit workshop --cluster rehearsal --nodes-of cpu --wait\n" in script
    assert len((tmp_path / "SYSTEM.md").read_text().splitlines()) < 80, "a page"


def test_the_utilisation_is_that_of_the_gpus_in_the_epoch(tmp_path: Path) -> None:
    (run,) = copy_runs(WORKSHOP, tmp_path, "*-ddp2-*", limit=1)
    record = read_json(run / "run.json") | {"device": "cuda"}
    atomic.write_json(run / "run.json", record)
    first, second, *_ = (pd.read_csv(run / "epochs.csv").iloc[at] for at in (0, 1))
    at = first.ended - first.seconds / 2
    log = [(at, "cuda:0", 90), (at, "cuda:1", 70), (at, "cpu", 5), (first.ended + 1e-3, "cuda:0", 1)]
    shutil.rmtree(run / "monitor")
    (run / "monitor").mkdir()
    frame = pd.DataFrame(log, columns=["time", "device", "utilization_percent"]).assign(host="node1")
    frame.to_csv(run / "monitor/node1.csv", index=False)
    found = hand_in.epoch_table(tmp_path, records.load(tmp_path))
    assert second.epoch == 2 and (found.util_gpu == 80).all(), "an epoch without a sample has the mean of all"
    log = frame.assign(time=[begin := second.ended - second.seconds / 2, begin, begin, 0], utilization_percent=60)
    pd.concat([frame, log]).to_csv(run / "monitor/node1.csv", index=False)
    found = hand_in.epoch_table(tmp_path, records.load(tmp_path))
    assert found.util_gpu.tolist() == [80, 60, 70]


def test_a_run_that_is_missing_is_named(results: Path, tmp_path: Path) -> None:
    shutil.copytree(LAPTOP / "studies", results / "studies")
    copy_runs(LAPTOP, results, "*-fp32-*")
    (results / "submissions/0001-laptop/logs").mkdir(parents=True)
    (results / "submissions/0001-laptop/points-01.json").write_text(f"{results}/runs")
    done = export("laptop", "--output", str(tmp_path / "out"))
    assert done.exit_code == 0 and "No figures: `hpc report laptop` draws them." in done.stderr
    (absent,) = (run.name for run in copy_runs(LAPTOP, tmp_path / "other", "*-none1-bf16-*-r2-*"))
    assert absent in done.stderr and absent in (tmp_path / "out/reproduce.md").read_text()
    (points,) = (tmp_path / "out/submissions").rglob("*.json")
    assert points.read_text() == "results/runs", "no path of this machine"
    shutil.rmtree(results / "runs")
    refused = export("laptop", "--output", str(tmp_path / "none"))
    assert refused.exit_code == 2 and not (tmp_path / "none").exists()


CLUSTER = """
title = "Site"
[nodes.cpu]
partition = "cpu"
most_nodes = 8
cores = 4
precisions = ["fp32"]
[studies.strong]
ranks = [1, 2, 4]
parameters = { epochs = 5 }
"""
STUDY = """
title = "Mine"
about = "A net."
parameters = { workload = "parts.gated:net", steps_per_epoch = 2 }
series = [{ name = "strong", notebook = "02_ddp", ranks = [1, 2], parameters = { global_batch = 64 } }]
"""
HPC = """#!/bin/bash
[[ $1 == data || $1 == cluster ]] && { echo "$@"; exit; }
exec python -m hpc_utils.cli "${@/--wait/--dry-run}"
"""


@pytest.mark.parametrize("at_site", [True, False])
def test_the_folder_beside_a_fresh_clone_plans_the_runs_that_were_exported(
    at_site: bool, results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edited study and cluster file, options of the command, and the study's own module: none is in the clone."""
    desk, output, clone, again = (tmp_path / name for name in ("desk", "out", "clone", "again"))
    write_files(
        desk, {"jobs/site.toml": CLUSTER, "jobs/strong.toml": STUDY, "parts/gated.py": "from .layers import net"}
    )
    write_files(desk, {"parts/layers.py": "def net():\n    return None\n"})
    monkeypatch.chdir(desk)
    variant = Variant("mine-fast", {"lr": 0.5}, (1, 2, 4) if at_site else (), repeats=2)
    target = Target.here(variant)
    if at_site:
        site = read_cluster("jobs/site.toml").rehearsed(links=None, setup=("hpc cluster up --nodes=8",))
        target = submit.target_on(site, site.node(), "strong", variant)
    plan = studies.plan("jobs/strong.toml", target)
    plan.write()
    (recorded,) = copy_runs(LAPTOP, tmp_path, "*-ddp2-fp32-b512-r1-*")
    for request in plan.requests:
        run = shutil.copytree(recorded, results / "runs" / request.run_id)
        record = read_json(run / "run.json") | {"workload": "parts.gated:net"}
        atomic.write_json(run / "run.json", record | {"config": record["config"] | {"workload": "parts.gated:net"}})
    name = plan.name
    done = export(name, "--output", str(output))
    assert done.exit_code == 0, done.output
    text = (output / "reproduce.md").read_text()
    files = {"strong.toml", "parts/gated.py", "parts/layers.py"} | ({"clusters/site.toml"} if at_site else set())
    assert files == set(re.search(r"this folder has them: (.*)\.", (output / "SYSTEM.md").read_text())[1].split(", "))
    title = "Mine, changed for site-cpu, with lr=0.5, ranks=1,2,4" if at_site else "Mine, with lr=0.5"
    assert f"# How to reproduce: {title}\n" in text and records.read_study(name, results).about in text
    assert "`strong.toml`" in text and f"cd FOLDER && hpc export --course {name}\n" in text

    shutil.rmtree(desk)
    ignored = shutil.ignore_patterns(".*", "results", "data", "tests", "docs")
    shutil.copytree(paths.root(), clone, ignore=ignored)
    shutil.copytree(results / "runs", again / "runs")
    (tmp_path / "hpc").write_text(HPC)
    (tmp_path / "hpc").chmod(0o755)
    environment = workspace.child_environment() | {"HPC_RESULTS": str(again), "PYTHONPATH": str(clone)}
    environment |= {"PATH": f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
    ran = subprocess.run(["bash", output / "run.sh"], cwd=clone, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    number = len(plan.requests)
    if at_site:
        assert ran.stdout.startswith("cluster up --nodes=8\n")
        assert number == 6 and "6 complete, 0 in the queue, 0 to submit" in ran.stdout
    else:
        assert number == 4 and "4 runs, 4 complete" in ran.stderr
        assert records.read_study(name, again) == records.read_study(name, results).model_copy(
            update={"command": "hpc study run ./strong.toml -plr=0.5 --repeats=2 --as=mine-fast"}
        )


@pytest.mark.parametrize(
    ("words", "named"), [(["lptop", "--results", "laptop"], "laptop"), (["--results", "shares"], "devices")]
)
def test_an_unknown_study_and_one_of_several_are_refused(words: list[str], named: str, tmp_path: Path) -> None:
    done = export(*words, "--output", str(tmp_path / "out"))
    assert done.exit_code == 2 and named in done.stderr.splitlines()[-1] and not (tmp_path / "out").exists()


def test_the_page_names_studies_and_sets_that_there_are() -> None:
    """`tests/test_pages.py` parses its commands."""
    studies = set(re.findall(r"hpc (?:study run|submit|plan) ([a-z][\w-]*)", PAGE))
    assert studies and studies <= paths.study_files().keys()
    copies = set(re.findall(r"cp -r results/reference/\S+ (\S+)", PAGE))
    sets = set(re.findall(r"--results ([a-z][\w-]*)", PAGE)) - copies
    assert sets and all((paths.reference() / name).is_dir() for name in sets)


def test_the_page_has_the_rubric_with_all_its_points() -> None:
    points = [int(number) for number in re.findall(r"^### .*\((\d+) points\)$", PAGE, re.M)]
    assert points == [25, 25, 20, 15, 10, 5]
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", PAGE):
        assert (paths.root() / "docs" / link).exists(), link

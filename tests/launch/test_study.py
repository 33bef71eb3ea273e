"""Studies: what a file expands to, in which order, how a wrong one is refused; what a task of an array and a forecast get."""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from hpc_utils import capability, paths, provenance, records, rehearsal
from hpc_utils.cli import common, main
from hpc_utils.config import ConfigError, RunConfig, parse_assignments
from hpc_utils.launch import cluster as clusters
from hpc_utils.launch import slurm_commands, status, submit
from hpc_utils.launch import study as studies
from hpc_utils.launch.cluster import Overrides
from hpc_utils.launch.request import Layout, prepare
from hpc_utils.launch.study_file import StudyError
from hpc_utils.launch.submit import ARRAY, Submission, _groups, queued, read_task, submissions, write_points
from hpc_utils.launch.target import Target, Variant
from hpc_utils.provenance.gpu import Gpu
from hpc_utils.records import RunFolder, compute_profile, probes, read_study
from hpc_utils.records.folder import read_json

from .conftest import Bench

GOOD = """
title = "T"
repeats = 2
[parameters]
workload = "cnn"
steps_per_epoch = 2
[[series]]
name = "strong"
notebook = "02_ddp"
ranks = [1, 2]
parameters = { global_batch = 64 }
matrix = { precision = ["fp32", "bf16"] }
[[series]]
name = "weak"
notebook = "02_ddp"
ranks = [1, 2]
parameters = { batch_per_device = 64 }
"""


def test_a_matrix_expands_and_repeats_are_interleaved(write) -> None:
    plan = studies.plan(write(GOOD.replace('workload = "cnn"', 'workload = "cnn"\nseed = 7')))
    assert [point.repeat for point in plan.points] == [1] * 6 + [2] * 6
    strong = [p for p in plan.points if p.series == "strong" and p.repeat == 1]
    assert [(p.request.config.precision, p.ranks) for p in strong] == [
        ("fp32", 1), ("fp32", 2), ("bf16", 1), ("bf16", 2),
    ]  # fmt: skip
    assert len(plan.requests) == 2 * (4 + 1), (
        "64 samples on one rank are strong and weak scaling's first point at once"
    )
    assert {(p.repeat, p.request.config.seed) for p in plan.points} == {(1, 7), (2, 8)}
    elsewhere = studies.plan(write(GOOD), Target("there-gpu", ranks_per_node=4))
    assert not {r.run_id for r in plan.requests} & {r.run_id for r in elsewhere.requests}


def test_further_repeats_are_those_of_the_configurations_that_need_them(write) -> None:
    study = write(GOOD)
    first = studies.plan(study).points[0].request.run_id
    plan = studies.plan(study, further={first: 4})
    further = sorted((point.series, point.ranks, point.repeat) for point in plan.points if point.repeat > 2)
    assert further == [("strong", 1, 3), ("strong", 1, 4), ("weak", 1, 3), ("weak", 1, 4)]
    assert sorted(run.config.repeat for run in plan.requests if run.config.repeat > 2) == [3, 4], (
        "one run, of two series"
    )


def test_no_configuration_is_always_measured_first(write) -> None:
    """Else a machine that slows down within each repeat would make the last configurations look slow."""
    study = write(GOOD.replace("repeats = 2", "repeats = 6"))
    orders: dict[int, list[tuple]] = {}
    for request in studies.plan(study).requests:
        config = request.config
        orders.setdefault(config.repeat, []).append((config.precision, *config.batches(request.layout.ranks)))
    assert list(orders) == [1, 2, 3, 4, 5, 6], "repeats follow each other"
    firsts, *_, lasts = zip(*orders.values(), strict=True)
    assert len({*firsts}) > 1 and len({*lasts}) > 1
    assert len({tuple(sorted(order)) for order in orders.values()}) == 1, "the same runs"
    assert studies.plan(study).requests == studies.plan(study).requests


def test_a_target_with_nodes_lays_ranks_out_and_lists_what_it_cannot_run(write) -> None:
    overrides = Overrides(ranks=[1, 2, 3, 4, 8], repeats=1)
    place = Target("tiny-gpu", ranks_per_node=2, most_nodes=2, overrides=overrides, precisions=["fp32"])
    text = GOOD.replace("global_batch = 64", "global_batch = 48")
    plan = studies.plan(write(text), place)
    strong = [p for p in plan.points if p.series == "strong"]
    assert [(p.ranks, p.request.layout.nodes) for p in strong] == [(1, 1), (2, 1), (4, 2)]
    why = {(p.ranks, p.values.get("precision")): p.why for p in plan.not_applicable if p.series == "strong"}
    assert "3 ranks need 3 nodes of 1: at most 2 on tiny-gpu" in why[3, "fp32"]
    assert why[2, "bf16"] == f"bf16 on tiny-gpu: {capability.LACKS['bf16']}"
    assert {ranks for ranks, precision in why if precision == "fp32"} == {3, 8}


def test_bf16_is_not_measured_where_this_processor_emulates_it(write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "emulates_bf16", lambda: True)
    monkeypatch.setattr(provenance, "hardware", lambda: provenance.Hardware())
    plan = studies.plan(write(GOOD))
    assert {p.request.config.precision for p in plan.points} == {"fp32"}
    assert [line.startswith("2 not applicable: strong: bf16 on ") for line in plan.impossible] == [True]
    monkeypatch.setattr(
        provenance, "hardware", lambda: provenance.Hardware(gpus=[Gpu(), Gpu()])
    )  # which then compute
    assert not studies.plan(write(GOOD)).not_applicable
    assert studies.plan(write(GOOD.replace("steps_per_epoch", 'device = "cpu"\nsteps_per_epoch'))).not_applicable
    assert not studies.plan(write(GOOD), Target("a-cluster-s")).not_applicable, "its own processors"


def test_more_ranks_than_this_machine_has_gpus_are_not_applicable(write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "hardware", lambda: provenance.Hardware(gpus=[Gpu()]))
    assert {point.ranks for point in studies.plan(write(GOOD)).points} == {1}
    on_cpu = GOOD.replace("steps_per_epoch", 'device = "cpu"\nsteps_per_epoch')
    assert {point.ranks for point in studies.plan(write(on_cpu)).points} == {1, 2}
    assert {point.ranks for point in studies.plan(write(GOOD), Target("a-cluster-s")).points} == {1, 2}


@pytest.mark.parametrize(("knob", "value", "why"), [
    ("precision", "tf32", capability.LACKS["tf32"]),
    ("precision", "fp16", capability.LACKS["fp16"]),
    ("compile", "reduce-overhead", "uses CUDA graphs"),
    ("compile", "default", "g++ is not on PATH"),
])  # fmt: skip
def test_what_a_processor_cannot_do_is_not_applicable(
    write, monkeypatch, tmp_path, knob: str, value: str, why: str
) -> None:
    monkeypatch.setattr(provenance, "hardware", lambda: provenance.Hardware())
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    text = GOOD.replace("steps_per_epoch", f'{knob} = "{value}"\nsteps_per_epoch').replace("matrix", "# matrix")
    plan = studies.plan(write(text))
    assert not plan.points and all(why in point.why for point in plan.not_applicable)
    assert studies.plan(write(text), Target("a-cluster-s")).points, "its own devices and compilers"
    if knob == "precision":
        monkeypatch.setattr(provenance, "hardware", lambda: provenance.Hardware(gpus=[Gpu()]))
        assert studies.plan(write(text)).points


def test_more_threads_than_cores_are_not_applicable(write) -> None:
    text = GOOD.replace('precision = ["fp32", "bf16"]', "threads_per_rank = [1, 3]")
    for cores, threads in ((2, {1}), (3, {1, 3}), (0, {1, 3})):
        plan = studies.plan(write(text), Target("there", cores=cores))
        strong = [point.request for point in plan.points if point.series == "strong"]
        assert {request.config.threads_per_rank for request in strong} == threads
    (group,) = _groups([request for request in strong if request.layout.ranks == 1], in_turn=False)
    assert group.threads == 3, "all jobs of an array have cores for the most threads"


def test_a_command_overrides_parameters_and_repeats(write) -> None:
    study = write(GOOD)
    overrides = ["-p", "steps_per_epoch=5", "--repeats", "1", "--as", "quick"]
    done = CliRunner().invoke(main, ["study", "plan", study, *overrides])
    plan = studies.plan(study, Target.here(Variant("quick", {"steps_per_epoch": 5}, repeats=1)))
    run_ids = {request.run_id for request in plan.requests}
    assert done.exit_code == 0 and {line.split()[1] for line in done.output.splitlines()[:-1]} == run_ids
    assert len(run_ids) == 6 - 1
    some = CliRunner().invoke(main, ["study", "plan", study, "--only", "series=weak", "--only", "ranks=2"])
    two = studies.plan(study).selected({"series": ["weak"], "ranks": [2]})
    assert [line.split()[1] for line in some.output.splitlines()[:-1]] == [run.run_id for run in two]
    refused = CliRunner().invoke(main, ["study", "plan", study, "-p", "steps_per_epok=5", "--as", "quick"])
    assert refused.exit_code == 2 and "did you mean steps_per_epoch" in refused.output


def test_a_cluster_changes_the_parameters_of_some_series(write) -> None:
    overrides = Overrides(
        parameters={"steps_per_epoch": 3}, parameters_of={"we.*|x": {"steps_per_epoch": 4, "lr": 0.5}}
    )
    there = Target("there", overrides=overrides)
    varied = Target("there", overrides=overrides, variant=Variant("v", {"steps_per_epoch": 5}))
    for target, weak in ((there, 4), (varied, 5)):
        configs = [(point.series, point.request.config) for point in studies.plan(write(GOOD), target).points]
        assert {config.steps_per_epoch for series, config in configs if series == "weak"} == {weak}
        assert {series for series, config in configs if config.lr == 0.5} == {"weak"}
    with pytest.raises(StudyError, match="strnog"):
        studies.plan(write(GOOD), Target("there", overrides=Overrides(parameters_of={"strnog": {"lr": 0.5}})))


@pytest.mark.parametrize(
    "options",
    [["-p", "epochs=2"], ["--ranks", "1"], ["--as", "laptop"], ["--as", "../x"], ["--ranks", "0", "--as", "x"]],
)
@pytest.mark.parametrize(
    "command", [["study", "plan"], ["study", "run"], ["submit", "--cluster=lumi-g"], ["plan", "--cluster=lumi-g"]]
)
def test_a_changed_study_needs_a_name_of_its_own(
    write, command: list[str], options: list[str], results: Path
) -> None:
    assert CliRunner().invoke(main, [*command, write(GOOD), *options]).exit_code == 2
    assert not list(results.rglob("*.json")), "nothing is planned over the study's own results"


def test_variants_stand_beside_the_study_with_their_own_command_title_and_runs(write, tmp_path: Path) -> None:
    study = write(GOOD.replace('title = "T"', 'title = "T"\nabout = "A."').replace("[1, 2]", "[1, 2, 4]"))
    variant = Variant("t-96", {"lr": 0.5, "optimizer": "adamw"}, (1, 2), 1)
    for target in (Target.here(), Target.here(variant)):
        plan = studies.plan(study, target)
        plan.write()
    plain, index = read_study("mine"), read_study("t-96")
    assert (plain.title, plain.about) == ("T", "A.") and not plain.run_ids & index.run_ids
    assert index.title == "T, with optimizer=adamw, lr=0.5, ranks=1,2"
    assert "ranks=1,2 (study file: 1,2,4)" in index.about and index.about.endswith(" A.")
    *_, summary = output(*shlex.split(index.command.replace(" run ", " plan "))[1:]).splitlines()
    assert summary.startswith(f"{len(index.run_ids)} runs") and index.command in summary
    assert {run.run_id for run in studies.plan(study, Target.here(variant)).requests} == index.run_ids
    assert (tmp_path / "results/studies/t-96/mine.toml").read_text() == Path(study).read_text()


def test_a_cluster_file_that_changes_a_study_is_in_its_title_and_text(write, tmp_path: Path) -> None:
    changed = tmp_path / "site.toml"
    changed.write_text(CLUSTER + "[studies.mine.parameters]\nglobal_batch = 32\nthreads_per_rank = 2\n")
    cluster = clusters.read_cluster(changed)
    study = write(GOOD.partition('[[series]]\nname = "weak"')[0])

    def planned(variant: Variant) -> studies.Plan:
        return studies.plan(study, submit.target_on(cluster, cluster.node(), "mine", variant))

    plan = planned(Variant())
    assert plan.study.title == "T, changed for site-cpu"
    assert plan.study.about == "Changed: global_batch=32 (study file: 64).", (
        "the device's options are the cluster's own"
    )
    plan.write()
    kept = tmp_path / "results/studies/mine-site-cpu"
    assert (kept / "clusters/site.toml").read_text() == changed.read_text() and (kept / "mine.toml").is_file()
    named = planned(Variant("small", {"global_batch": 16}))
    assert named.study.title == "T, with global_batch=16" and {
        p.request.config.global_batch for p in named.points
    } == {16}
    assert named.name == "small-site-cpu"
    assert named.command == f"hpc submit {study} --cluster {changed} --nodes-of cpu -pglobal_batch=16 --as=small"


def test_fewer_repeats_leave_those_in_the_study_that_are_begun(write) -> None:
    path = write(GOOD)
    whole = studies.plan(path)
    whole.index.write()
    complete, queued, *others = [run for run in whole.requests if run.config.repeat == 2]
    RunFolder.claimed(complete.path).close("complete")
    RunFolder.claimed(others[0].path).close("failed", "why")
    fewer = studies.plan(path, Target.here(Variant(repeats=1)), queued={queued.run_id})
    assert {run.run_id for run in fewer.requests if run.config.repeat == 2} == {complete.run_id, queued.run_id}
    changed = studies.plan(path, Target.here(Variant(parameters={"epochs": 2}, repeats=1)), queued={queued.run_id})
    assert {point.repeat for point in changed.points} == {1}, "other runs"


def test_a_study_of_which_nothing_can_be_measured_here_is_refused(write) -> None:
    study = write(GOOD.replace('["fp32", "bf16"]', '["tf32"]').partition('[[series]]\nname = "weak"')[0])
    done = CliRunner().invoke(main, ["study", "run", study, "-p", "device=cpu", "--as", "cpu"])
    assert done.exit_code == 2 and "tensor cores" in done.output


def test_the_reading_side_knows_the_study_by_its_index(write, tmp_path: Path) -> None:
    plan = studies.plan(write(GOOD + "[targets]\nstrong_efficiency = 0.8\nstrong_ranks = 2\n"))
    written = plan.index
    written.write()
    index = read_study("mine", tmp_path / "results")
    assert index == written and index.title == "T" and index.ablation is None
    assert [run.run_id for run in index.runs] == [point.request.run_id for point in plan.points]
    assert index.targets.strong_efficiency == 0.8


def test_a_target_that_no_series_can_answer_is_named(write: Callable) -> None:
    plan = studies.plan(write(GOOD + "[targets]\nstrong_ranks = 64\n"))
    (line,) = plan.impossible
    assert "strong_ranks = 64" in line
    assert studies.plan(write(GOOD)).impossible == [], "a default that does not fit is no wish"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (GOOD.replace("repeats", "repeat"), r"mine\.toml: unknown key 'repeat'"),
        (GOOD.replace('title = "T"', 'title = "T"\nchapters = [{ notebook = "03_scalin" }]'), "did you mean 03_scaling"),
        (GOOD.replace('title = "T"', 'title = "T"\nchapters = [{ notebook = "02_ddp" }]'), "no chapter about a study"),
        (GOOD.replace('"bf16"]', '"fp8"]'), r"series 'strong': precision='fp8': .*'bf16'"),
        (GOOD.replace("global_batch = 64", "global_batch = 63"), r"series 'strong': global_batch=63 does not divide over 2"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_by_file_key_and_what_is_allowed(write, wrong: str, message: str) -> None:
    path = write(wrong)
    with pytest.raises(StudyError, match=message):
        studies.plan(path)


def test_each_rate_of_the_links_is_forecast_where_there_are_links(write) -> None:
    rates = GOOD.replace('{ precision = ["fp32", "bf16"] }', '{ link_gbit = [1, 0.3, "none"] }')
    target = Target("h", ranks_per_node=1, fixed_links="", variant=Variant(repeats=1))
    found = studies.forecast(studies.plan(write(rates.partition('[[series]]\nname = "weak"')[0]), target))
    assert [(one["world_size"], one["link_gbit"]) for one in found] == [
        (1, None), (2, 1), (1, None), (2, 0.3), (1, None), (2, None),
    ]  # fmt: skip


def test_a_task_finds_its_run_and_whether_it_is_to_be_measured_again(results: Path, tmp_path: Path) -> None:
    asked = [prepare(paths.notebooks() / "02_ddp.ipynb", {"repeat": n}, Layout(2, 1)) for n in (1, 2)]
    asked = [replace(request, redo=True) for request in asked]
    write_points(tmp_path / "points.json", [asked[:1], asked])
    tasks = [read_task(tmp_path / "points.json", number) for number in (0, 1)]
    assert tasks == [asked[:1], asked]
    write_points(tmp_path / "points.json", [[replace(asked[0], path=Path("cnn-of-former-code"))]])
    with pytest.raises(ConfigError, match=r"the code of cnn.*since cnn-of-former-code was submitted"):
        read_task(tmp_path / "points.json", 0)
    groups = _groups(asked[:1] * (ARRAY + 1), in_turn=False)
    assert [len(group.tasks) for group in groups] == [ARRAY, 1], "Slurm refuses larger arrays"


def test_a_job_makes_the_runs_of_a_repeat_that_can_take_turns(write) -> None:
    text = GOOD.replace('precision = ["fp32", "bf16"]', """loader_workers = [0, 1], loader = ["workers"]""")
    requests = studies.plan(write(text), Target("there", ranks_per_node=1, most_nodes=2)).requests
    in_turn, *others = _groups(requests, in_turn=True)
    assert in_turn.layout == Layout(2, 1) and [len(task) for task in in_turn.tasks] == [4, 4]
    assert [{request.config.repeat for request in task} for task in in_turn.tasks] == [{1}, {2}]
    alone = [request for group in others for (request,) in group.tasks]
    assert {request.config.loader_workers for request in alone} == {1}
    assert len(alone) + len(in_turn.requests) == len(requests)


SHORT = """parallel = "none"
epochs = 1
steps_per_epoch = 2
warmup_steps = 0
evaluate_every = 0
lr_warmup_epochs = 0"""  # two steps of one process
ONE_FAILS = f"""
title = "One of two cannot be trained"
[parameters]
workload = "cnn"
dataset = "digits"
{SHORT}
[[series]]
name = "rates"
notebook = "01_baseline"
ranks = [1]
matrix = {{ lr = [1e30, 0.01] }}
"""


def test_a_run_that_fails_does_not_take_the_others_with_it(bench: Bench) -> None:
    study = bench.folder / "rates.toml"
    study.write_text(ONE_FAILS)
    outcome = bench.hpc("study", "run", study)
    assert outcome.code == 1 and "Traceback" not in outcome.err.splitlines()[-1]
    assert "the loss became" in outcome.err
    found = records.load(bench.results)
    assert len(found.runs) == 1 and list(found.unfinished.values()) == ["failed"]
    about, why = outcome.err.splitlines()[-2:]
    assert "1 not complete, of 2 runs" in about and next(iter(found.unfinished)) in why and "the loss became" in why
    page = bench.results / "report/rates/index.html"
    assert bench.hpc("report", "rates").code == 0 and "failed runs (1)" in page.read_text()


OWN = f"""
title = "Own"
repeats = 2
[parameters]
workload = "faulty:workload"
{SHORT}
[[series]]
name = "alone"
notebook = "01_baseline"
ranks = [1]
"""


def test_changed_code_and_damaged_runs_are_named_with_what_to_do(bench: Bench) -> None:
    study, module = bench.folder / "own.toml", bench.folder / "faulty.py"
    study.write_text(OWN)
    run = ("study", "run", study, "--no-report")
    plan = ("study", "plan", study)
    assert bench.hpc(*run).code == 0
    older, newer = bench.runs

    def times_measured() -> list[int]:
        return [len(list(path.glob("claims/*.json"))) for path in (older, newer)]

    origin = read_json(older / "provenance.json")
    (older / "provenance.json").write_text(json.dumps(origin | {"digest": "0" * 64}))
    again = f"`hpc study run {study} --outdated`"
    assert again in bench.hpc(*plan).out and again in bench.hpc("collect").err
    assert bench.hpc(*run, "--outdated").code == 0
    assert times_measured() == [2, 1]

    steps = newer / "steps.csv.gz"
    steps.write_bytes(steps.read_bytes()[:-9])
    planned = bench.hpc(*plan)
    *runs, summary = planned.out.splitlines()
    assert dict(reversed(line.split()) for line in runs) == {older.name: "complete", newer.name: "damaged"}
    assert "1 complete, 1 to do" in summary and f"`hpc discard {newer.name}`" in planned.err
    collected = bench.hpc("collect")
    assert collected.code == 1 and f"`hpc study run {study}`" in collected.err
    assert bench.hpc(*run).code == 0 and times_measured() == [2, 2]

    module.write_text(module.read_text() + "changed = True\n")
    *_, summary, former = bench.hpc(*plan).out.splitlines()
    assert "0 complete, 2 to do" in summary and former.startswith("2 former runs ")
    outcome = bench.hpc(*run)
    assert outcome.code == 0 and "2 former runs " in outcome.err
    assert "2 complete, 0 to do" in bench.hpc(*plan).out


def test_only_a_run_of_ones_own_that_nobody_measures_is_discarded(bench: Bench) -> None:
    measured = RunFolder.claimed(bench.results / "runs" / "measured").path
    folder = bench.results / "runs" / "notes"
    folder.mkdir()
    (bench.results / "runs" / "link").symlink_to(folder)
    for name, code in (("measured", 3), ("notes", 2), ("link", 2), ("epyc", 2), (str(folder), 2)):
        assert bench.hpc("discard", name).code == code, name
    RunFolder(measured).close("failed", "why")
    assert bench.hpc("discard", "measured").code == 0
    assert not measured.exists() and folder.exists()


def test_the_command_of_a_study_gives_its_parameters_again() -> None:
    given = {"lr": 0.1, "workload": "a b", "steps_per_epoch": None}
    words = shlex.split(Target.here(Variant("x", given, (1, 2), 2, 0.05, 9)).command)
    options = ["--ranks=1,2", "--repeats=2", "--as=x", "--precision=0.05", "--at-most=9"]
    assert words[:3] == ["hpc", "study", "run"] and words[-5:] == options
    assert parse_assignments(word[2:] for word in words if word.startswith("-p")) == given


def output(*command: str) -> str:
    """What that command of `hpc` prints; it ends well."""
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    return done.stdout


CLUSTER = """
title = "Mine"
[slurm]
time = "01:00:00"
[nodes.cpu]
partition = "cpu"
cores = 2
most_nodes = 8
precisions = ["fp32", "bf16"]
"""


def test_nothing_is_planned_where_the_nodes_of_a_job_are_unknown_or_too_few(write, tmp_path: Path) -> None:
    study = write(GOOD)
    for most_nodes, ranks in ((0, 2), (8, 64)):
        cluster = tmp_path / "cluster.toml"
        cluster.write_text(CLUSTER.replace("most_nodes = 8", f"most_nodes = {most_nodes}"))
        variant = ["--ranks", str(ranks), "--as", "many"]
        for command in (["plan"], ["submit", "--dry-run"]):
            done = CliRunner().invoke(main, [*command, study, "--cluster", str(cluster), *variant])
            assert done.exit_code == 2, done.output


def test_a_variant_has_typed_values_and_none_of_what_the_study_varies(write) -> None:
    study = write(GOOD)
    seeds = Variant("v", parse_assignments(["seed=5", "threads_per_rank=2"]))
    plan = studies.plan(study, Target("there", ranks_per_node=4, variant=seeds))
    assert {(p.repeat, p.request.config.seed, p.request.config.threads_per_rank) for p in plan.points} == {
        (1, 5, 2),
        (2, 6, 2),
    }
    for option in ("precision=bf16", "repeat=3"):
        assert CliRunner().invoke(main, ["study", "plan", study, "-p", option, "--as", "v"]).exit_code == 2


def test_a_plan_lists_the_further_repeats_that_a_precision_asks_for(write, monkeypatch: pytest.MonkeyPatch) -> None:
    study = write(GOOD)
    first = studies.plan(study).points[0].request.run_id
    monkeypatch.setattr(common, "further_repeats", lambda index, precision, most: {first: most} if precision else {})
    assert "-r3-" not in output("study", "plan", study)
    assert "-r3-" in output("study", "plan", study, "--precision", "0.01", "--at-most", "3")


def test_a_misspelt_study_of_a_cluster_file_is_named(write, tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.toml"
    cluster.write_text(CLUSTER + "[studies.waek]\nranks = [1]\n[studies.mine-too]\nranks = [1]\n")
    done = CliRunner().invoke(main, ["submit", "--dry-run", write(GOOD), "--cluster", str(cluster)])
    assert done.exit_code == 2 and "waek" in done.stderr and "mine-too" not in done.stderr


def test_only_the_chosen_runs_are_to_do(write) -> None:
    plan = studies.plan(write(GOOD))
    assert {point.ranks for point in plan.points} == {1, 2}
    two = plan.to_do(only={"ranks": [2], "series": ["weak"]})
    assert {(r.layout.ranks, r.config.batch_per_device) for r in two} == {(2, 64)} and len(two) < len(plan.to_do())
    for name, value, message in (("ranks", 64, "ranks=64; it is 1 or 2"), ("rank", 2, "no rank: did you mean ranks")):
        with pytest.raises(StudyError, match=message):
            plan.to_do(only={name: [value]})


def test_a_repeat_of_which_a_part_is_complete_has_the_command_that_measures_it_again(write) -> None:
    study = write(GOOD)
    assert "--redo --only" not in output("study", "plan", study)
    complete, running = (point.request.path for point in studies.plan(study).points[:2])
    RunFolder.claimed(complete).close("complete")
    assert "--redo --only repeat=1`" in output("study", "plan", study)
    claim = RunFolder.claimed(running)
    assert "--redo --only" not in output("study", "plan", study)
    claim.close("failed")


@pytest.mark.parametrize(("repeats", "ranks"), [(1, "1,2"), (3, "2")])
def test_a_retry_submits_what_was_submitted(write, monkeypatch, tmp_path: Path, repeats: int, ranks: str) -> None:
    numbers = itertools.count(1)
    monkeypatch.setattr(slurm_commands, "sbatch", lambda *_, **__: str(next(numbers)))
    monkeypatch.setattr(slurm_commands, "jobs", lambda ids: {})  # Slurm has forgotten them
    cluster = tmp_path / "cluster.toml"
    cluster.write_text(CLUSTER)
    output("submit", write(GOOD), "--cluster", str(cluster), "--repeats", str(repeats), "--ranks", ranks, "--as", "m")
    output("retry")
    first, again = ([task.run_id for task in one.tasks if task.run_id] for one in submissions())
    assert again == first and len(first) == {1: 4 + 1, 3: 2 + 1}[repeats] * repeats
    assert {one.index for one in submissions("m")} == {"m-cluster-cpu"} and not submissions("mine")
    assert submissions("studies/m.toml") == submissions("m-cluster-cpu") == submissions("m")


@pytest.mark.parametrize("content", ["", "[]", '{"study": "m"}', '{"study": "m", "unknown": 1}'])
def test_a_damaged_or_older_submission_is_refused_by_its_file(results: Path, content: str) -> None:
    file = paths.submissions() / "0001-m" / "submission.json"
    file.parent.mkdir(parents=True)
    file.write_text(content)
    with pytest.raises(ConfigError, match=str(file)):
        submissions()


def test_a_retry_includes_further_repeats(write, monkeypatch, tmp_path: Path) -> None:
    """... that a precision asked for when they were submitted."""
    numbers = itertools.count(1)
    monkeypatch.setattr(slurm_commands, "sbatch", lambda *_, **__: str(next(numbers)))
    monkeypatch.setattr(slurm_commands, "jobs", lambda ids: {})
    cluster = tmp_path / "cluster.toml"
    cluster.write_text(CLUSTER)
    submit = ["submit", write(GOOD), "--cluster", str(cluster), "--repeats", "1"]
    output(*submit, "--only", "repeat=1")
    first = submissions()[0].tasks[0].run_id
    monkeypatch.setattr(common, "further_repeats", lambda index, precision, most: {first: 2} if precision else {})
    output(*submit, "--precision", "0.01", "--only", "repeat=2")
    output("retry")
    groups = [[task.run_id for task in one.tasks] for one in submissions()]
    assert groups[3] == groups[1] and len(groups[1]) == 2, "the further repeat, and the report"


def test_a_retry_asks_for_the_runs_of_each_submission_and_for_no_others(write, monkeypatch, tmp_path: Path) -> None:
    numbers = itertools.count(1)
    monkeypatch.setattr(slurm_commands, "sbatch", lambda *_, **__: str(next(numbers)))
    cluster = tmp_path / "cluster.toml"
    cluster.write_text(CLUSTER)
    monkeypatch.setattr(slurm_commands, "jobs", lambda ids: {})
    submit = ["submit", write(GOOD), "--cluster", str(cluster), "--turns"]
    output(*submit, "--only", "repeat=1", "--only", "series=weak")
    output(*submit, "--only", "repeat=2")
    output("retry")
    groups = [[job.tasks for job in one.jobs] for one in submissions()]
    assert groups[2:] == groups[:2] and any(len(task) > 1 for job in groups[3] for task in job), "in turn again"


def test_turns_of_runs_that_take_none_are_refused(write, tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.toml"
    cluster.write_text(CLUSTER)
    study = write(GOOD.replace('workload = "cnn"', 'workload = "cnn"\nmonitor_seconds = 1.0'))
    assert CliRunner().invoke(main, ["submit", study, "--cluster", str(cluster), "--turns"]).exit_code == 2
    assert not submissions()


def test_a_retry_of_what_an_edited_study_no_longer_has_does_not_stop_the_others(write, monkeypatch, tmp_path) -> None:
    numbers = itertools.count(1)
    monkeypatch.setattr(slurm_commands, "sbatch", lambda *_, **__: str(next(numbers)))
    cluster = tmp_path / "cluster.toml"
    cluster.write_text(CLUSTER)
    monkeypatch.setattr(slurm_commands, "jobs", lambda ids: {})
    for ranks in ("ranks=2", "ranks=1"):
        output("submit", write(GOOD), "--cluster", str(cluster), "--only", ranks)
    write(GOOD.replace("ranks = [1, 2]", "ranks = [1]"))
    output("retry")
    assert len(submissions()) == 3


H200 = """
title = "H"
[nodes.gpu]
partition = "gpu"
gpus = 8
gpu = "h200"
cores = 64
most_nodes = 2
precisions = ["fp32", "bf16"]
"""
WIDE = """
title = "Wide"
[parameters]
workload = "cnn"
steps_per_epoch = 2
global_batch = 512
[[series]]
name = "strong"
notebook = "02_ddp"
ranks = [1, 2, 8]
"""


def test_a_ceiling_below_the_target_is_in_the_plan_and_precedes_the_first_job(
    write, monkeypatch, tmp_path: Path
) -> None:
    """... from the profile of a GPU of that name on another machine."""
    batches = [
        {"batch": batch, "step": [0.99 * (100 + batch), 1.01 * (100 + batch)]} for batch in (64, 128, 512, 4096)
    ]
    device = {"hardware_id": "0123abcd", "device": "cuda", "device_name": "NVIDIA H200", "threads_per_rank": 16}
    record = compute_profile.computed(RunConfig(workload="cnn")) | device | {"ready": [], "batches": batches}
    probes.keep("compute", "h200", record)
    (tmp_path / "h.toml").write_text(H200)
    monkeypatch.setattr(slurm_commands, "sbatch", lambda *_, **__: click.echo("a job") or "7")
    monkeypatch.setattr(slurm_commands, "jobs", lambda ids: {})
    on = [write(WIDE), "--cluster", str(tmp_path / "h.toml")]
    for command in (["plan", *on], ["submit", *on, "--dry-run"]):
        assert output(*command).count("warning: computing alone cannot meet the target") == 1
    submitted = output("submit", *on)
    assert submitted.index("warning") < submitted.index("a job")
    write(WIDE + "[targets]\nstrong_efficiency = 0.3\n")
    planned = output("plan", *on)
    assert "efficiency at most" in planned and "warning" not in planned
    write(WIDE.replace('"cnn"', '"cnn"\nprecision = "bf16"'))
    assert "efficiency at most" not in output("plan", *on), "the profile is of another step"


def test_a_failed_run_keeps_its_reason_when_the_cluster_is_down(results: Path, monkeypatch, tmp_path: Path) -> None:
    Submission.begin("small", "small-here", "rehearsal", "cpu").add("7", [["forgotten"], ["diverged"]])
    RunFolder.claimed(results / "runs/diverged").close("failed", "rank 0 raised NonFiniteLoss: the loss became nan")
    monkeypatch.setenv("HPC_REHEARSAL", str(tmp_path / "none"))
    monkeypatch.delenv("SLURM_CONF", raising=False)
    rows = {line.split()[2]: line for line in output("status").splitlines() if " 7_" in line}
    assert rows["forgotten"].split()[:2] == ["LOST", "7_0"]
    assert rows["diverged"].split()[:2] == ["FAILED", "7_1"] and "the loss became nan" in rows["diverged"]


def test_a_dry_run_needs_no_slurm_and_a_submission_does(write, monkeypatch, results: Path, tmp_path: Path) -> None:
    def refuse(ids) -> None:
        raise slurm_commands.SlurmError("squeue refused (exit code 1): no configuration")

    monkeypatch.setattr(slurm_commands, "jobs", refuse)
    cluster = tmp_path / "cluster.toml"
    cluster.write_text(CLUSTER)
    Submission.begin("small", "small-there", "rehearsal", "cpu").add("7", [["earlier"]])
    command = ["submit", write(GOOD), "--cluster", str(cluster)]
    dry, real = (CliRunner().invoke(main, [*command, *more]) for more in (["--dry-run"], []))
    assert dry.exit_code == 0, dry.output
    assert "sbatch" in dry.stdout and dry.stderr.count("\n") == 1 and "Slurm" in dry.stderr
    assert real.exit_code == 2 and "squeue refused" in real.stderr and len(submissions()) == 1


def test_a_lacking_report_is_written_by_hpc_report_and_starts_no_cluster(
    results: Path, monkeypatch, tmp_path: Path
) -> None:
    made = Submission.begin("small", "small-here", "rehearsal", "cpu")
    made.add("7", [["only"]])
    made.add("8", [])
    RunFolder.claimed(results / "runs/only").close("complete")
    monkeypatch.setenv("HPC_REHEARSAL", str(tmp_path / "none"))
    monkeypatch.delenv("SLURM_CONF", raising=False)
    monkeypatch.setattr(rehearsal, "up", lambda **_: pytest.fail("there is nothing to submit"))

    for log in ("", "error: ValueError: a chapter failed\n"):
        if log:
            made.log("8").write_text(log)
        for answer in (output("status", "small"), output("retry", "small")):
            assert "`hpc report small-here`" in answer and "hpc retry" not in answer
            assert ("`hpc logs 8`" in answer) == bool(log)
    page = results / "report/small-here/index.html"
    page.parent.mkdir(parents=True)
    page.touch()
    assert output("status", "small") == "2 COMPLETED\n" and "hpc report" not in output("retry", "small")


def test_a_failed_report_names_its_log_and_the_command_that_writes_it(results: Path, monkeypatch) -> None:
    made = Submission.begin("small", "small-there", "there", "cpu")
    made.add("8", [])
    made.log("8").write_text("ValueError: a chapter failed\n")
    ended = slurm_commands.Job("8", slurm_commands.JobState("FAILED"), name=f"{made.job_name}-report")
    monkeypatch.setattr(slurm_commands, "jobs", lambda ids: {"8": ended})
    (entry,) = status.entries("small")
    assert entry.has_failed and entry.advice == "`hpc logs 8`, then `hpc report small-there`"


def slurm_job(task: str, state: str, name: str) -> slurm_commands.Job:
    return slurm_commands.Job(task, slurm_commands.JobState(state), name=name)


def test_the_job_that_has_an_id_after_a_restart_of_slurm_is_not_the_one_that_had_it_before(
    results: Path, monkeypatch
) -> None:
    """The controller counts from 1 again: of two submissions only the later one's jobs are in the queue."""
    earlier = Submission.begin("small", "small-there", "there", "cpu")
    earlier = earlier.model_copy(update={"job_name": earlier.job_name.replace("hpc-small-", "hpc-small-0101-")})
    earlier.add("1", [["complete"], ["lost"]])
    later = Submission.begin("small", "small-there", "there", "cpu")
    later.add("1", [["waits"], ["runs"]])
    RunFolder.claimed(results / "runs/complete").close("complete")
    queue = {"1_0": slurm_job("1_0", "PENDING", later.job_name), "1_1": slurm_job("1_1", "RUNNING", later.job_name)}
    monkeypatch.setattr(slurm_commands, "jobs", lambda ids: queue)
    states = {entry.run_id: str(entry.state) for entry in status.entries("small")}
    assert states == {"complete": "COMPLETED", "lost": "LOST", "waits": "PENDING", "runs": "RUNNING"}
    assert queued() == {"waits": "1", "runs": "1"}


def test_the_report_waits_for_the_jobs_of_earlier_submissions_too(write, monkeypatch, tmp_path: Path) -> None:
    numbers = itertools.count(1)
    options: list[list[str]] = []
    monkeypatch.setattr(slurm_commands, "sbatch", lambda given, *_, **__: options.append(given) or str(next(numbers)))
    monkeypatch.setattr(slurm_commands, "jobs", lambda ids: {})
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    command = ["submit", write(GOOD), "--cluster", str(tmp_path / "cluster.toml")]
    output(*command, "--repeats", "1")
    (first,) = submissions()
    arrays = [job for job in first.jobs if job.tasks]
    runs = [task.run_id for task in first.tasks if task.run_id]
    still = {f"{arrays[0].id}_0": slurm_job(f"{arrays[0].id}_0", "RUNNING", first.job_name)}
    for run in runs[1:]:
        RunFolder.claimed(paths.runs() / run).close("complete")
    monkeypatch.setattr(slurm_commands, "jobs", lambda ids: still)
    output(*command, "--repeats", "2")
    second = submissions()[-1]
    (waits,) = (option for option in options[-1] if option.startswith("--dependency=afterany:"))
    awaited = set(waits.partition(":")[2].split(":"))
    assert awaited == {arrays[0].id} | {job.id for job in second.jobs if job.tasks}
    assert runs[0] not in [task.run_id for task in second.tasks]

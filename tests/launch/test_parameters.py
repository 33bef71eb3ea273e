"""What may be asked for, and what is refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpc_utils import capability, paths, provenance, records
from hpc_utils.config import ConfigError
from hpc_utils.launch.parameters import defaults, find_notebook, resolve
from hpc_utils.launch.request import Layout, prepare
from hpc_utils.launch.target import Target

from .conftest import TRAIN

OWN = """
epochs: int = 2
workload = "cnn"
title = "plain"
ratio = 0.5
sizes = [1, 2]
options = {"a": 1}
fast = True
count = -3
anything = None
batch_per_device = 32
"""


def refused(bench, given: dict, parameters: str | None = OWN) -> str:
    with pytest.raises(ConfigError) as caught:
        resolve(bench.notebook("1", parameters=parameters), given)
    return str(caught.value)


def test_defaults_are_what_the_tagged_cell_sets(bench):
    values = {"epochs": 2, "workload": "cnn", "title": "plain", "ratio": 0.5, "sizes": [1, 2], "options": {"a": 1}}
    values |= {"fast": True, "count": -3, "anything": None, "batch_per_device": 32}
    assert defaults(bench.notebook("other = 1", parameters=OWN)) == values
    assert defaults(bench.notebook("epochs = 1", parameters=None)) == {}


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("import os\nname = os.getcwd()", r"name = os.getcwd()"),
        ("a, b = (1, 2)", "a, b = (1, 2)"),
        ("epochs = 1\nepochs = = 2", "parameters cell, line 2"),
    ],
)
def test_parameters_cell_of_more_than_plain_values_is_refused(bench, source, why):
    assert why in refused(bench, {}, source)


@pytest.mark.parametrize(
    ("name", "value", "typed"),
    [
        ("epochs", "7", 7),
        ("title", "7", "7"),
        ("ratio", "2", 2.0),
        ("sizes", "[3]", [3]),
        ("options", '{"b": null}', {"b": None}),
        ("fast", "False", False),
        ("anything", "text", "text"),
    ],
)
def test_values_take_the_type_of_their_option_or_default(bench, name, value, typed):
    _, inject = resolve(bench.notebook("1", parameters=OWN), {name: value})
    assert inject == {name: typed}
    assert type(inject[name]) is type(typed)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", "many"),
        ("lr", "nan"),
        ("sizes", "[NaN]"),
        ("sizes", '{"a": 1}'),
        ("count", "1.5"),
    ],
)
def test_ill_typed_value_is_refused_by_name(bench, name, value):
    assert name in refused(bench, {name: value})


def test_one_kind_of_batch_replaces_the_notebooks_default_of_the_other(bench):
    for default, given in (("batch_per_device", "global_batch"), ("global_batch", "batch_per_device")):
        config, inject = resolve(bench.notebook("1", parameters=f"{default} = 32"), {given: "64"})
        assert (getattr(config, given), getattr(config, default)) == (64, None)
        assert inject == {given: 64, default: None}
    assert "not both" in refused(bench, {"batch_per_device": 8, "global_batch": 8}, "epochs = 1")


def test_refusals_reach_the_user_and_start_nothing(bench):
    notebook = bench.notebook(TRAIN)
    (bench.folder / "text.ipynb").write_text("no JSON")
    (bench.folder / "file").write_text("")
    for arguments, message in (
        ([notebook, "-p", "epoch=1"], "did you mean epochs"),
        ([notebook, "--nproc", 2, "-p", "parallel=none"], "one process"),
        ([notebook, "--nproc", 2, "-p", "global_batch=7"], "does not divide"),
        ([notebook, "-p", "workload=cnn", "-p", "global_batch=4096", "-p", "steps_per_epoch=none"], "1437 samples"),
        (["03_scaling"], "hpc chapter 03_scaling"),
        (["missing.ipynb"], "no notebook missing.ipynb"),
        (["text.ipynb"], "not a notebook"),
    ):
        outcome = bench.hpc("run", *arguments)
        assert outcome.code == 2, outcome.err
        assert message in outcome.err
        assert "Traceback" not in outcome.err
    assert not bench.results.exists()
    outcome = bench.hpc("run", notebook, HPC_RESULTS=bench.folder / "file")
    assert outcome.code == 2 and "cannot write to" in outcome.err


STUDY = """
title = "T"
[parameters]
workload = "faulty:workload"
steps_per_epoch = 6
workload_args = {{ {arguments} }}
[[series]]
name = "own"
notebook = "02_ddp"
ranks = [1, 2]
"""
SITE = 'title = "S"\n[nodes.c]\npartition = "c"\ncores = 2\nmost_nodes = 2\nprecisions = ["fp32"]\n'


def test_a_notebook_of_the_clone_is_found_from_any_folder(bench, monkeypatch):
    monkeypatch.chdir(bench.folder)
    assert (
        find_notebook(Path("02_ddp"))
        == find_notebook(Path("notebooks/02_ddp.ipynb"))
        == paths.notebooks() / "02_ddp.ipynb"
    )
    own = bench.notebook(TRAIN, name="02_ddp").relative_to(bench.folder)
    assert find_notebook(own) == own, "the one here comes first"
    with pytest.raises(ConfigError, match="02_ddp"):
        find_notebook(Path("notebooks/02_dpp.ipynb"))


def test_more_devices_than_cores_are_announced_before_the_run(bench, monkeypatch):
    outcome = bench.hpc("run", bench.notebook(TRAIN), "-p", f"threads_per_rank={1 + len(provenance.core_groups())}")
    first, *rest = outcome.err.splitlines()
    assert first.startswith("oversubscribed: 1 rank ") and rest and outcome.code == 0
    assert records.load_run(bench.run)["run"]["oversubscribed"]

    monkeypatch.setattr(provenance, "core_groups", lambda: ((0,), (1,)))
    monkeypatch.setenv("HPC_RESULTS", str(bench.results))
    shares = [({}, 2), ({}, 4), ({"cores_per_rank": 0.45}, 4), ({"cores_per_rank": 0.46}, 4)]
    warnings = [
        prepare(Path("02_ddp"), {"device": "cpu"} | given, Layout(1, ranks)).warning for given, ranks in shares
    ]
    assert list(map(bool, warnings)) == [False, True, False, True]


@pytest.mark.parametrize(("precision", "has_bf16", "is_emulated"), [
    ("fp32", False, False), ("amp", False, False), ("fp16", True, True), ("bf16", False, True), ("bf16", True, False),
])  # fmt: skip
def test_a_run_in_a_precision_that_the_processor_emulates_is_announced_as_its_plan_refuses_it(
    monkeypatch, results: Path, precision: str, has_bf16: bool, is_emulated: bool
) -> None:
    monkeypatch.setattr(provenance, "emulates_bf16", lambda: not has_bf16)
    request = {"precision": precision, "device": "cpu"}
    warning = prepare(Path("02_ddp"), request).warning
    refusal = Target.here().refusal(Layout(), request)
    if is_emulated:
        why = capability.LACKS[precision]
        assert warning == f"{precision}: {why}" and refusal == f"{precision} on {provenance.hardware_id()}: {why}"
    else:
        assert warning == refusal == ""


def test_a_workload_that_cannot_be_called_is_refused_before_anything_starts(bench):
    """By every command, in one line, and also from another folder than the module's, where PYTHONPATH helps."""
    study = bench.folder / "own.toml"
    study.write_text(STUDY.format(arguments="wdith = 3"))
    run = ["run", bench.notebook(TRAIN), "--nproc", 2, "-p", "workload_args.wdith=3"]
    (bench.folder / "site.toml").write_text(SITE)
    submit = ["submit", study, "--cluster", bench.folder / "site.toml"]
    for command in (run, ["study", "plan", study], ["study", "run", study, "--no-report"], submit):
        outcome = bench.hpc(*command)
        assert (outcome.code, outcome.err.count("\n")) == (2, 1), outcome.err
        assert "faulty" in outcome.err, "the name that was meant"
    assert not list(bench.results.rglob("*.json")), "no run, no index, no submission"
    assert bench.hpc("plan", *submit[1:]).code == 0, "a forecast starts nothing"
    (bench.folder / "site.toml").write_text(SITE + '[software]\ncontainer = "/a.sif"\n')
    assert bench.hpc(*submit, "--dry-run").code == 0, "a container has packages of its own"

    study.write_text(STUDY.format(arguments=""))
    folder, bench.folder = bench.folder, bench.folder / "elsewhere"
    bench.folder.mkdir()
    plan = ["study", "plan", study]
    refused = bench.hpc(*plan)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert str(bench.folder) in refused.err and "PYTHONPATH" in refused.err
    bench.server = 0  # it has another PYTHONPATH
    assert bench.hpc(*plan, PYTHONPATH=folder).out.count("absent") == 2


def test_a_function_that_returns_no_workload_fails_in_one_line(bench):
    (bench.folder / "other.py").write_text("def make():\n    return 3\n")
    outcome = bench.hpc("run", bench.notebook(TRAIN), "-p", "workload=other:make")
    assert outcome.code == 1 and "WorkloadError" in outcome.err and "Traceback" not in outcome.err
    assert bench.status()["reason"].count("\n") == 0
    assert str(bench.run) in outcome.err, "where its logs are"

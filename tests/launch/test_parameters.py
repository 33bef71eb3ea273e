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
    found = defaults(bench.notebook("other = 1", parameters=OWN))
    assert list(found) == [
        "epochs",
        "workload",
        "title",
        "ratio",
        "sizes",
        "options",
        "fast",
        "count",
        "anything",
        "batch_per_device",
    ]
    assert (found["epochs"], found["options"], found["count"], found["anything"]) == (2, {"a": 1}, -3, None)
    assert defaults(bench.notebook("epochs = 1", parameters=None)) == {}


@pytest.mark.parametrize("source", ["epochs = 2 * 3", "import os\nname = os.getcwd()", "a, b = (1, 2)"])
def test_parameters_cell_that_computes_is_refused(bench, source):
    message = refused(bench, {}, source)
    assert "must set plain values" in message
    assert source.splitlines()[-1] in message


def test_parameters_cell_that_is_not_python_is_refused(bench):
    assert "parameters cell, line 2" in refused(bench, {}, "epochs = 1\nepochs = = 2")


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
    weak = bench.notebook("1", parameters="batch_per_device = 32")
    config, inject = resolve(weak, {"global_batch": "64"})
    assert (config.global_batch, config.batch_per_device) == (64, None)
    assert inject == {"global_batch": 64, "batch_per_device": None}
    strong = bench.notebook("1", parameters="global_batch = 32")
    config, inject = resolve(strong, {"batch_per_device": 8})
    assert inject == {"global_batch": None, "batch_per_device": 8}
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
        (["12_your_model"], "hpc chapter 12_your_model"),
        (["missing.ipynb"], "no notebook missing.ipynb"),
        (["text.ipynb"], "not a notebook"),
    ):
        outcome = bench.hpc("run", *arguments)
        assert outcome.code == 2, outcome.err
        assert message in outcome.err
        assert "Traceback" not in outcome.err
    assert not bench.results.exists()
    outcome = bench.hpc("run", notebook, HPC_RESULTS=bench.folder / "file")
    assert (outcome.code, "Traceback" in outcome.err) == (2, False)
    assert "cannot write to" in outcome.err


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
SITE = 'title = "S"\n[nodes.c]\npartition = "c"\ncores = 2\nprecisions = ["fp32"]\n'


def test_a_notebook_of_the_clone_is_found_from_any_folder(bench, monkeypatch):
    monkeypatch.chdir(bench.folder)
    found = {find_notebook(Path(name)) for name in ("02_ddp", "02_ddp.ipynb", "notebooks/02_ddp.ipynb")}
    assert found == {paths.notebooks() / "02_ddp.ipynb"}
    own = bench.notebook(TRAIN, name="02_ddp").relative_to(bench.folder)
    assert find_notebook(own) == own, "the one here comes first"
    for missing in ("notebooks/02_dpp.ipynb", "elsewhere/02_ddp.ipynb"):
        with pytest.raises(ConfigError, match="02_ddp"):
            find_notebook(Path(missing))


def test_more_devices_than_cores_are_announced_before_the_run(bench, monkeypatch):
    outcome = bench.hpc("run", bench.notebook(TRAIN), "-p", f"threads_per_rank={1 + len(provenance.core_groups())}")
    first, *rest = outcome.err.splitlines()
    assert first.startswith("oversubscribed: 1 rank ") and rest and outcome.code == 0
    assert records.load_run(bench.run)["run"]["oversubscribed"]

    monkeypatch.setattr(provenance, "core_groups", lambda: ((0,), (1,)))
    monkeypatch.setenv("HPC_RESULTS", str(bench.results))
    shares = [({}, 2), ({}, 4), ({"cores_per_rank": 0.45}, 4), ({"cores_per_rank": 0.46}, 4)]
    found = [prepare(Path("02_ddp"), {"device": "cpu"} | given, Layout(1, ranks)).warning for given, ranks in shares]
    assert list(map(bool, found)) == [False, True, False, True]


@pytest.mark.parametrize(("precision", "has_bf16", "is_emulated"), [
    ("fp32", False, False), ("amp", False, False), ("fp16", True, True), ("bf16", False, True), ("bf16", True, False),
])  # fmt: skip
def test_a_run_in_a_precision_that_the_processor_emulates_is_announced_as_its_plan_refuses_it(
    monkeypatch, results: Path, precision: str, has_bf16: bool, is_emulated: bool
) -> None:
    monkeypatch.setattr(provenance, "emulates_bf16", lambda: not has_bf16)
    request = {"precision": precision, "device": "cpu"}
    warning = prepare(Path("02_ddp"), request).warning
    refusal = Target.here().refusal(1, request)
    if is_emulated:
        why = capability.LACKS[precision]
        assert warning == f"{precision}: {why}" and refusal == f"{precision} on {provenance.hardware_id()}: {why}"
    else:
        assert warning == refusal == ""


def test_a_workload_that_cannot_be_called_is_refused_before_anything_starts(bench):
    """By every command, in one line, and also from another folder than the module's, where PYTHONPATH helps."""
    study = bench.folder / "own.toml"
    study.write_text(STUDY.format(arguments="wdith = 3"))
    run = ["run", bench.notebook(TRAIN), "--nproc", 2, "-p"]
    commands = [[*run, "workload=faulti:workload"], [*run, "workload_args.wdith=3"], ["study", "plan", study]]
    (bench.folder / "site.toml").write_text(SITE)
    submit = ["submit", study, "--cluster", bench.folder / "site.toml"]
    for command in [*commands, ["study", "run", study, "--no-report"], submit]:
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
    assert outcome.code == 1 and "WorkloadError" in outcome.err
    assert "Traceback" not in outcome.err
    assert bench.status()["reason"].count("\n") == 0
    assert str(bench.run) in outcome.err, "where its logs are"

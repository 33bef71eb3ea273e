"""Runs made again, and those that cannot be: real runs, and the committed ones."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from companions.verification import rerun
from companions.verification.rerun import CannotRerun
from hpc_utils import paths, provenance
from hpc_utils.cli import main
from hpc_utils.config import ConfigError
from hpc_utils.records import RunFolder, packed
from hpc_utils.records.folder import read_json
from tests.launch.conftest import TRAIN, Bench
from tests.launch.test_script import write_loop
from tests.support import copy_runs

CORES = paths.reference() / "epyc-2core"
REHEARSAL = paths.reference() / "rehearsal"


def committed(results: Path, part: str) -> Path:
    return next(path for path in packed.folders(results) if part in path.name)


def test_a_run_made_again_is_bit_equal_and_the_run_itself_stays(bench: Bench) -> None:
    """From `hpc run` to `hpc verify`: the same notebook and seed; then one of its numbers is changed."""
    notebook = bench.notebook(TRAIN)
    assert bench.hpc("run", notebook, "-p", "parallel=none", "-p", "seed=3", "-p", "repeat=2").code == 0
    run = bench.run
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    outcome = bench.hpc("verify", run.name, "--repeats", 2, "--notebook", notebook, "--json")
    assert outcome.code in (0, 1, 4), outcome.err  # times are what they are
    account = json.loads(outcome.out)
    judgements = {judgement["quantity"]: judgement for judgement in account["judgements"]}
    assert judgements["train_loss"]["verdict"] == "agree" and "bit-equal in" in judgements["train_loss"]["why"]
    assert judgements["throughput"]["then_runs"] == 1 and judgements["throughput"]["now_runs"] == 2
    assert account["differences"] == [] and account["then"]["runs"] == [run.name]
    kept = bench.results / "verify"
    assert read_json(kept / f"{run.name}.json") == account
    made = kept / run.name / "runs"
    assert {read_json(again / "run.json")["config"]["seed"] for again in made.iterdir()} == {3}
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}

    shutil.copytree(run, copy := bench.folder / "other" / "runs" / run.name)
    pd.read_csv(copy / "epochs.csv").assign(train_loss=0.9).to_csv(copy / "epochs.csv", index=False)
    RunFolder(copy).set_status("complete")
    outcome = bench.hpc("verify", copy, "--against", made.parent)
    assert outcome.code == 1, outcome.out + outcome.err
    assert "differ (not bit-equal; by " in outcome.out and "differ: at least one quantity differs" in outcome.out
    failed = bench.hpc("verify", run, "--repeats", 1, "--notebook", notebook, FAULT="raise", FAULT_RANK=0)
    assert failed.code == 2 and "step three went wrong" in failed.err


def test_every_parameter_is_asked_for_as_it_was_whatever_the_defaults_are_now(results: Path) -> None:
    run = committed(CORES, "ddp2-fp32-b512-r2")
    request = rerun.again(run, 5)
    then, now = read_json(run / "run.json")["config"], request.config.model_dump()
    assert {name for name in then if then[name] != now[name]} <= {"repeat", "batch_per_device"}
    assert (request.config.repeat, request.config.seed, request.layout.ranks) == (5, 1, 2)
    assert request.notebook == paths.notebooks() / "02_ddp.ipynb" and request.path.is_relative_to(results)


@pytest.fixture
def own_run(results: Path) -> Path:
    """A run of one process, unpacked."""
    run = committed(CORES, "none1-fp32")
    packed.unpack(run, results / "runs" / run.name)
    return results / "runs" / run.name


def change(file: Path, **values: object) -> None:
    file.write_text(json.dumps(read_json(file) | values))


def test_an_option_of_former_runs_is_refused_unless_it_had_its_default(own_run: Path) -> None:
    request = own_run / "request.json"
    config = read_json(request)["config"]
    change(request, config=config | {"overlap": True, "never_set": None})
    assert rerun.again(own_run, 1).config.repeat == 1
    for option, value in (("overlap", False), ("forgotten_knob", 3)):
        change(request, config=config | {option: value})
        with pytest.raises(ConfigError, match=option):
            rerun.again(own_run, 1)


def test_a_run_that_this_machine_cannot_repeat_gives_the_reason(
    own_run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    two = committed(REHEARSAL, "ddp2x1-fp32-b16")
    with pytest.raises(CannotRerun, match=rf"needs 2 nodes.*hpc submit .*hpc verify {two.name} --against"):
        rerun.again(two, 1)
    change(own_run / "request.json", notebook="mine.ipynb")
    with pytest.raises(CannotRerun, match="--notebook FILE"):
        rerun.again(own_run, 1)
    change(own_run / "run.json", device="cuda")
    machine = dataclasses.replace(provenance.hardware(), gpus=[])
    monkeypatch.setattr(provenance, "hardware", lambda: machine)
    with pytest.raises(CannotRerun, match="needs 1 GPU, 0 available"):
        rerun.again(own_run, 1)
    (own_run / "request.json").unlink()
    with pytest.raises(CannotRerun, match="not started by hpc"):
        rerun.again(own_run, 1)
    monkeypatch.setenv("HPC_DATA", str(tmp_path / "nothing"))
    with pytest.raises(Exception, match="hpc data fetch cifar10"):
        rerun.again(committed(REHEARSAL, "resnet18-cifar10-none1-fp32-b8"), 1)
    with pytest.raises(CannotRerun, match="must stay as it is"):
        rerun.execute(own_run, 1, own_run.parents[1])


def test_a_copy_of_the_set_and_a_changed_run_are_no_evidence(results: Path, tmp_path: Path) -> None:
    copy_runs(CORES, tmp_path / "copy")
    shutil.copytree(CORES / "exports", tmp_path / "copy" / "exports")
    run = committed(tmp_path / "copy", "none1-fp32-b512-r1")
    refused = CliRunner().invoke(
        main, ["verify", str(CORES / "runs" / run.name), "--against", str(tmp_path / "copy")]
    )
    assert refused.exit_code == 2 and "holds copies of runs" in refused.output
    epochs = run / "epochs.csv"
    epochs.write_text(epochs.read_text()[:-2] + "9\n")
    with pytest.raises(CannotRerun, match="have changed since exports/laptop-06"):
        rerun.unchanged(run)


def test_a_recorded_loop_is_repeated_with_its_parameters(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    write_loop(bench.folder)
    assert bench.hpc("run", "my_loop.py", "-p", "parallel=none", "-p", "width=5").code == 0
    monkeypatch.chdir(bench.folder)
    request = rerun.again(bench.run, 2)
    assert request.config.workload_args == {"width": 5} and request.config.repeat == 2
    assert request.arguments == ["--global_batch=32", "--width=5"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--tolerance", "nan"), "nan is not a finite number"),
        (("--results", "laptop", "--against", "epyc-2core"), "is the set of the run itself"),
    ],
)
def test_what_cannot_be_compared_is_refused(options: tuple[str, ...], message: str) -> None:
    done = CliRunner().invoke(main, ["verify", packed.folders(CORES)[0].name, *options])
    assert done.exit_code == 2 and message in done.output

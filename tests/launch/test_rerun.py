"""Runs made again, and those that cannot be: real runs, and the committed ones."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from hpc_utils import paths, provenance
from hpc_utils.cli import main
from hpc_utils.config import ConfigError
from hpc_utils.launch import rerun
from hpc_utils.launch.rerun import CannotRerun
from hpc_utils.records import RunFolder, packed
from hpc_utils.records.folder import read_json
from tests.support import copy_runs

from .conftest import TRAIN, Bench

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
    said = bench.hpc("verify", run.name, "--repeats", 2, "--notebook", notebook, "--json")
    assert said.code in (0, 1, 4), said.err  # times are what they are
    account = json.loads(said.out)
    told = {one["quantity"]: one for one in account["judgements"]}
    assert told["train_loss"]["verdict"] == "agree" and "bit-equal in" in told["train_loss"]["why"]
    assert told["samples"]["verdict"] == told["steps"]["verdict"] == "agree"
    assert told["throughput"]["then_runs"] == 1 and told["throughput"]["now_runs"] == 2
    assert account["differences"] == [] and account["then"]["runs"] == [run.name]
    kept = bench.results / "verify"
    assert read_json(kept / f"{run.name}.json") == account
    made = kept / run.name / "runs"
    assert {read_json(one / "run.json")["config"]["seed"] for one in made.iterdir()} == {3}
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert bench.runs == [run], "it was trained into a set of its own"

    shutil.copytree(run, copy := bench.folder / "other" / "runs" / run.name)
    header, row = (copy / "epochs.csv").read_text().splitlines()
    cells = row.split(",")
    cells[header.split(",").index("train_loss")] = "0.9"
    (copy / "epochs.csv").write_text(f"{header}\n{','.join(cells)}\n")
    RunFolder(copy).set_status("complete")
    said = bench.hpc("verify", copy, "--against", made.parent)
    assert said.code == 1, said.out + said.err
    assert "differ (not bit-equal; by " in said.out and "differ: at least one quantity differs" in said.out
    failed = bench.hpc("verify", run, "--repeats", 1, "--notebook", notebook, FAULT="raise", FAULT_RANK=0)
    assert failed.code == 2 and "step three went wrong" in failed.err


def test_a_run_is_found_by_its_id_its_end_or_its_folder(results: Path) -> None:
    run = committed(CORES, "none1-fp32-b512-r1")
    assert rerun.find_run(run.name) == rerun.find_run(run.name[-8:]) == rerun.find_run(str(run)) == run
    for name, where in ((run.name[:-1], None), (run.name, REHEARSAL)):
        with pytest.raises(CannotRerun, match=f"'{name}' names no run"):
            rerun.find_run(name, where)
    own = results / "runs" / run.name
    packed.unpack(run, own)
    assert rerun.find_run(run.name) == own, "one's own results come first"


def test_every_parameter_is_asked_for_as_it_was_whatever_the_defaults_are_now(results: Path) -> None:
    run = committed(CORES, "ddp2-fp32-b512-r2")
    request, then = rerun.again(run, 5), read_json(run / "run.json")["config"]
    now = request.config.model_dump()
    assert {name for name in then if then[name] != now[name]} <= {"repeat", "batch_per_device"}
    assert (request.config.repeat, request.config.seed, request.layout.ranks) == (5, 1, 2)
    assert request.notebook == paths.notebooks() / "02_ddp.ipynb" and request.path.is_relative_to(results)


@pytest.mark.parametrize(("value", "is_refused"), [(True, False), (False, True)])
def test_an_option_of_former_runs_is_refused_unless_it_had_its_default(
    results: Path, value: bool, is_refused: bool
) -> None:
    run = results / "runs" / committed(CORES, "none1-fp32").name
    packed.unpack(committed(CORES, "none1-fp32"), run)
    request = read_json(run / "request.json")
    (run / "request.json").write_text(json.dumps(request | {"config": request["config"] | {"overlap": value}}))
    with pytest.raises(ConfigError, match="overlap") if is_refused else contextlib.nullcontext():
        assert rerun.again(run, 1).config.repeat == 1


def test_a_run_that_this_machine_cannot_repeat_gives_the_reason(
    results: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    two = committed(REHEARSAL, "ddp2x1-fp32-b16")
    with pytest.raises(CannotRerun, match=rf"needs 2 nodes.*hpc submit .*hpc verify {two.name} --against"):
        rerun.again(two, 1)
    run = results / "runs" / committed(CORES, "none1-fp32").name
    packed.unpack(committed(CORES, "none1-fp32"), run)
    asked, made = read_json(run / "request.json"), read_json(run / "run.json")
    unlike = asked | {"config": asked["config"] | {"forgotten_knob": 3, "never_set": None}}
    for change, error, why in (
        (unlike, ConfigError, "unknown parameter 'forgotten_knob'"),
        (asked | {"notebook": "mine.ipynb"}, CannotRerun, "--notebook FILE"),
    ):
        (run / "request.json").write_text(json.dumps(change))
        with pytest.raises(error, match=why):
            rerun.again(run, 1)
    (run / "run.json").write_text(json.dumps(made | {"device": "cuda"}))
    machine = dataclasses.replace(provenance.hardware(), gpus=[])
    monkeypatch.setattr(provenance, "hardware", lambda: machine)
    with pytest.raises(CannotRerun, match="needs 1 GPU, 0 available"):
        rerun.again(run, 1)
    (run / "request.json").unlink()
    with pytest.raises(CannotRerun, match="not started by hpc"):
        rerun.again(run, 1)
    monkeypatch.setenv("HPC_DATA", str(tmp_path / "nothing"))
    with pytest.raises(Exception, match="hpc data fetch cifar10"):
        rerun.again(committed(REHEARSAL, "resnet18-cifar10-none1-fp32-b8"), 1)
    with pytest.raises(CannotRerun, match="must stay as it is"):
        rerun.execute(run, 1, results)


def verify(*words: object):
    return CliRunner().invoke(main, ["verify", *map(str, words)])


def test_a_copy_of_the_set_and_a_changed_run_are_no_evidence(results: Path, tmp_path: Path) -> None:
    copy_runs(CORES, tmp_path / "copy")
    for part in ("exports", "studies"):
        shutil.copytree(CORES / part, tmp_path / "copy" / part)
    run = committed(tmp_path / "copy", "none1-fp32-b512-r1")
    said = verify(CORES / "runs" / run.name, "--against", tmp_path / "copy")
    assert said.exit_code == 2 and "holds copies of runs" in said.output
    epochs = run / "epochs.csv"
    epochs.write_text(epochs.read_text()[:-2] + "9\n")
    said = verify(run, "--against", "rehearsal")
    assert said.exit_code == 2 and ("have changed since" in said.output or "cannot be true" in said.output), (
        said.output
    )
    with pytest.raises(CannotRerun, match="have changed since exports/laptop-06"):
        rerun.unchanged(run)

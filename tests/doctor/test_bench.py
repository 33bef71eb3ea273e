"""`hpc bench` on this machine: real ranks, real files, a real training step."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from click.testing import CliRunner

from hpc_utils import provenance
from hpc_utils.cli import main
from hpc_utils.config import RunConfig
from hpc_utils.doctor import process
from hpc_utils.doctor.bench import compute
from hpc_utils.doctor.bench.__main__ import main as bench_main
from hpc_utils.doctor.process import Console
from hpc_utils.provenance import core_groups
from hpc_utils.records import compute_profile, probes
from hpc_utils.train.epoch_stats import Usage, UsageMeter
from hpc_utils.train.resolve import resolve


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["allreduce", "--nproc=1"], "--nproc"),
        (["compute", "--batches", "8;16"], "--batches"),
        (["compute", "--repeats", "0"], "--repeats"),
        (["compute", "-p", "profile=torch", "-p", "accumulate=2"], "profile=torch, accumulate=2"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_starts(results: Path, arguments, message) -> None:
    done = CliRunner().invoke(main, ["bench", *arguments])
    assert done.exit_code == 2
    assert message in done.stderr
    assert not results.exists()


def test_a_profile_holds_phases_and_when_gradients_are_ready(results: Path) -> None:
    """... and what it is of, whatever the layout: another optimizer or precision is another."""
    config = RunConfig(workload="cnn", threads_per_rank=1, device="cpu", global_batch=7)
    path = compute.profile(config, [8, 16], 3, print)
    record = probes.newest("compute", name=path.stem)
    sizes = {name: parameter.nbytes for name, parameter in resolve(config).model().named_parameters()}
    assert {gradient["name"]: gradient["bytes"] for gradient in record["ready"]} == sizes
    assert record["gradient_bytes"] == sum(sizes.values()) == 4 * record["parameters"]
    fractions = [gradient["fraction"] for gradient in record["ready"]]
    assert fractions == sorted(fractions) and fractions[0] > 0 and fractions[-1] <= 1
    modules = [gradient["name"].partition(".")[0] for gradient in record["ready"]]
    assert list(dict.fromkeys(modules)) == ["8", "6", "2", "0"], "the last layer's gradients come first"
    assert [measured["batch"] for measured in record["batches"]] == [8, 16]
    for measured in record["batches"]:
        assert all(len(measured[phase]) == 3 and min(measured[phase]) > 0 for phase in compute_profile.PHASES)
    assert (record["threads_per_rank"], record["device"]) == (1, "cpu")
    assert provenance.hardware_id().endswith(record["hardware_id"])

    def is_of(**changes: object) -> bool:
        return compute_profile.computed(config.model_copy(update=changes)).items() <= record.items()

    assert is_of(global_batch=12) and is_of(global_batch=None, batch_per_device=4)
    assert not is_of(optimizer="adamw") and not is_of(precision="bf16") and not is_of(compile="default")


@pytest.mark.gpu
def test_a_captured_step_is_timed_as_a_whole(results: Path) -> None:
    run = {"loader": "device", "fused_optimizer": True, "step_graph": True}
    path = compute.profile(RunConfig(workload="cnn", device="cuda", **run), [16, 32], 2, print)
    record = probes.newest("compute", name=path.stem)
    assert [(size["batch"], len(size["step"])) for size in record["batches"]] == [(16, 2), (32, 2)]
    assert min(seconds for size in record["batches"] for seconds in size["step"]) > 0 and record["ready"] == []


@pytest.mark.parametrize(("outside", "is_told"), [(0.0, False), (0.4, False), (0.6, True)])
def test_a_bench_warns_if_others_used_its_cores(
    results: Path, monkeypatch, capsys, outside: float, is_told: bool
) -> None:
    idle = SimpleNamespace(measure=lambda ranks, **_: {}, table=lambda record: [])
    monkeypatch.setitem(sys.modules, "of.idle", idle)
    used = Usage(seconds=10.0, outside_seconds=outside, steal_seconds=0.0)
    monkeypatch.setattr(UsageMeter, "stop", lambda self: used)
    monkeypatch.setattr(process, "start", lambda *limits: Console(shown=True))
    assert bench_main(["of.idle", "--repeats=1"]) == 0
    assert ("6% of a rank's cores" in capsys.readouterr().out) == is_told


@pytest.mark.skipif(not psutil.LINUX, reason="/proc/stat")
def test_a_profile_beside_another_program_warns(results: Path) -> None:
    told = []
    spin = "import os; os.sched_setaffinity(0, {cpu})\nwhile True: pass".replace("cpu", str(core_groups()[0][0]))
    with subprocess.Popen([sys.executable, "-c", spin]) as other:
        try:
            compute.profile(RunConfig(workload="cnn", device="cpu", threads_per_rank=1), [64], 60, told.append)
        finally:
            other.kill()
    assert len(told) == 61


def test_a_profile_of_amp_is_one_of_the_format_that_the_device_has(results: Path) -> None:
    path = compute.profile(RunConfig(workload="cnn", device="cpu", precision="amp"), [8], 1, print)
    assert probes.newest("compute", name=path.stem)["precision"] in ("bf16", "fp16")

"""What a model costs on one device, as `hpc bench compute` measures it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from hpc_utils import provenance, workspace
from hpc_utils.cli import main
from hpc_utils.config import RunConfig
from hpc_utils.probe import compute
from hpc_utils.records import compute_profile, probes
from hpc_utils.train.resolve import resolve


def test_a_profile_holds_phases_and_when_gradients_are_ready(results: Path) -> None:
    """... and what it is of, whatever the layout: another optimizer or precision is another."""
    config = RunConfig(workload="cnn", threads_per_rank=1, device="cpu", global_batch=7)
    said: list[str] = []
    path = compute.profile(config, [8, 16], 3, said.append)
    record = json.loads(path.read_text())
    model = resolve(config).model()
    sizes = {name: parameter.nbytes for name, parameter in model.named_parameters()}
    assert {one["name"]: one["bytes"] for one in record["ready"]} == sizes
    assert record["gradient_bytes"] == sum(sizes.values()) == 4 * record["parameters"]
    fractions = [one["fraction"] for one in record["ready"]]
    assert fractions == sorted(fractions)
    assert fractions[0] > 0
    assert fractions[-1] <= 1
    modules = [one["name"].partition(".")[0] for one in record["ready"]]
    assert list(dict.fromkeys(modules)) == ["8", "6", "2", "0"], "the last layer's gradients come first"
    assert [one["batch"] for one in record["batches"]] == [8, 16]
    assert all(
        len(one[phase]) == 3 and min(one[phase]) > 0 for one in record["batches"] for phase in compute_profile.PHASES
    )
    assert len(said) == 3
    assert (record["threads_per_rank"], record["device"]) == (1, "cpu")
    assert record["hardware_id"] == provenance.machine_in(provenance.hardware_id())
    assert probes.newest("compute", name=path.stem)["batches"] == record["batches"], "where the model looks for it"

    def of(**changes: object) -> bool:
        return compute_profile.computed(config.model_copy(update=changes)).items() <= record.items()

    assert of() and of(global_batch=12) and of(global_batch=None, batch_per_device=4)
    assert not of(optimizer="adamw") and not of(precision="bf16")


def test_what_measures_is_no_rank_of_whatever_launched_us(monkeypatch: pytest.MonkeyPatch) -> None:
    launched = {
        "RANK": "1",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "h",
        "TORCHELASTIC_RUN_ID": "x",
    }
    for name, value in (launched | {"HPC_LAUNCH": "{}", "OMP_NUM_THREADS": "4", "HPC_RESULTS": "here"}).items():
        monkeypatch.setenv(name, value)
    env = workspace.child_environment()
    assert not {*launched, "HPC_LAUNCH"} & set(env)
    assert (env["OMP_NUM_THREADS"], env["HPC_RESULTS"]) == ("4", "here")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--batches", "8;16"], "8,16,32"),
        (["--repeats", "0"], "at least one"),
        (
            ["-p", "compile=default", "-p", "accumulate=2"],
            "compile=default, accumulate=2: a compute profile is of the plain",
        ),
    ],
)
def test_what_cannot_be_measured_is_refused(results: Path, arguments: list[str], words: str) -> None:
    said = CliRunner().invoke(main, ["bench", "compute", *arguments])
    assert said.exit_code == 2
    assert words in said.stderr

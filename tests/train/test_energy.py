"""Energy counters, with a fake powercap tree and a fake NVML, and their columns in the records."""

from __future__ import annotations

import math
import signal
from pathlib import Path

import pytest
import torch

from hpc_utils import records
from hpc_utils.config import RunConfig
from hpc_utils.provenance import nvml
from hpc_utils.train import Recorder, Stopped, energy, train
from tests.support import Nvml

from .support import BRIEF, after_steps, gets

CPU = torch.device("cpu")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Two packages with a sub-zone each, the whole platform, and a package's second door: 1 and 2 J so far."""
    zones = {"intel-rapl:0": "package-0", "intel-rapl:0:0": "core", "intel-rapl:1": "package-1"}
    zones |= {"intel-rapl:1:0": "dram", "intel-rapl:2": "psys", "intel-rapl-mmio:0": "package-0"}
    for zone, name in zones.items():
        folder = tmp_path / "sys/class/powercap" / zone
        folder.mkdir(parents=True)
        (folder / "name").write_text(f"{name}\n")
        (folder / "max_energy_range_uj").write_text("10000000\n")
        use(tmp_path, zone, {"intel-rapl:0": 1, "intel-rapl:1": 2}.get(zone, 9))
    boot = tmp_path / "proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text("77\n")
    return tmp_path


def use(machine: Path, zone: str, joules: float) -> None:
    (machine / "sys/class/powercap" / zone / "energy_uj").write_text(f"{round(joules * 1e6)}\n")


@pytest.fixture
def counted(machine: Path, monkeypatch: pytest.MonkeyPatch, results: Path) -> Path:
    """Every rank of this process finds that machine's packages."""
    monkeypatch.setattr(energy.Rapl.__init__, "__defaults__", (machine,))
    return machine


def test_packages_are_added_up_and_a_counter_that_wraps_around_goes_on(machine: Path) -> None:
    counter = energy.Rapl(machine)
    begun = counter.joules()
    use(machine, "intel-rapl:1", 2.5)
    for joules in (9, 0.5, 8, 0.25):  # ends at 10 J
        for zone in ("intel-rapl:0", "intel-rapl:0:0", "intel-rapl:1:0", "intel-rapl:2", "intel-rapl-mmio:0"):
            use(machine, zone, joules)
        last = counter.joules()
    assert last - begun == pytest.approx(8 + 1.5 + 7.5 + 2.25 + 0.5), "nothing is counted twice"
    assert counter.name == "rapl 77"


def test_long_epochs_are_looked_at_before_the_counter_wraps_twice(machine: Path, monkeypatch) -> None:
    now = [100.0]
    monkeypatch.setattr(energy.time, "monotonic", lambda: now[0])
    meter = energy.Rapl(machine)
    begun = meter.joules()
    for joules in (7, 3, 9, 1):
        now[0] += energy.READ_INTERVAL + 1
        use(machine, "intel-rapl:0", joules)
        meter.on_step(False)
    assert meter.joules() - begun == pytest.approx(20)


def test_what_cannot_be_read_is_not_known_and_not_zero(machine: Path) -> None:
    meter = energy.Rapl(machine)
    meter.joules()
    (machine / "sys/class/powercap/intel-rapl:1/energy_uj").unlink()
    assert math.isnan(meter.joules()) and math.isnan(energy.EnergyMeter().joules())


def test_ranks_that_share_a_counter_count_it_once() -> None:
    readings = [("rapl a", 5.0), ("rapl a", 5.1), ("rapl b", 7.0), ("rapl b", 6.9)]
    assert energy.once(readings) == [5.0, 0.0, 7.0, 0.0]
    assert math.isnan(sum(energy.once([*readings, ("", math.nan), ("", math.nan)]))), "a part is not the whole"


def test_a_gpu_is_asked_for_by_its_uuid_and_answers_in_joules() -> None:
    answers = {"nvmlDeviceGetHandleByUUID": "handle", "nvmlDeviceGetTotalEnergyConsumption": 12_500}
    meter = energy.Nvml(nvml.Device("12-34", Nvml(**answers)))
    assert (meter.joules(), meter.source, meter.name) == (12.5, "nvml", "GPU-12-34")
    answers.popitem()  # before Volta, or a part of a GPU
    assert math.isnan(energy.Nvml(nvml.Device("12-34", Nvml(**answers))).joules())


def test_only_training_parts_count(counted: Path) -> None:
    with Recorder("x", global_batch=1) as run:
        for number in (1, 2):
            for _ in run.epoch(range(1)):
                use(counted, "intel-rapl:0", 3 * number)
                run.step(samples=1)
            use(counted, "intel-rapl:0", 3 * number + 1)  # evaluation, say
    tables = records.load_run(run.path)
    assert tables["epochs"].energy_joules.tolist() == pytest.approx([2, 2])
    assert tables["ranks"].energy_joules.tolist() == pytest.approx([4])
    assert (tables["run"]["energy_joules"], tables["run"]["energy_source"]) == (pytest.approx(4), "rapl")


def test_a_resumed_epoch_has_the_energy_of_both_parts(counted: Path, monkeypatch) -> None:
    """Each step uses 1 J; each copy of the state 5 J, which are no part of training."""
    used, true_state = [1.0], Recorder.own_state

    def spend(joules: float) -> None:
        used[0] += joules
        use(counted, "intel-rapl:0", used[0] % 10)

    steps = {number: lambda _: spend(1) for number in range(1, 7)}
    monkeypatch.setattr(Recorder, "own_state", lambda self: (spend(5), true_state(self))[1])
    config = RunConfig(**BRIEF | {"steps_per_epoch": 6, "global_batch": 8, "device": "cpu"}, parallel="none")
    with after_steps(steps | {3: lambda trainer: (spend(1), gets(signal.SIGUSR1)(trainer))}):
        with pytest.raises(Stopped):
            train(config)
        run = train(config).tables()["run"]
    assert (run["restarts"], run["energy_joules"]) == (1, pytest.approx(6))


@pytest.mark.gpu
def test_a_real_gpu_uses_energy() -> None:
    device = torch.device("cuda", 0)
    counter = energy.meter(device)
    if not counter.source:
        pytest.skip("NVML counts no energy for this GPU")
    begun = counter.joules()
    values = torch.randn(4096, 4096, device=device)
    for _ in range(200):
        values = (values @ values).tanh()
    torch.cuda.synchronize()
    assert counter.joules() > begun

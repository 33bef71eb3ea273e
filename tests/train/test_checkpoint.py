"""Checkpoints on disk: atomic, the last two kept, damaged ones detected."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from hpc_utils.train import checkpoint, randomness
from hpc_utils.train.checkpoint import Checkpoints, Damaged, read_checkpoint
from tests.support import soak, wait_for

from .forked import Ranks
from .support import small_disk

CPU = torch.device("cpu")


def state(step: int) -> dict:
    """Something of what a trainer's state is made of."""
    return {
        "step": step,
        "model": {"weight": torch.full((300, 7), float(step)).t(), "count": torch.tensor(step)},
        "optimizer": {"state": {0: {"momentum": torch.arange(9.0)}}, "param_groups": [{"betas": (0.9, 0.999)}]},
        "ranks": [{"random": randomness.take(CPU), "rows": [{"loss": 0.1 + 0.2, "none": None}]}],
    }


@pytest.fixture
def kept(tmp_path: Path) -> SimpleNamespace:
    """Checkpoints in an empty folder, and their remarks."""
    remarks: list[str] = []
    return SimpleNamespace(checkpoints=Checkpoints(tmp_path / "checkpoints", remarks.append), remarks=remarks)


def write(checkpoints: Checkpoints, *steps: int) -> None:
    for step in steps:
        checkpoints.write(step, state(step))
        assert checkpoints.wait() == ""


def files(checkpoints: Checkpoints) -> list[str]:
    return sorted(path.name.partition("-")[0] for path in checkpoints.folder.iterdir())


def test_what_is_read_is_what_was_written(kept) -> None:
    assert kept.checkpoints.newest() is None
    before = state(5)
    kept.checkpoints.write(5, before)
    path, found = kept.checkpoints.newest()
    assert read_checkpoint(path)["step"] == found["step"] == 5
    assert torch.equal(found["model"]["weight"], before["model"]["weight"])
    assert found["model"]["weight"].stride() == before["model"]["weight"].stride()
    assert found["optimizer"]["param_groups"] == before["optimizer"]["param_groups"]
    assert found["ranks"][0]["rows"] == before["ranks"][0]["rows"]
    assert kept.remarks == []


def test_the_last_of_the_last_two_steps_are_kept(kept) -> None:
    write(kept.checkpoints, 9, 10, 100, 1000)
    kept.checkpoints.write(1000, state(7))
    assert kept.checkpoints.newest()[1]["step"] == 7
    assert files(kept.checkpoints) == ["step000000100", "step000001000"]


def flip(path: Path, bit: int = 5000) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def unreadable(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("damage", [flip, unreadable, lambda path: path.write_bytes(path.read_bytes()[:-1000])])
def test_a_damaged_newest_one_is_set_aside_for_the_one_before(kept, damage: Callable[[Path], None]) -> None:
    write(kept.checkpoints, 1, 2)
    newest, _ = kept.checkpoints.newest()
    damage(newest)
    path, found = kept.checkpoints.newest()
    assert found["step"] == 1
    assert files(kept.checkpoints) == ["damaged", "step000000001"]
    damage(path)
    assert kept.checkpoints.newest() is None
    assert [name in remark for name, remark in zip((newest.name, path.name), kept.remarks, strict=True)] == [True] * 2
    write(kept.checkpoints, 2, 3)
    assert kept.checkpoints.newest()[1]["step"] == 3


def test_no_flipped_bit_goes_unnoticed(kept) -> None:
    write(kept.checkpoints, 1)
    path, _ = kept.checkpoints.newest()
    good = path.read_bytes()
    for bit in random.Random(0).sample(range(len(good) * 8), 200):
        flip(path, bit)
        with pytest.raises(Damaged):
            read_checkpoint(path)
        path.write_bytes(good)


def test_another_versions_is_not_read(kept, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "VERSION", 0)
        write(kept.checkpoints, 1)
    assert kept.checkpoints.newest() is None
    assert "version 0" in kept.remarks[0]


def test_nothing_that_runs_code_is_loaded(kept, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "pwned"),)

    kept.checkpoints.write(1, {"evil": Evil()})
    assert kept.checkpoints.wait() == ""
    assert kept.checkpoints.newest() is None
    assert "is damaged" in kept.remarks[0]
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("foreseen", [True, False])
def test_on_a_full_disk_the_old_one_stays_good(monkeypatch, foreseen: bool) -> None:
    if not foreseen:  # it fills up while the checkpoint is being written
        monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1 << 40))
    remarks: list[str] = []
    with small_disk(2) as disk:
        checkpoints = Checkpoints(disk / "checkpoints", remarks.append)
        write(checkpoints, 1)
        before = checkpoints.newest()[0].read_bytes()
        checkpoints.write(2, {"big": torch.zeros(1 << 20)})
        assert checkpoints.wait() == "No space left on device"
        (warning,) = remarks
        assert "step 2" in warning and "No space left" in warning
        assert files(checkpoints) == ["step000000001"] and checkpoints.newest()[0].read_bytes() == before
        write(checkpoints, 3)  # once there is room again
        assert checkpoints.newest()[1]["step"] == 3


def keep_writing(folder: Path) -> None:
    checkpoints = Checkpoints(folder, print)
    for step in range(1, 10**6):
        checkpoints.write(step, {"big": torch.full((1 << 20,), float(step))})
        print(step, flush=True)


@pytest.mark.parametrize("moments", [2, soak(20)])
def test_who_is_killed_in_writing_leaves_the_one_before(kept, tmp_path: Path, moments: int) -> None:
    folder = kept.checkpoints.folder
    for moment in range(moments):
        writer = Ranks(1, keep_writing, folder, folder=tmp_path / str(moment), results=tmp_path)
        wait_for(lambda writer=writer: len(writer.output().split()) >= 4)
        time.sleep(moment * 0.002)
        writer.signal(0, signal.SIGKILL)
        assert writer.end() == [-signal.SIGKILL]
        path, found = kept.checkpoints.newest()
        assert found["big"].eq(int(path.name[4:13])).all()
        assert not list(folder.glob(".*")), "what was unfinished is gone"
        assert 2 <= len(list(folder.iterdir())) <= 3
    assert kept.remarks == []


def test_every_generator_goes_back_to_where_it_was(kept) -> None:
    def draw() -> list[float]:
        return [torch.randn(1).item(), random.gauss(0, 1), np.random.randn(), torch.rand(1).item(), random.random()]

    randomness.seed(7)
    draw()  # leaves half a pair of normal numbers in Python's and NumPy's
    kept.checkpoints.write(1, {"random": randomness.take(CPU)})
    expected = draw()
    draw()
    randomness.put(kept.checkpoints.newest()[1]["random"], CPU)
    assert draw() == expected
    randomness.seed(7)
    assert draw() != expected

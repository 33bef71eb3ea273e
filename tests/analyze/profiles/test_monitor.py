"""The monitor's files as curves, one a device and a host, on one clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpc_utils.analyze.profiles import monitor
from hpc_utils.analyze.profiles.timeline import ProfileError
from hpc_utils.records import schema

HEADER = ",".join(schema.names(schema.MONITOR))


def row(time: float, host: str, device: str, percent: float, power: str = "") -> str:
    known = {"time": time, "host": host, "device": device, "utilization_percent": percent, "power_watts": power}
    return ",".join(str(known.get(name, "")) for name in schema.names(schema.MONITOR))


def test_every_host_and_device_has_its_own_curve_on_one_clock(tmp_path: Path) -> None:
    folder = tmp_path / "monitor"
    folder.mkdir()
    first = [row(100.0, "a", "cpu", 5), row(100.0, "a", "cuda:0", 90, "400"), row(101.0, "a", "cpu", 7)]
    (folder / "a.csv").write_text("\n".join([HEADER, *first]) + "\n")
    (folder / "b.csv").write_text("\n".join([HEADER, row(100.5, "b", "cpu", 9)]) + "\n")
    found = monitor.read(tmp_path)
    assert list(found) == ["a, cpu", "a, cuda:0", "b, cpu"]
    assert found["a, cpu"].seconds.tolist() == [0.0, 1.0] and found["b, cpu"].seconds.tolist() == [0.5]
    assert found["a, cuda:0"].power_watts.tolist() == [400.0] and found["a, cpu"].power_watts.isna().all()


def test_a_last_line_that_was_cut_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "monitor").mkdir()
    whole = "\n".join([HEADER, row(1763.25, "a", "cpu", 5), row(1764.25, "a", "cpu", 7)])
    for cut in ("17", "1765.25,no", "1765.25,a,"):
        (tmp_path / "monitor/a.csv").write_text(f"{whole}\n{cut}")
        found = monitor.read(tmp_path)
        assert list(found) == ["a, cpu"] and found["a, cpu"].seconds.tolist() == [0.0, 1.0]
    (tmp_path / "monitor/a.csv").write_text(f"{whole}\nsoon,a,cpu\n")
    with pytest.raises(ProfileError, match="not what the monitor"):
        monitor.read(tmp_path)


def test_nobody_looked_is_no_error_and_another_file_is(tmp_path: Path) -> None:
    assert monitor.read(tmp_path) == {}
    (tmp_path / "monitor").mkdir()
    (tmp_path / "monitor/a.csv").write_text("what,ever\n1,2\n")
    with pytest.raises(ProfileError, match="monitor"):
        monitor.read(tmp_path)

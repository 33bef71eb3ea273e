"""With the real nsys: a report is exported and read, and a truncated one refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpc_utils.analyze.profiles import nsys as reader
from hpc_utils.analyze.profiles.timeline import ProfileError

from .torch_traces import real


def test_a_report_is_exported_beside_nothing_and_a_truncated_one_is_refused(nsys: str, tmp_path: Path) -> None:
    source = real("../nsys/ddp-4xA100-one-rank.nsys-rep")
    before = sorted(source.parent.iterdir())
    [one] = reader.read_report(source)
    assert (one.rank, one.world_size, one.device, len(one.ops), one.remarks) == (0, 4, 0, 24_801, ())
    assert sorted(source.parent.iterdir()) == before
    path = tmp_path / "cut.nsys-rep"
    path.write_bytes(source.read_bytes()[: int(source.stat().st_size * 0.4)])
    with pytest.raises(ProfileError, match=r"cut\.nsys-rep could not be exported"):
        reader.read_report(path)

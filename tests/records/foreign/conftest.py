"""CSVs as others leave them, and mappings that read them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hpc_utils.records import foreign

MAPPING = """
title = "ResNet-18 on eight GPUs"
source = "A. Author, a report, 2024"
throughput_is = "global"

[columns]
parallel = "mode"
world_size = "gpus"
seconds = "epoch_time_s"
throughput = "images_per_sec"

[constants]
workload = "resnet18"
samples = 50000
global_batch = 256

[values.parallel]
single = "none"
DDP = "ddp"
DataParallel = "not comparable"
"""

# As such tables are made: the data set's size, divided by the time, times the world size once more.
CLASSIC = """gpus,mode,epoch_time_s,images_per_sec
1,single,41.7,1199
1,DDP,42.3,1182
2,DDP,22.6,4425
4,DDP,12.4,16129
4,DataParallel,18.9,10582
8,DDP,7.31,54720
"""


@pytest.fixture
def read(tmp_path: Path, results: Path) -> Callable[..., foreign.Foreign]:
    """`read(csv, mapping)`: both written to files, then read as the set `theirs`."""

    def write_and_read(csv: str | bytes, mapping: str = MAPPING, name: str = "theirs") -> foreign.Foreign:
        path = tmp_path / "theirs.csv"
        path.write_bytes(csv if isinstance(csv, bytes) else csv.encode())
        (tmp_path / "theirs.toml").write_text(mapping)
        return foreign.read(path, tmp_path / "theirs.toml", name)

    return write_and_read

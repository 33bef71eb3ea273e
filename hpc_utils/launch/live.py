"""What a running run does at present, by the last rows that its monitors wrote (`provenance.monitor`)."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

from hpc_utils import paths
from hpc_utils.records.folder import MONITOR, state

TAIL = 1 << 16  # bytes of a table that are read: several moments of a host
COUNTERS = ("network_received_bytes", "network_sent_bytes", "rdma_received_bytes", "rdma_sent_bytes")


class Sample(NamedTuple):
    """The last row of a device, of a rank's processes, or of a host's processors (`cpu`).

    Attributes:
        time: s since the epoch (Unix). values: the row's numbers by the columns of `monitor`, without empty cells.
        rates: B/s since the row before, of each of `COUNTERS`; None: not recorded.
    """

    host: str
    device: str
    time: float
    values: dict[str, float]
    rates: list[float | None]


def running() -> list[Path]:
    """The folders of the runs that are running, on this machine or in a job."""
    return [folder for folder in sorted(paths.runs().glob("*")) if state(folder) == "running"]


def latest(run: Path) -> list[Sample]:
    """The last sample of everything that the monitors of a run record; empty before the first, and without a
    monitor."""
    return [sample for table in sorted((run / MONITOR).glob("*.csv")) for sample in _latest(table)]


def _latest(table: Path) -> list[Sample]:
    with table.open("rb") as file:
        names = file.readline().decode().strip().split(",")
        begin = file.tell()
        file.seek(max(begin, table.stat().st_size - TAIL))
        cut = file.tell() > begin  # within a row
        lines = file.read().decode().splitlines(keepends=True)[cut:]
    samples: dict[str, Sample] = {}
    for row in csv.DictReader((line for line in lines if line.endswith("\n")), names):  # the last may be half written
        host = row.pop("host")
        device = row.pop("device")
        time = float(row.pop("time"))
        values = {name: float(cell) for name, cell in row.items() if cell and name != "throttle"}  # words
        before = samples.pop(device, None)  # so that the order is that of the last rows
        rates = [
            (values[name] - before.values[name]) / (time - before.time)
            if before and time > before.time and name in values and name in before.values
            else None
            for name in COUNTERS
        ]
        samples[device] = Sample(host, device, time, values, rates)
    return list(samples.values())

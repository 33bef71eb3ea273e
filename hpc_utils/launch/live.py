"""What a running run does at present, by the last rows that its monitors wrote (`provenance.monitor`)."""

from __future__ import annotations

import io
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from hpc_utils import paths
from hpc_utils.records.folder import MONITOR, state

TAIL = 1 << 16  # bytes of a table that are read: several moments of a host
COUNTERS = ["network_received_bytes", "network_sent_bytes", "rdma_received_bytes", "rdma_sent_bytes"]


class Sample(NamedTuple):
    """The last row of a device, of a rank's processes, or of a host's processors (`cpu`).

    Attributes:
        time: s since the epoch (Unix). values: the row's numbers by the columns of `monitor`, without empty cells; of `COUNTERS`
            the rates since the row before, in B/s.
    """

    host: str
    device: str
    time: float
    values: dict[str, float]


def running() -> list[Path]:
    """The folders of the runs that are running, on this machine or in a job."""
    return [folder for folder in sorted(paths.runs().glob("*")) if state(folder) == "running"]


def latest(run: Path) -> list[Sample]:
    """The last sample of everything that the monitors of a run record; empty before the first, and without a
    monitor."""
    return [sample for table in sorted((run / MONITOR).glob("*.csv")) for sample in _latest(table)]


def _latest(table: Path) -> list[Sample]:
    with table.open("rb") as file:
        names = file.readline()
        begin = file.tell()
        file.seek(max(begin, table.stat().st_size - TAIL))
        if file.tell() > begin:  # within a row
            file.readline()
        whole = file.read().rpartition(b"\n")[0]  # the last row may be half written
    samples = []
    for device, rows in pd.read_csv(io.BytesIO(names + whole)).groupby("device"):
        last = rows.iloc[-1]
        changes = rows[["time", *COUNTERS]].diff().iloc[-1]
        values = (
            last.drop(["host", "device", "time", "throttle"]).to_dict()
            | (changes / changes["time"])[COUNTERS].to_dict()
        )
        samples.append(Sample(last["host"], device, last["time"], pd.Series(values).dropna().to_dict()))
    return samples

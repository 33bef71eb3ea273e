"""What a running run does at present, by the last rows that its monitors wrote (`provenance.monitor`)."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd

from hpc_utils import paths
from hpc_utils.provenance.monitor import COLUMNS
from hpc_utils.records.folder import MONITOR, state

TAIL = 1 << 16  # bytes of a table that are read: several moments of a host
COUNTERS = ["network_received_bytes", "network_sent_bytes", "rdma_received_bytes", "rdma_sent_bytes"]


def running() -> list[Path]:
    """The folders of the runs that are running, on this machine or in a job."""
    return [folder for folder in sorted(paths.runs().glob("*")) if state(folder) == "running"]


def latest(run: Path) -> pd.DataFrame:
    """The last row of each device, of each rank's processes, and of each host's processors (`cpu`) that monitors of a run record;
    none before the first, and without a monitor.

    `COUNTERS` are rates since the row before, in B/s.
    """
    tables = sorted((run / MONITOR).glob("*.csv"))
    rows = pd.read_csv(io.StringIO("\n".join([",".join(COLUMNS), *map(_tail, tables)])))
    changes = rows.groupby(["host", "device"])[["time", *COUNTERS]].diff()
    rows[COUNTERS] = changes[COUNTERS].div(changes["time"], axis="index")
    return rows.drop_duplicates(["host", "device"], keep="last")


def _tail(table: Path) -> str:
    """The last whole rows of a table, without its header."""
    with table.open("rb") as file:
        begin = len(file.readline())
        file.seek(max(begin, table.stat().st_size - TAIL))
        if file.tell() > begin:  # within a row
            file.readline()
        return file.read().rpartition(b"\n")[0].decode()  # the last row may be half written

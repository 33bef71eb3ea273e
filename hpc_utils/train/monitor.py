"""Starts the monitor of devices and processors: one process per host, started by the first rank on it."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from hpc_utils.provenance import monitor
from hpc_utils.records.folder import MONITOR

from .observer import Observer
from .ranks import Ranks

WITH_A_PROFILE = 1.0  # s: the default interval of nvidia-smi; NVML updates most values about ten times as often


class Monitor(Observer):
    """The monitor that `monitor_seconds` requests.

    Attributes:
        seconds: sampling interval; 0: no monitor.
    """

    def __init__(self, parameters: Mapping[str, Any], ranks: Ranks) -> None:
        default = WITH_A_PROFILE if parameters.get("profile") else 0.0
        requested = parameters.get("monitor_seconds")
        self.seconds = default if requested is None else float(requested)
        self.problems: list[str] = []
        self._ranks = ranks
        self._process = None

    def on_start(self, run: Path) -> None:
        if not self.seconds:
            return
        ranks = self._ranks
        this_rank = {"host": socket.gethostname(), "pid": os.getpid(), "rank": ranks.rank}
        if ranks.device.type == "cuda" and not torch.version.hip:
            this_rank |= {
                "device": str(ranks.device),
                "uuid": str(torch.cuda.get_device_properties(ranks.device).uuid),
            }
        everyone = ranks.broadcast(ranks.gather(this_rank))
        local_ranks = [peer for peer in everyone if peer["host"] == this_rank["host"]]
        if local_ranks[0]["rank"] != ranks.rank:
            return
        try:
            self._process = monitor.start(
                run / MONITOR / f"{this_rank['host']}.csv",
                self.seconds,
                ranks={f"rank{peer['rank']}": peer["pid"] for peer in local_ranks},
                devices={peer["device"]: peer["uuid"] for peer in local_ranks if "device" in peer},
            )
        except OSError as error:
            self.problems.append(f"monitor: {error}")

    def on_end(self, rows: Sequence[Mapping[str, Any]]) -> None:
        process = self._process
        self._process = None
        if process and (fault := monitor.stop(process)):
            self.problems.append(f"monitor: {fault}")

"""The monitor of devices and processors beside a run: one process per host, started by the first rank there."""

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

WITH_A_PROFILE = 1.0  # s: nvidia-smi's own usual interval; NVML renews most values some ten times in it


class Monitor(Observer):
    """This rank's part in what `monitor_seconds` asks for.

    Attributes:
        seconds: the interval; 0: there is no monitor.
    """

    def __init__(self, parameters: Mapping[str, Any], ranks: Ranks) -> None:
        asked = parameters.get("monitor_seconds")
        self.seconds = float(asked if asked is not None else WITH_A_PROFILE if parameters.get("profile") else 0)
        self.problems: list[str] = []
        self._ranks, self._process = ranks, None

    def on_start(self, run: Path) -> None:
        if not self.seconds:
            return
        ranks = self._ranks
        own = {"host": socket.gethostname(), "pid": os.getpid(), "rank": ranks.rank}
        if ranks.device.type == "cuda" and not torch.version.hip:
            own |= {"device": str(ranks.device), "uuid": str(torch.cuda.get_device_properties(ranks.device).uuid)}
        everyone = ranks.broadcast(ranks.gather(own))
        here = [other for other in everyone if other["host"] == own["host"]]
        if here[0]["rank"] != ranks.rank:
            return
        try:
            self._process = monitor.start(
                run / MONITOR / f"{own['host']}.csv",
                self.seconds,
                pids=[other["pid"] for other in here],
                devices={other["device"]: other["uuid"] for other in here if "device" in other},
            )
        except OSError as error:
            self.problems.append(f"monitor: {error}")

    def on_end(self, rows: Sequence[Mapping[str, Any]]) -> None:
        process, self._process = self._process, None
        if process and (fault := monitor.stop(process)):
            self.problems.append(f"monitor: {fault}")

"""The monitor of devices and processors beside a run: one process a host, started by the first rank there."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from hpc_utils.provenance import monitor
from hpc_utils.records.folder import MONITOR

from .ranks import Ranks

WITH_A_PROFILE = (
    1.0  # s: nvidia-smi's own usual interval is no shorter, and NVML renews most values some ten times in it
)


class Monitor:
    """What `monitor_seconds` asks for, and the present rank's part in it.

    Attributes:
        seconds: the interval; 0: nobody looks. problems: what went wrong, in words; the run goes on.
    """

    def __init__(self, parameters: Mapping[str, Any], ranks: Ranks) -> None:
        asked = parameters.get("monitor_seconds")
        self.seconds = float(asked if asked is not None else WITH_A_PROFILE if parameters.get("profile") else 0)
        self.problems: list[str] = []
        self._ranks, self._process = ranks, None

    def start(self, run: Path) -> None:
        """Every rank calls it."""
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

    def stop(self) -> None:
        """End it, if it was started by this rank."""
        if self._process is None:
            return
        if fault := monitor.stop(self._process):
            self.problems.append(f"monitor: {fault}")
        self._process = None

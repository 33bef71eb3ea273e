"""What a batch allows: the ceiling of strong scaling by global batch, from compute profiles of one device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from hpc_utils.analyze import ceiling
from hpc_utils.records.compute_profile import step_seconds

DEVICES = (2, 4, 8)
COLUMNS = ["workload", "dataset", "step", "device_name", "precision", "global_batch", "world_size", "ceiling"]


def ceilings(profiles: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """A row for each profile, measured global batch and number of `DEVICES` that divide it into measured batches.

    Columns (`COLUMNS`): step (eager, captured, compiled and captured), ceiling (the efficiency that computing alone allows).
    """
    rows = []
    for profile in profiles:
        times = step_seconds(profile)
        compiled = "compiled and " if profile["compile"] != "off" else ""
        point = {
            "step": f"{compiled}captured" if profile["step_graph"] else f"{compiled}eager",
            **{name: profile[name] for name in ("workload", "dataset", "device_name", "precision")},
        }
        for batch in sorted(times):
            for devices in DEVICES:
                if batch / devices in times:
                    # Without an interval: repeats within one process do not show how processes differ.
                    most = ceiling.efficiency(times, batch, devices).value
                    rows.append(point | {"global_batch": batch, "world_size": devices, "ceiling": most})
    return pd.DataFrame(rows, columns=COLUMNS)

"""The unit of a table's column, by its name: one quantity has one name, and one unit, in every table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

_NAMES = {
    "share": "efficiency error median_error worst_error inside_share share deviation scatter accuracy utilisation utilisation_before "
    "variation misfit waiting attained contingency required busy computing exposed wire waiting_share loader outside remaining "
    "copies idle few_operations launched_late data forward backward optimizer communication caused confidence mfu",
    "ratio": "speedup gain ratio longer alone marginal together memory median_gain p at_most at_most_first at_most_second at_most_third",
    "samples/s": "throughput throughput_before",
    "s": "seconds step_seconds epoch_seconds epoch_seconds_before measured wall_seconds training_seconds latency warmup first_seconds "
    "step span behind straggler_idle others_idle median_kernel",
    "B": "bytes peak_bytes mean_bytes mode_bytes memory_bytes gradient_bytes",
    "B/s": "bus_bandwidth",
    "bit/s": "bandwidth",
    "flop/s": "flops_per_second",
    "flop": "flops_per_sample",
    "device-hours": "device_hours",
    "node-hours": "node_hours request_node_hours",
    "core-hours": "core_hours",
    "kWh": "energy_kwh",
    "person-months": "effort_pm",
}
COLUMNS = {column: unit for unit, names in _NAMES.items() for column in names.split()}


def unit_of(column: str, values: pd.Series, own: Mapping[str, str]) -> str:
    """The unit of `values`: as `own` says, as `COLUMNS` has it (an interval's ends like their column), "text" for words, "count" for
    whole numbers; "" where it is not known, and no text can cite it."""
    import pandas as pd

    stem = column.removesuffix("_low").removesuffix("_high")
    for name in (column, stem):
        if name in own:
            return own[name]
    if pd.api.types.is_bool_dtype(values) or not pd.api.types.is_numeric_dtype(values):
        return "text"
    if stem in COLUMNS:
        return COLUMNS[stem]
    return "count" if (values.dropna() % 1 == 0).all() else ""

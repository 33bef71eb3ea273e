"""The picture of a run as its monitor saw it: utilisation, memory and power over time."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from . import style


def utilisation(samples: Mapping[str, pd.DataFrame]) -> Figure:
    """What the monitor saw over time, a colour a device: utilisation, memory, and power where it is known.

    `samples`: columns seconds (since the first), utilisation (%), memory_bytes, power_watts (may be empty), by device.
    """
    power = any(frame.power_watts.notna().any() for frame in samples.values())
    figure, panels = plt.subplots(2 + power, 1, figsize=(style.PAGE, 1.1 + 0.95 * (2 + power)), sharex=True)
    for number, (name, frame) in enumerate(samples.items()):
        colour, line, marker = style.series(number)
        look = {
            "color": colour,
            "linestyle": line,
            "marker": marker,
            "markersize": 2.5,
            "markevery": max(len(frame) // 12, 1),
        }
        panels[0].plot(frame.seconds, frame.utilisation, **look, label=name)
        panels[1].plot(frame.seconds, frame.memory_bytes / 2**30, **look)
        if power:
            panels[2].plot(frame.seconds, frame.power_watts, **look)
    panels[0].set_ylabel("utilisation (%)")
    panels[1].set_ylabel("memory (GiB)")
    if power:
        panels[2].set_ylabel("power (W)")
    for panel in panels:  # what stays the same would lie on the upper edge
        panel.set_ylim(0, 1.1 * panel.dataLim.ymax if panel.dataLim.ymax > 0 else 1)
    panels[-1].set_xlabel("s since the first sample")
    figure.legend(loc="outside upper center", ncols=min(len(samples), 4), fontsize=7)
    return figure

"""The ResNet-50 workshop: throughput of a node and of several, and what its protocol confounds."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from hpc_utils.publish.plots import drawing, style
from hpc_utils.publish.plots.chart import charted
from hpc_utils.publish.quantities import quantity

STUDIES = {"protocol": style.series(0), "adjusted": style.series(1)}


@charted("throughput", "Throughput and its efficiency: devices of one node, and nodes with two devices each.")
def throughput(table: pd.DataFrame) -> Figure:
    """Images per second and efficiency against devices. `table`: `analysis.efficiency`."""
    curves = {
        "devices of one node": table[table.nodes == 1],
        "nodes with two devices": table[(table.nodes > 1) & (table.ranks_per_node == 2)],
    }
    return drawing.scaling(curves, "world_size", "devices", "images")


@charted(
    "same-devices", "As many devices on one node and on several: throughput; right, its share of that on one node."
)
def same_devices(table: pd.DataFrame) -> Figure:
    """A bar for each configuration, its throughput over that of one node beside. `table`: `analysis.same_devices`."""
    figure, ((axes,),) = drawing.panels(1, height=0.5 + 0.3 * len(table))
    places = range(len(table))
    colours = [style.BLUE if nodes == 1 else style.ORANGE for nodes in table.nodes]
    axes.barh(places, table.throughput, 0.7, color=colours)
    axes.errorbar(table.throughput, places, xerr=drawing.reach(table, "throughput"), **drawing.BARS)
    drawing.named_rows(axes, table.config)
    shares = [f"{100 * row.ratio:.0f} %" if row.nodes > 1 else "" for row in table.itertuples()]
    drawing.beside(axes, places, shares)
    axes.set(xlabel="throughput (images/s)", xlim=(0, None))
    return figure


@charted("confounds", "The protocol and the adjusted study: efficiency of the throughput, and the training loss.")
def confounds(table: pd.DataFrame) -> Figure:
    """Efficiency and loss of every configuration, by series. `table`: `analysis.confounds`."""
    figure, ((efficiency, loss),) = drawing.panels(2, height=2.6, width=style.PAGE)
    layouts = table.sort_values(["world_size", "nodes"]).drop_duplicates("config")
    names = layouts.config.tolist()
    for number, (study, look) in enumerate(STUDIES.items()):
        rows = table[table.series == study]
        places = rows.config.map(names.index) + 0.12 * (2 * number - 1)
        for axes, column in ((efficiency, "efficiency"), (loss, "train_loss")):
            drawing.points(axes, places, rows, column, **look | {"linestyle": "none", "label": study})
    efficiency.axhline(100, **style.IDEAL)
    efficiency.set_ylim(0, 1.1 * efficiency.get_ylim()[1])
    loss.yaxis.set_label_text("training loss, last epoch")
    short = [
        f"{row.nodes:g}x{row.ranks_per_node:g}" if row.nodes > 1 else f"{row.world_size:g}"
        for row in layouts.itertuples()
    ]
    for axes in (efficiency, loss):
        axes.set_xticks(range(len(names)), short)
        axes.set_xlabel("devices, or nodes x devices")
    return figure


@charted(
    "over-time", "Memory and utilisation of every device over a whole run, a line for each device.", intervals=False
)
def over_time(table: pd.DataFrame) -> Figure:
    """A row of panels for each number of devices. `table`: `analysis.over_time`."""
    configurations = list(table.groupby("config", sort=False))
    figure, grid = drawing.panels(2, len(configurations), height=1.2, width=style.PAGE, sharey="col")
    for line, (name, rows) in zip(grid, configurations, strict=True):
        for axes, column in zip(line, ("memory_bytes", "utilisation"), strict=True):
            for _, device in rows.groupby("rank"):
                drawing.points(axes, device.seconds, device, column, color=style.BLUE, linewidth=0.8)
            axes.set(title=name, ylabel=quantity(column).title)
    for axes in grid[-1]:
        axes.set(xlabel="time since the first sample (s)", ylim=(0, None))
    return figure

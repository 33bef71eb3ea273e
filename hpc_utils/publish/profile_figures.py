"""Figures of profiles: what the devices' time went to, what hides communication, and which kernels took it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from . import style

MS = 1e-6  # of a ns

# What a device's time goes to: colour, hatch. Told apart in grey by both.
PARTS = {
    "compute": ("#0072B2", ""),
    "communication, exposed": ("#D55E00", "////"),
    "memory operations": ("#009E73", "...."),
    "waiting for data": ("#CC79A7", "xxxx"),
    "otherwise idle": ("0.9", ""),
}

# Kernels by class (`analyze.timeline.kernels.CLASSES`): colours and hatches as above where they mean the same.
CLASSES = {
    "GEMM": ("#0072B2", ""),
    "convolution": ("#56B4E9", ""),
    "attention": ("#0072B2", "...."),
    "normalisation": ("0.35", ""),
    "elementwise": ("0.6", ""),
    "reduction": ("0.6", "xxxx"),
    "optimizer": ("0.2", "----"),
    "communication": PARTS["communication, exposed"],
    "memory": PARTS["memory operations"],
    "other": ("0.85", ""),
}


def breakdown(groups: Mapping[str, pd.DataFrame]) -> Figure:
    """Of each rank's span the shares of `PARTS`, as bars; one block of bars a group (before, after).

    `groups`: frames as of `analyze.timeline.breakdown.table`, by what to call them. What is not known is left out, and
    the bar says so.
    """
    rows = [(name, row) for name, frame in groups.items() for row in frame.itertuples()]
    figure, axes = plt.subplots(figsize=(style.PAGE, 0.9 + 0.27 * (len(rows) + len(groups) - 1)))
    places, labels, place, former = [], [], 0.0, None
    for name, row in rows:
        place -= 1.0 if former in (None, name) else 1.6
        former = name
        rank = "" if pd.isna(row.rank) else f"rank {row.rank}"
        device = "" if pd.isna(row.device) else f"GPU {row.device}"
        labels.append(", ".join(filter(None, (name if len(groups) > 1 else "", rank or device))) or name)
        places.append(place)
        left = 0.0
        for part, value in _parts(row).items():
            colour, hatch = PARTS[part]
            axes.barh(
                place, value, left=left, height=0.75, color=colour, hatch=hatch, edgecolor="white", linewidth=0.4
            )
            if value >= 6:
                ink = "black" if part == "otherwise idle" else "white"
                box = {"facecolor": colour, "edgecolor": "none", "pad": 0.8} if hatch else None
                axes.text(
                    left + value / 2,
                    place,
                    f"{value:.0f}",
                    ha="center",
                    va="center",
                    fontsize=6.5,
                    color=ink,
                    bbox=box,
                )
            left += value
        if pd.isna(row.communication_ns):
            axes.text(101, place, "communication not known", va="center", fontsize=6.5)
    axes.set_yticks(places, labels)
    axes.set_xlim(0, 100)
    axes.set_xlabel("share of the span (%)")
    axes.grid(axis="y", visible=False)
    patches = [Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=part) for part, (colour, hatch) in PARTS.items()]  # fmt: skip
    figure.legend(handles=patches, loc="outside upper center", ncols=len(patches), fontsize=7, columnspacing=1.2)
    return figure


def parts(groups: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """What `breakdown` draws: group, rank, device, and of the span the percent of each of `PARTS`."""
    rows = [(name, row) for name, frame in groups.items() for row in frame.itertuples()]
    return pd.DataFrame(
        [{"group": name, "rank": row.rank, "device": row.device} | _parts(row) for name, row in rows],
        columns=["group", "rank", "device", *PARTS],
    )


def overlap(frame: pd.DataFrame) -> Figure:
    """Of each rank's communication what computation hides and what is exposed; in ms.

    `frame` as of `analyze.timeline.breakdown.table`; with columns wire_ns and waiting_ns (`collectives`), also what of it
    moved bytes and what waited for the slowest rank.
    """
    known = frame[frame.communication_ns.notna()]
    split = "wire_ns" in known and known.wire_ns.notna().any()
    figure, panels = plt.subplots(
        1, 1 + split, figsize=(style.PAGE, 0.9 + 0.25 * len(known)), sharex=True, sharey=True, squeeze=False
    )
    ranks = np.arange(len(known))
    blue, (orange, hatch) = PARTS["compute"][0], PARTS["communication, exposed"]
    pairs = [(known.overlapped_ns, known.exposed_communication_ns, "hidden behind compute", "exposed")]
    if split:
        pairs.append((known.wire_ns, known.waiting_ns, "moving bytes", "waiting for the slowest rank"))
    for axes, (first, second, one, other) in zip(panels.flat, pairs, strict=True):
        first, second = (part.astype(float).to_numpy() * MS for part in (first, second))
        axes.barh(ranks, first, height=0.7, color=blue, label=one)
        axes.barh(
            ranks,
            second,
            left=first,
            height=0.7,
            color=orange,
            hatch=hatch,
            edgecolor="white",
            linewidth=0.4,
            label=other,
        )
        axes.set_xlabel("communication kernels (ms)")
        axes.grid(axis="y", visible=False)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, fontsize=7)
    panels.flat[0].set_yticks(ranks, [f"rank {rank}" for rank in known["rank"]])
    panels.flat[0].invert_yaxis()
    return figure


def kernels(table: pd.DataFrame, *, most: int = 12) -> Figure:
    """The kernels that took the most time: name, share of all kernel time; the class by colour and hatch.

    `table`: columns name, kind, count, total_ns, share, as of `analyze.timeline.kernels.kernel_table`.
    """
    top = table.nlargest(most, "total_ns").iloc[::-1]
    figure, axes = plt.subplots(figsize=(style.PAGE, 0.8 + 0.2 * len(top)))
    for place, row in enumerate(top.to_dict("records")):
        colour, hatch = CLASSES.get(row["kind"], CLASSES["other"])
        axes.barh(place, 100 * row["share"], height=0.75, color=colour, hatch=hatch, edgecolor="white", linewidth=0.4)
        text = f"{row['total_ns'] * MS:,.1f} ms in {row['count']:,}"
        axes.annotate(
            text, (100 * row["share"], place), (3, 0), textcoords="offset points", va="center", fontsize=6.5
        )
    axes.set_yticks(range(len(top)), [_short(name) for name in top.name], fontsize=6.5)
    axes.set_xlim(0, 118 * float(top.share.max()))
    axes.set_xlabel("share of the time in kernels (%)")
    axes.grid(axis="y", visible=False)
    used = [(name, look) for name, look in CLASSES.items() if name in set(top["kind"])]
    patches = [Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=name) for name, (colour, hatch) in used]
    axes.legend(handles=patches, loc="lower right", fontsize=7)
    return figure


def _parts(row: tuple) -> dict[str, float]:
    """`PARTS` of one row's span, in percent; each moment counts once, as the first of them that it is."""
    span = float(row.span_ns)
    exposed = 0.0 if pd.isna(row.exposed_communication_ns) else float(row.exposed_communication_ns)
    waiting = 0.0 if pd.isna(row.loader_wait_ns) else float(row.loader_wait_ns)
    nanoseconds = {
        "compute": float(row.compute_ns),
        "communication, exposed": exposed,
        "memory operations": max(float(row.busy_ns) - float(row.compute_ns) - exposed, 0.0),
        "waiting for data": waiting,
        "otherwise idle": float(row.idle_ns) - waiting,
    }
    return {name: 100 * value / span for name, value in nanoseconds.items()}


def _short(name: str, most: int = 62) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"

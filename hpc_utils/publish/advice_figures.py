"""Figures of verdicts on runs of a processor: what their steps go to, and what following the advice gave."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from . import style
from .profile_figures import PARTS
from .timeline import PHASES

# Host phases in the order of a step; what of the communication the backward pass hides is in none of them.
LOOKS = {
    "data": PHASES["data"],
    "forward": PHASES["forward"],
    "backward": PHASES["backward"],
    "communication": PARTS["communication, exposed"],
    "optimizer": PHASES["optimizer"],
}


def steps(frame: pd.DataFrame) -> Figure:
    """What a step goes to, a bar a configuration: the parts' numbers as they are, their lengths scaled to a whole step
    (medians of shares need not add up to one).

    `frame`: columns configuration, verdict, and the share of the step (0 to 1, or NaN) that each of `LOOKS` takes.
    """
    figure, axes = plt.subplots(figsize=(style.PAGE, 0.8 + 0.27 * len(frame)))
    shares = frame[list(LOOKS)].astype(float).fillna(0.0)
    places, left = np.arange(len(frame)), np.zeros(len(frame))
    for phase, (colour, hatch) in LOOKS.items():
        width = 100 * (shares[phase] / shares.sum(axis=1)).to_numpy()
        axes.barh(places, width, left=left, height=0.75, color=colour, hatch=hatch, edgecolor="white", linewidth=0.4)
        for place, value, middle in zip(places, 100 * shares[phase], left + width / 2, strict=True):
            if value >= 4:
                ink = "white" if phase in ("backward", "optimizer") else "black"
                box = {"facecolor": "white", "edgecolor": "none", "pad": 0.8} if hatch else None
                axes.text(middle, place, f"{value:.0f}", ha="center", va="center", fontsize=6.5, color=ink, bbox=box)
        left = left + width
    for place, verdict in zip(places, frame.verdict, strict=True):
        axes.text(101, place, verdict, va="center", fontsize=7)
    axes.set_yticks(places, frame.configuration)
    axes.invert_yaxis()
    axes.set_xlim(0, 128)
    axes.set_xticks(range(0, 101, 20))
    axes.set_xlabel("share of the step (%)")
    axes.grid(axis="y", visible=False)
    patches = [Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=name) for name, (colour, hatch) in LOOKS.items()]  # fmt: skip
    figure.legend(handles=patches, loc="outside upper center", ncols=len(patches), fontsize=7, columnspacing=1.2)
    return figure


def promises(frame: pd.DataFrame) -> Figure:
    """What each change gave, as a point with its interval, beside what the verdict said that it gives at most.

    `frame`: columns change (in words), gain, low, high (NaN without interval), at_most (NaN: nothing was promised).
    """
    figure, axes = plt.subplots(figsize=(style.COLUMN, 0.95 + 0.28 * len(frame)))
    blue, orange = PARTS["compute"][0], PARTS["communication, exposed"][0]
    places = np.arange(len(frame))
    reach = np.nan_to_num(np.array([frame.gain - frame.low, frame.high - frame.gain], float))
    axes.axvline(1, **style.IDEAL)
    axes.scatter(frame.at_most, places, marker="|", s=130, linewidth=2, color=orange, label="promised at most", zorder=2)  # fmt: skip
    axes.errorbar(frame.gain, places, xerr=reach, fmt="o", color=blue, label="measured, 95 %", zorder=3)
    axes.set_yticks(places, frame.change)
    axes.set_ylim(len(frame) - 0.5, -0.5)
    axes.set_xlim(0, 1.08 * np.nanmax([frame.at_most, frame.gain, frame.high]))
    axes.set_xlabel("throughput with / without")
    axes.grid(axis="y", visible=False)
    figure.legend(loc="outside upper right", ncols=2, fontsize=7)
    return figure

"""One look for every figure: readable in a two-column paper, in colour, colour-blind, and black and white."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..formatting import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMN = 3.5  # inches: one column of a two-column paper (IEEE, ACM)
PAGE = 7.16  # both columns

# Okabe & Ito 2008, distinguishable by colour-blind readers; ordered by falling contrast in grey.
BLUE, ORANGE, PINK, GREEN = "#0072B2", "#D55E00", "#CC79A7", "#009E73"
# Colours of precisions, and of the roles that things have in figures.
COLOURS = {"fp32": BLUE, "bf16": ORANGE, "fp16": PINK, "tf32": GREEN}
ROLES = {
    "main": BLUE, "faster": BLUE, "slower": ORANGE, "milestone": ORANGE,
    "data": "0.75", "forward": BLUE, "backward": ORANGE, "optimizer": GREEN,
}  # fmt: skip
MARKERS = {"fp32": "o", "bf16": "s", "fp16": "^", "tf32": "D"}
LINES = {"fp32": "-", "bf16": "--", "fp16": ":", "tf32": "-."}
# For lines that anything else tells apart: colour, line, marker.
SERIES = (
    (BLUE, "-", "o"), (ORANGE, "--", "s"), (GREEN, "-.", "D"), (PINK, ":", "^"), ("0.25", (0, (6, 2)), "v"),
)  # fmt: skip
IDEAL = {"color": "0.45", "linewidth": 0.9, "linestyle": (0, (4, 3)), "zorder": 1}


def series(number: int) -> tuple:
    """Colour, line and marker of the so many-th: of `SERIES`, and once those are used up other combinations of them (25)."""
    many, again = len(SERIES), number // len(SERIES)
    return tuple(SERIES[(number + part * again) % many][part] for part in range(3))


def apply() -> None:
    """Set matplotlib, seaborn and pandas up for all figures and tables that follow."""
    import matplotlib as mpl
    import pandas as pd
    import seaborn

    pd.set_option("display.float_format", number, "display.max_colwidth", 200)
    seaborn.set_theme(context="paper", style="ticks", palette=list(COLOURS.values()))
    mpl.rcParams.update(
        {
            "figure.dpi": 150,
            "savefig.dpi": 300,
            "figure.constrained_layout.use": True,
            "font.size": 8,
            "axes.titlesize": 9,
            "axes.labelsize": 8,
            "xtick.labelsize": 7.5,
            "ytick.labelsize": 7.5,
            "legend.fontsize": 7.5,
            "legend.frameon": False,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.color": "0.9",
            "grid.linewidth": 0.6,
            "lines.linewidth": 1.4,
            "lines.markersize": 4.5,
            "errorbar.capsize": 2.5,
            "pdf.fonttype": 42,  # text stays text: publishers refuse Type 3 fonts
            "svg.fonttype": "none",
        }
    )


def save(figure: Figure, name: str, folder: Path) -> list[Path]:
    """Write `figure` as `<name>.pdf` and `<name>.png` into `folder`; the same data gives the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.{kind}" for kind in ("pdf", "png")]
    figure.savefig(paths[0], metadata={"CreationDate": None})
    figure.savefig(paths[1], metadata={"Software": None})
    return paths

"""The look of all figures: readable in a two-column paper, by colour-blind readers, and in black and white."""

from __future__ import annotations

import textwrap
import tomllib
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.style
import pandas as pd
from matplotlib.figure import Figure

from ..formatting import number

COLUMN = 3.5  # inches: one column of a two-column paper (IEEE, ACM), and magnified by half the figure of a slide
PAGE = 7.0  # both columns
SLIDE = 5.9  # the whole slide, magnified by half
CURVES = 4  # a panel has at most so many

# Okabe & Ito 2008, distinguishable by colour-blind readers; ordered by falling contrast in grey.
BLUE, ORANGE, PINK, GREEN = "#0072B2", "#D55E00", "#CC79A7", "#009E73"
# Colour, line style and marker of lines; the first belong to the precisions.
PRECISIONS = ("fp32", "bf16", "tf32", "fp16")
SERIES = (
    (BLUE, "-", "o"), (ORANGE, "--", "s"), (GREEN, "-.", "D"), (PINK, ":", "^"), ("0.25", (0, (6, 2)), "v"),
)  # fmt: skip
ROLES = {"main": BLUE, "second": ORANGE, "milestone": ORANGE, "ink": "0.15", "quiet": "0.35"}
# The look of bars and areas, by what they show.
FILLS = tomllib.loads(Path(__file__).with_name("fills.toml").read_text())
IDEAL = {"color": "0.45", "linewidth": 0.9, "linestyle": (0, (4, 3)), "zorder": 1}


def series(number: int) -> dict[str, Any]:
    """Colour, line style and marker of the line `number`: one of `SERIES`, then other combinations of them (25 in all)."""
    turn = number // len(SERIES)
    keys = enumerate(("color", "linestyle", "marker"))
    return {key: SERIES[(number + part * turn) % len(SERIES)][part] for part, key in keys}


def precision(name: str) -> dict[str, Any]:
    """Colour, line style and marker of a precision."""
    return series(PRECISIONS.index(name))


def fill(name: str) -> dict[str, Any]:
    """The look of bars of the kind `name` of `FILLS`."""
    return {"hatch": "", "edgecolor": "white", "linewidth": 0.4, "label": name} | FILLS[name]


def apply() -> None:
    """Set up matplotlib and pandas for all figures and tables that follow."""
    pd.set_option("display.float_format", number, "display.max_colwidth", 200)
    mpl.style.use(Path(__file__).with_name("figures.mplstyle"))
    mpl.rcParams["axes.prop_cycle"] = mpl.cycler(color=[colour for colour, *_ in SERIES])


def mark(figure: Figure, text: str) -> None:
    """Write `text` below `figure`, behind the note on its intervals, in lines as long as it is wide."""
    note = "; ".join(filter(None, [figure.get_supxlabel(), text]))
    figure.supxlabel(textwrap.fill(note, round(15 * figure.get_figwidth())), color=ROLES["quiet"])


def save(figure: Figure, name: str, folder: Path) -> Path:
    """Write `figure` as `<name>.pdf`, which is returned, and `<name>.png` into `folder`; equal data give equal bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    pdf = folder / f"{name}.pdf"
    figure.savefig(pdf, metadata={"CreationDate": None})
    with mpl.rc_context({"figure.constrained_layout.use": False}):
        figure.set_layout_engine(None)  # keeps the layout; an engine, even "none", draws once more for each output
        figure.savefig(pdf.with_suffix(".png"), metadata={"Software": None})
    return pdf

"""Show a figure in a notebook with its name and alternative text, by which the report finds its runs and files."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "figure"  # beside `alt`, in the metadata of the output's picture


def show(figure: Figure, name: str, says: str) -> None:
    """Show `figure` now instead of at the cell's end; does nothing outside a notebook. `says`: the alternative text."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is None:
        return
    from IPython.display import display
    from matplotlib import pyplot as plt

    display(figure, metadata={"image/png": {"alt": says, NAME: name}})
    plt.close(figure)

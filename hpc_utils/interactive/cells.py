"""ipyparallel's `%%px` with a time limit."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ipyparallel.client.magics import ParallelMagics
from IPython import get_ipython

from .settle import settle

if TYPE_CHECKING:
    from .engines import Engines


def activate(crew: Engines) -> None:
    """Have `%%px` run on the engines of `crew`."""
    if shell := get_ipython():
        magics = Magics(shell, crew.view)
        magics.crew = crew
        shell.magics_manager.register(magics)


class Magics(ParallelMagics):
    """A cell that fails or hangs on one engine ends on all; ipyparallel's own magics wait without a limit."""

    crew: Engines

    def parallel_execute(self, cell, block=None, groupby="type", save_name=None, **_):
        result = super().parallel_execute(cell, block=False, save_name=save_name)
        self.crew.last = result
        if not (self.view.block if block is None else block):
            return result
        try:
            freed = settle(self.crew.client, result, self.crew.cell_timeout)
        finally:
            if result.ready():
                result.display_outputs(groupby)
        if freed:
            print(f"freed after waiting: engine {', '.join(map(str, freed))}", file=sys.stderr)
        result.get()

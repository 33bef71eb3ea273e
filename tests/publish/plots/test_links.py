"""The figure of a link: every group with its points, and its fit where it has one."""

from __future__ import annotations

import numpy as np
import pytest

from hpc_utils.allreduce_cost import Link
from hpc_utils.analyze.model import links
from hpc_utils.publish.plots import links as plots
from tests.analyze.model.test_links import SIZES, record

from .figures import labels, lines


def test_each_group_has_points_and_the_fitted_curve() -> None:
    made = record(Link(1e-4, 1.25e8), 4, 0.05)
    made["groups"]["inter"] = record(Link(1e-3, 1.25e8), 2, 0, sizes=SIZES[:2])["groups"]["all"]
    table = links.times(made)
    figure = plots.allreduce(table).figure
    times, rates = figure.axes
    fitted, unfitted = (line for line in times.lines if line.get_marker() == "None" and len(line.get_xdata()) > 1)
    assert list(fitted.get_ydata()) == pytest.approx(list(1e3 * table.modelled[table.group == "all"]))
    assert np.isnan(unfitted.get_ydata()).all()
    assert [len(line.get_xdata()) for line in rates.lines] == [len(SIZES), len(SIZES), 2, 2]
    measured = rates.lines[0].get_ydata() * 1e9
    assert list(measured) == pytest.approx(list(1.5 * table.bytes[:14] / table.seconds[:14])), "a ring of four ranks"
    assert labels(figure) == {"all ranks (4)", "between nodes (2)"}
    assert len({line.get_marker() for line in lines(times).values()}) == 2

"""The figure of a link: every group with its points, and its fit where it has one."""

from __future__ import annotations

import pytest

from hpc_utils.allreduce_cost import Link
from hpc_utils.analyze.model import links
from hpc_utils.publish.plots import links as plots
from tests.analyze.model.test_links import SIZES, record

from .figures import labels, lines


def test_each_group_has_points_and_the_fitted_curve() -> None:
    made = record(Link(1e-4, 1.25e8), 4, 0.05)
    made["groups"]["inter"] = record(Link(1e-3, 1.25e8), 2, 0, sizes=SIZES[:2])["groups"]["all"]
    fit = links.fit(made, "all")
    figure = plots.allreduce(links.bandwidths(made), [fit]).figure
    times, rates = figure.axes
    (curve,) = (line for line in times.lines if len(line.get_xdata()) == 100)
    assert curve.get_ydata()[-1] == pytest.approx(1e3 * fit.seconds(SIZES[-1]))
    assert {len(line.get_xdata()) for line in rates.lines} == {100, len(SIZES), 2}
    fitted, other = sorted(labels(figure))
    assert fitted.startswith("all ranks (4): ") and fitted.endswith("Gbit/s") and other == "between nodes (2)"
    assert lines(times)[fitted].get_marker() != lines(times)[other].get_marker()

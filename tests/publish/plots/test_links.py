"""The figure of a link: every group with its points, and its fit where it has one."""

from __future__ import annotations

import matplotlib

matplotlib.use("agg")

import numpy as np
from matplotlib import pyplot as plt

from hpc_utils.allreduce_cost import Link
from hpc_utils.analyze.model import links
from hpc_utils.publish.plots import links as figures
from tests.analyze.model.test_links import SIZES, record


def test_each_group_has_points_and_the_fitted_curve() -> None:
    made = record(Link(1e-4, 1.25e8), 4, 0.05)
    made["groups"]["inter"] = record(Link(1e-3, 1.25e8), 2, 0, sizes=SIZES[:2])["groups"]["all"]
    fit = links.fit(made, "all")
    figure = figures.allreduce(links.bandwidths(made), [fit]).figure
    times, rates = figure.axes
    curves = [line for line in times.lines if len(line.get_xdata()) == 100]
    assert len(curves) == 1
    np.testing.assert_allclose(curves[0].get_ydata()[-1], 1e3 * fit.seconds(SIZES[-1]))
    points = [line for line in rates.lines if len(line.get_xdata()) != 100]
    assert [len(line.get_xdata()) for line in points] == [len(SIZES), 2]
    assert points[0].get_marker() != points[1].get_marker()
    words = [text.get_text() for text in figure.legends[0].texts]
    assert words[0].startswith("all ranks (4): ") and words[0].endswith("Gbit/s")
    assert words[1] == "between nodes (2)"
    plt.close(figure)

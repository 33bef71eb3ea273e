"""What a planned run says of itself to those who predict its time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hpc_utils.config import RunConfig
from hpc_utils.launch.request import Layout, Request
from hpc_utils.launch.study import Plan, Point, Series, Study, forecast
from hpc_utils.launch.target import Target


def entry(layout: Layout, **parameters: Any) -> dict[str, Any]:
    config = RunConfig(workload="cnn", dataset="digits", evaluate_every=0, **parameters)
    request = Request(Path("02_ddp.ipynb"), config, {}, layout, Path("runs/one"))
    study = Study(title="T", series=[Series(name="s", notebook="02_ddp", ranks=[layout.ranks])])
    (found,) = forecast(Plan("t", study, Target("h"), [Point("s", layout.ranks, 1, request)], []))
    return found


def test_each_rate_of_the_links_is_said_where_there_are_links() -> None:
    assert [entry(Layout(2, 1), link_gbit=rate)["link_gbit"] for rate in (1, 0.3, None)] == [1, 0.3, None]
    assert entry(Layout(1, 1), link_gbit=1)["link_gbit"] is None, "one rank needs none: the same run at every rate"

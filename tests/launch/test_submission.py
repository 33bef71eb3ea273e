"""What a submission leaves for its jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpc_utils import paths
from hpc_utils.launch.request import Layout, prepare
from hpc_utils.launch.submission import read_point, write_points


@pytest.mark.parametrize("redo", [True, False])
def test_a_task_finds_its_run_and_whether_it_is_to_be_measured_again(
    results: Path, tmp_path: Path, redo: bool
) -> None:
    asked = [prepare(paths.notebooks() / "02_ddp.ipynb", {"repeat": n}, Layout(2, 1)) for n in (1, 2)]
    write_points(tmp_path / "points.json", asked, redo=redo)
    request, again = read_point(tmp_path / "points.json", 1)
    assert (request.run_id, request.layout, again) == (asked[1].run_id, Layout(2, 1), redo)

"""Links between the project's files: relative, and quoted."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from hpc_utils.publish.address import relative


def test_a_link_is_relative_and_nothing_in_a_name_breaks_it(tmp_path: Path) -> None:
    target = tmp_path / 'a set/a "b" #c?d%41.ipynb'
    link = relative(target, tmp_path / "paper/build")
    assert link == "../../a%20set/a%20%22b%22%20%23c%3Fd%2541.ipynb"
    assert (tmp_path / "paper/build" / unquote(link)).resolve() == target

"""A profile of somebody else's in a chapter: drawn, judged, and handed on with the file that it rests on."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from hpc_utils.publish.examples import hand_on

from hpc_utils.analyze.examples import Example
from hpc_utils.publish import ledger

from ..analyze.timelines import COMPUTE, MS, timeline

pytestmark = pytest.mark.usefixtures("styled")


def test_an_example_is_handed_on_with_its_file(tmp_path: Path) -> None:
    file = tmp_path / "elsewhere/rank0.json"
    file.parent.mkdir()
    file.write_text("{}")
    example = Example("mine", ("rank0.json",), "a run", "me", "github.com/me", "MIT")
    lines = [timeline([(0, 4 * MS, COMPUTE), (6 * MS, 10 * MS, COMPUTE)], [(4 * MS, 6 * MS, "data")])]
    chapter = ledger.Ledger("04_profiling", pd.DataFrame(), results=tmp_path / "set", outside={"profile:rank0.json": file})  # fmt: skip
    found = hand_on(chapter, example, lines, "profiling-mine", begin=0, milliseconds=5)
    assert found.bound == "input-bound"
    chapter.write()
    handed = ledger.read(tmp_path / "set")
    assert handed.values["profile.mine.loader-wait"].value == pytest.approx(0.2)
    assert handed.values["profile.mine.verdict"].files == ("profile:rank0.json",)
    data = pd.read_csv(tmp_path / "set/figures/profiling-mine.csv")
    assert data.ms.max() < 5 and handed.figures["profiling-mine"].runs == ()

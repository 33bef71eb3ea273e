"""A run is found by its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpc_utils import paths
from hpc_utils.records import find, packed

CORES = paths.reference() / "epyc-2core"
REHEARSAL = paths.reference() / "rehearsal"


def test_a_run_is_found_by_its_id_its_end_or_its_folder(results: Path) -> None:
    run = next(path for path in packed.folders(CORES) if "none1-fp32-b512-r1" in path.name)
    assert find.find_run(run.name) == find.find_run(run.name[-8:]) == find.find_run(str(run)) == run
    for name, where in ((run.name[:-1], None), (run.name, REHEARSAL)):
        with pytest.raises(find.NoSuchRun, match=f"'{name}' names no run"):
            find.find_run(name, where)
    own = results / "runs" / run.name
    packed.unpack(run, own)
    assert find.find_run(run.name) == own, "one's own results come first"

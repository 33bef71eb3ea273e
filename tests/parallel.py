"""How `make test` shares the tests out between processes (pytest-xdist).

A file stays whole. All files that talk to the shared rehearsal cluster, or profile with nsys, are one heap, so that one
process has one cluster and nobody waits for another's profiler; so are those of tests/train, which fork their ranks from one
process. The longest come first, so that all processes end together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest
    from xdist.scheduler import LoadScopeScheduling

CLUSTER = (
    "tests/slurm/",
    "tests/rehearsal/",
    "tests/interactive/test_slurm.py",
    "tests/ondemand/test_session.py",
    "companions/drafts/tests/test_cluster.py",
    "tests/analyze/profiles/test_nsys_tool.py",
    "tests/env/test_nsight.py",
    "tests/test_profilers.py",
)
RANKS = ("tests/train/",)
LONGEST = (
    *CLUSTER,
    "tests/test_readme.py",
    *RANKS,
    "tests/test_reproduce.py",
    "tests/notebooks/",
    "companions/",
    "tests/launch/",
    "tests/interactive/",
    "tests/doctor/",
    "tests/pins/",
    "tests/publish/",
    "tests/test_site.py",
)


def place(nodeid: str) -> int:
    """Where in the row a test comes: the longest first."""
    return next((number for number, start in enumerate(LONGEST) if nodeid.startswith(start)), len(LONGEST))


def scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    """Gives each process one heap after another."""
    from xdist.scheduler import LoadScopeScheduling

    class Heaps(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            heaps = {"cluster": CLUSTER, "ranks": RANKS}
            own = (heap for heap, start in heaps.items() if nodeid.startswith(start))
            return next(own, nodeid.partition("::")[0])

    return Heaps(config, log)

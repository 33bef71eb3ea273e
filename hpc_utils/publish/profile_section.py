"""A profile in a chapter: the breakdown of each device's time, the timelines, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence

from hpc_utils.analyze.profiles.breakdown import breakdown_table
from hpc_utils.analyze.profiles.phases import phase_table
from hpc_utils.analyze.profiles.profiled_runs import Profile

from .chapter import Chapter
from .plots.timelines import chart

PARTS = "rank device span_ns busy_ns compute_ns communication_ns exposed_communication_ns memory_ns loader_wait_ns idle_ns"


def show_profile(
    chapter: Chapter, profile: Profile, *, phases: bool = False, runs: Sequence[str] = (), **part: float
) -> None:
    """Show `profile`, or why it could not be read.

    Args:
        phases: the time of a step by phase instead of the breakdown. part: `begin` and `milliseconds` of the timelines.
    """
    if not profile.timelines:
        chapter.not_measured(profile.missing)
        return
    if phases:
        chapter.display(phase_table(profile.timelines))
    else:
        chapter.display(breakdown_table(profile.timelines), PARTS)
    chapter.figure(chart(profile.timelines, profile.name, profile.what, runs=runs, **part))
    print(*profile.verdict.lines(), sep="\n")

"""Other people's profile in a chapter: its timeline as a figure, its values and its verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hpc_utils.analyze.named import profiles
from hpc_utils.analyze.profiles.judge import judge

from .plots.timelines import drawn, timelines

if TYPE_CHECKING:
    from hpc_utils.analyze.profiles.examples import Example
    from hpc_utils.analyze.profiles.timeline import Timeline
    from hpc_utils.analyze.profiles.verdict import Verdict

    from .ledger import Ledger


def hand_on(
    ledger: Ledger, example: Example, lines: Sequence[Timeline], name: str, *, begin: float, milliseconds: float
) -> Verdict:
    """The verdict on the example, whose values and timeline (a figure `name`, of that part) are handed on to `ledger`."""
    figure = timelines(lines, begin=begin, milliseconds=milliseconds)
    data = drawn(lines, begin=begin, milliseconds=milliseconds)
    says = f"What host and device did, a part of the profile: {example.what}."
    ledger.figure(figure, name, data=data, says=says, runs=())
    found = judge(lines)
    ledger.add(profiles.of_devices(example.name, lines, found, what=example.what, files=example.evidence))
    return found

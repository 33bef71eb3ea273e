"""Somebody else's profile in a chapter: its timeline drawn, and what it says handed on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hpc_utils.analyze import bottleneck
from hpc_utils.analyze.named import profiles

from .timeline import drawn, timelines

if TYPE_CHECKING:
    from hpc_utils.analyze.examples import Example
    from hpc_utils.analyze.timeline import Timeline
    from hpc_utils.analyze.verdict import Verdict

    from .ledger import Ledger


def hand_on(
    ledger: Ledger, example: Example, lines: Sequence[Timeline], name: str, *, begin: float, milliseconds: float
) -> Verdict:
    """The verdict on the example, whose values and timeline (a figure `name`, of that part) are handed on to `ledger`."""
    figure = timelines(lines, begin=begin, milliseconds=milliseconds)
    data = drawn(lines, begin=begin, milliseconds=milliseconds)
    says = f"What host and device did, a part of the profile: {example.what}."
    ledger.figure(figure, name, data=data, says=says, runs=())
    found = bottleneck.judge(lines)
    ledger.add(profiles.of_devices(example.name, lines, found, what=example.what, files=example.evidence))
    return found

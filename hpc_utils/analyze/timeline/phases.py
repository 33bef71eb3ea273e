"""Phases of training: which of the host's ranges they are, what they cost the host, what they had the device do."""

from __future__ import annotations

import functools
import re

import numpy as np

from . import Ranges, intervals

PHASES = ("step", "data", "forward", "backward", "optimizer")


@functools.lru_cache(maxsize=65536)
def phase_of(name: str) -> str | None:
    """The phase that a range of this name is; None: none."""
    lowered = name.strip().lower()
    return next((phase for phase in PHASES if re.fullmatch(phase, lowered)), None)


def windows(ranges: Ranges, phase: str) -> intervals.Set:
    """When at least one thread of the process was in that phase."""
    chosen = np.isin(ranges.name, [number for number, text in enumerate(ranges.names) if phase_of(text) == phase])
    return intervals.union(ranges.start[chosen], ranges.end[chosen])

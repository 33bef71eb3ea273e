"""What the page's script looks up, small: each fact's values once, and of each run only which of them it has."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from .runs import Run


def embedded(runs: Sequence[Run], rests: Mapping[str, Mapping[str, Iterable[str]]]) -> str:
    """JSON for a script element.

    `rests`: {kind: {name: ids of the runs that it rests on}}. In the JSON runs are places in their table; facts are
    [group, name, values, each run's place among the values (-1: none); or [] where all runs share the one value].
    """
    place = {run.run_id: number for number, run in enumerate(runs)}
    told = {
        "facts": [_fact(name, runs) for name in dict.fromkeys(name for run in runs for name in run.facts)],
        "rests": {
            kind: {name: _spans(place[run] for run in own if run in place) for name, own in all_of.items()}
            for kind, all_of in rests.items()
        },
    }
    return json.dumps(told, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")


def _fact(name: tuple[str, str], runs: Sequence[Run]) -> list:
    values = [run.facts.get(name) for run in runs]
    known = {value: number for number, value in enumerate(dict.fromkeys(v for v in values if v is not None))}
    alike = len(known) == 1 and None not in values
    return [*name, list(known), [] if alike else [known.get(value, -1) for value in values]]


def _spans(places: Iterable[int]) -> str:
    """`0-5,7`: the places, in order."""
    spans: list[list[int]] = []
    for place in sorted(places):
        if spans and spans[-1][1] == place - 1:
            spans[-1][1] = place
        else:
            spans.append([place, place])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)

"""A project's claims as a document prints them: judged against its result sets, and held to its rules for numbers."""

from __future__ import annotations

import re
from collections.abc import Callable

from hpc_utils.analyze import claims
from hpc_utils.publish import claims as wording
from hpc_utils.publish import formatting

from . import project
from .faults import Faults
from .number_lint import NEUTRAL, look
from .sets import Sets
from .source import parse
from .workshop import Workshop

_PLACE = re.compile(r"\{[^{}]*\}")


def said(
    workshop: Workshop, found: Sets, faults: Faults, say: Callable[[str], None]
) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """{name: sentence and verdict in Markdown}, {name: the values it rests on}; what is wrong is a fault of claims.toml."""
    path = workshop.folder / workshop.project.claims
    if not path.is_file():
        if "claims" in workshop.project.model_fields_set:
            line = project.line_of(workshop.folder / "paper.toml", "claims")
            faults.add(
                workshop.called("paper.toml"), line, f"there is no file {workshop.project.claims}: correct `claims`"
            )
        return {}, {}
    here = workshop.called(workshop.project.claims)
    known = claims.Claims()
    try:
        known = claims.read(path)
        _check_wording(known, here, faults)
        if not found.readable:
            return dict.fromkeys(known, ""), {}
        judged = claims.judge(
            known, lambda name: found.value(name).what, lambda value: formatting.text(value, "interval")
        )
    except claims.ClaimError as error:
        for line in str(error).splitlines():
            told = line.removeprefix(f"{path}: ")
            faults.add(here, project.line_of(path, re.split(r"[.:]", told)[0]), told)
        return dict.fromkeys(known, ""), {}
    failing = [f"does not hold: {line}" for line in wording.failing(judged)]
    for line in failing:
        if line not in workshop.failing:
            workshop.failing.append(line)
            say(f"  {line}")
    measured = {one.name: tuple(test.name for test in one.tests if test.found is not None) for one in judged}
    return {one.name: wording.statement(one) for one in judged}, measured


def _check_wording(known: claims.Claims, here: str, faults: Faults) -> None:
    """A number typed into a sentence is one that no test decides."""
    for name, claim in known.items():
        line = project.line_of(known.path, name)
        for key, text in [("sentence", claim.sentence), *(("called", test.called) for test in claim.tests)]:
            for one in look(parse(_PLACE.sub(NEUTRAL, text)))[0]:
                faults.add(
                    here, line, f"{name}: {one.passage!r} in its `{key}` {one.why}: write {{at_least}} or {{at_most}}, "
                    "and it is the test's bound",
                )  # fmt: skip

"""The project's claims as documents print them: judged against the document's result sets, and free of typed numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from hpc_utils.analyze import claims
from hpc_utils.publish import claims as wording
from hpc_utils.publish import formatting

from . import project
from .context import BuildContext
from .faults import Faults
from .number_lint import typed
from .sets import Found, Sets

_BOUND = re.compile(r"\{[^{}]*\}")


@dataclass
class ClaimTexts:
    """`sentences`: {name: sentence and verdict in Markdown}; `rests_on`: the cells behind each; `printed`: names that a text uses."""

    sentences: dict[str, str] = field(default_factory=dict)
    rests_on: dict[str, tuple[str, ...]] = field(default_factory=dict)
    printed: set[str] = field(default_factory=set)

    def values(self, sets: Sets) -> Iterator[Found]:
        """The cells behind the printed claims."""
        for name in self.sentences:
            if name in self.printed:
                yield from map(sets.value, self.rests_on.get(name, ()))


def judged(context: BuildContext, sets: Sets, faults: Faults) -> ClaimTexts:
    """All claims of the project; errors are faults of claims.toml."""
    path, file = context.folder / context.project.claims, context.shown(context.project.claims)
    if not path.is_file():
        return ClaimTexts()
    known = claims.Claims()
    try:
        known = claims.read(path)
        _check_wording(known, file, faults)
        found = claims.judge(
            known,
            lambda name: sets.value(name).what,
            lambda value: formatting.text(value, "interval"),
            sets.table_names,
        )
    except claims.ClaimError as error:
        for line in str(error).splitlines():
            message = line.removeprefix(f"{path}: ")
            faults.add(file, project.line_of(path, re.split(r"[.:]", message)[0]), message)
        return ClaimTexts(dict.fromkeys(known, ""))
    for line in wording.failing(found):
        if line not in context.failing:
            context.failing.append(line)
            context.log(f"  does not hold: {line}")
    return ClaimTexts(
        {one.name: wording.statement(one) for one in found},
        {one.name: tuple(test.name for test in one.tests if test.found is not None) for one in found},
    )


def _check_wording(known: claims.Claims, file: str, faults: Faults) -> None:
    """A number that is typed into a sentence is tested by nothing."""
    for name, claim in known.items():
        for text in (claim.sentence, *(test.called for test in claim.tests)):
            for one in typed(_BOUND.sub("\ue100", text)):
                message = f"{name}: {one.passage!r} {one.why}: write {{at_least}} or {{at_most}} for the test's bound"
                faults.add(file, project.line_of(known.path, name), message)

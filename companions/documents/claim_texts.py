"""The project's claims as documents print them: judged against the document's result sets, and free of typed numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from hpc_utils.publish import formatting
from hpc_utils.publish.cells import UnknownCell

from . import claims, project
from .claims import NOT_MEASURED, REFUTED, SUPPORTED, TOO_FEW, UNDECIDED
from .faults import Faults
from .number_lint import typed
from .sets import BuildContext, SetItem, Sets

WORDS = {
    SUPPORTED: "the data support it",
    REFUTED: "the data refute it",
    UNDECIDED: "the data leave it undecided",
    TOO_FEW: "too few repeats to say",
    NOT_MEASURED: "not measured yet",
}
_BOUND = re.compile(r"\{[^{}]*\}")


@dataclass
class ClaimTexts:
    """`sentences`: {name: sentence and verdict in Markdown}; `rests_on`: the cells behind each; `printed`: names that a text uses."""

    sentences: dict[str, str] = field(default_factory=dict)
    rests_on: dict[str, tuple[str, ...]] = field(default_factory=dict)
    printed: set[str] = field(default_factory=set)

    def values(self, sets: Sets) -> Iterator[SetItem]:
        """The cells behind the printed claims."""
        for name, cells in self.rests_on.items():
            if name in self.printed:
                yield from map(sets.value, cells)


def judged(context: BuildContext, sets: Sets, faults: Faults) -> ClaimTexts:
    """All claims of the project; errors are faults of claims.toml."""
    path = context.folder / context.project.claims
    if not path.is_file():
        return ClaimTexts()

    def fault(name: str, message: str) -> None:
        faults.add(context.shown(context.project.claims), project.line_of(path, name), message)

    project_claims = claims.Claims()
    try:
        project_claims = claims.read_claims(path)
        judgements = claims.judge(
            project_claims,
            lambda name: sets.value(name).content,
            lambda value: formatting.text(value, "interval"),
        )
    except claims.ClaimError as error:
        for line in () if sets.stale else str(error).splitlines():  # they may follow from stale pages
            message = line.removeprefix(f"{path}: ")
            fault(re.split(r"[.:]", message)[0], message)
        return ClaimTexts(dict.fromkeys(project_claims, ""))
    for name, claim in project_claims.items():
        for text in (claim.sentence, *(test.called for test in claim.tests)):
            for passage, why in typed(_BOUND.sub("\ue100", text)):
                fault(name, f"{name}: {passage!r} {why}: write {{at_least}} or {{at_most}} for the test's bound")
    for judgement in judgements:
        for test in judgement.tests:
            try:
                if test.found is None:
                    sets.check_spelling(test.name)
            except UnknownCell as error:
                fault(judgement.name, f"{judgement.name}: {test.name}: {error}")
        line = f"  does not hold: {judgement.name}: {judgement.verdict}: {judgement.why}"
        if judgement.fails and not sets.stale and line not in context.failing:
            context.failing.append(line)
            context.log(line)
    return ClaimTexts(
        {judgement.name: statement(judgement) for judgement in judgements},
        {judgement.name: judgement.values for judgement in judgements},
    )


def statement(judgement: claims.Judged) -> str:
    """Sentence and verdict in Markdown: `bf16 is at least 1.2 times as fast (**the data support it**: 1.36 [1.25, 1.48] ...)`.
    Without a full stop, for use within a sentence."""
    why = "" if judgement.verdict == NOT_MEASURED and judgement.planned else f": {judgement.why}"
    return f"{judgement.sentence} (**{WORDS[judgement.verdict]}**{why})"

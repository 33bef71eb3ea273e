"""Citations in a source's text: `{{set:table[key=value]|form}}` becomes an empty span with a number, which pandoc parses as text."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hpc_utils import toml_config
from hpc_utils.publish import formatting
from hpc_utils.publish.cells import UnknownCell

from .claims import ClaimTexts
from .faults import Faults
from .sets import NOT_MEASURED, SetItem, Sets, UnknownName

_CITATION = re.compile(
    r"^(?P<fence>```+|~~~+).*?^(?P=fence)|(?<!`)(?P<ticks>`+)(?!`)(?:(?!\n\n).)*?(?<!`)(?P=ticks)(?!`)"
    r"|\{\{(?P<cited>[^{}\n]*)\}\}|(?P<open>\{\{)",
    re.M | re.S,
)
# A unit typed behind a cell, which prints its own.
_UNIT = re.compile(
    r"[\s\u00a0\u202f]*(%|‰|(?:ms|µs|us|ns|s|min|h|[kMGTP]?(?:i?B|bit|flop)(?:/s)?|[km]?Wh?|EUR)(?![\w-]))"
)


@dataclass(frozen=True)
class Cited:
    """A citation as printed. `item` is None where the citation is wrong, or a planned set lacks the cell."""

    line: int
    written: str
    item: SetItem | None = None
    text: str = ""


def substitute(text: str, file: str, sets: Sets, claims: ClaimTexts, faults: Faults) -> tuple[str, dict[str, Cited]]:
    """The text with a placeholder for each cited cell and with the claims' sentences; code is unchanged.

    A cell or claim that does not exist is a fault, except a cell that a planned set lacks.
    """
    cited: dict[str, Cited] = {}

    def replace(match: re.Match[str]) -> str:
        line = text.count("\n", 0, match.start()) + 1
        if match["open"]:
            faults.add(file, line, "the braces of a cited cell are open, or more than one line apart")
        if match["cited"] is None:
            return match[0]
        written, _, form = (part.strip() for part in match["cited"].partition("|"))
        try:
            if written == "claims":
                return "\n".join(f"- {_sentence(claims, name)}" for name in claims.sentences)
            if written.startswith("claim:"):
                return _sentence(claims, written.removeprefix("claim:"))
            value = sets.value(written)
            citation = Cited(line, written, value, formatting.text(value.content, form or "value"))
            unit_text = formatting.text(value.content).partition(formatting.FIXED)[2]
            if (unit := _UNIT.match(text, match.end())) and (form != "bare" or unit[1] != unit_text):
                faults.add(
                    file, line, f"the unit {unit[1]!r} stands behind {written}, which prints {citation.text!r}"
                )
        except (UnknownCell, formatting.FormatError) as error:
            if not (planned := sets.is_planned(written, error)):
                faults.add(file, line, str(error))
            citation = Cited(line, written, text=f"[{NOT_MEASURED}]" if planned else "")
        number = str(len(cited))
        cited[number] = citation
        return f"[]{{.cell n={number}}}"

    return _CITATION.sub(replace, text), cited


def _sentence(claims: ClaimTexts, name: str) -> str:
    if name not in claims.sentences:
        raise UnknownName(f"no claim {name!r}: {toml_config.hint(name, claims.sentences)}")
    claims.printed.add(name)
    return f"[{claims.sentences[name]}]{{.claim}}"

"""The exports of a document's result sets, found by name, and whether they are current."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hpc_utils import records, toml_config
from hpc_utils.plural import counted
from hpc_utils.publish import cells, exports, staleness
from hpc_utils.publish.cells import UnknownCell

NOT_MEASURED = "not measured"  # in place of what a planned set lacks
EVIDENCE = {"profile": "profiles of others", "project": "files of the project"}  # of exports without runs
SHORT = 7  # digits of a commit, as git shows it
SIMILAR = 0.8  # of names: a table that is not exported yet, but is so similar to an exported one, is misspelt


class UnknownName(UnknownCell):
    """No such name, or several things have it; the message lists near names."""


class Stale(UnknownName):
    """Its page is stale, which `Sets.stale` lists; without a message, so that it is no fault of its own."""


@dataclass(frozen=True)
class Found:
    """An exported thing and its set. `what`: a `Value` or an `exports.Item`; `page`: the chapter's list of exports."""

    alias: str
    what: Any
    page: dict[str, Any]

    @property
    def full(self) -> str:
        """`rehearsal:scaling-efficiency[kind=strong, ...]`: its name in every document."""
        return f"{self.alias}:{self.what.name}"

    @property
    def chapter(self) -> str:
        """`03_scaling`."""
        return self.page["notebook"]

    def source(self) -> str:
        """`chapter 03_scaling, 78 runs, commit 45ae163`."""
        return source_line([self])


def source_line(found: list[Found]) -> str:
    """The sources of several values: `chapters 03_scaling, 05_optimization, 117 runs, commits 34526e8, 45ae163`."""
    chapters = sorted({one.chapter for one in found})
    runs = {(one.alias, run): one.page["runs"][run] for one in found for run in one.what.runs}
    parts = [_many("chapter", chapters)] if chapters else []
    parts += [counted(len(runs), "run")] if runs else []
    if commits := sorted({run["commit"][:SHORT] for run in runs.values() if run.get("commit")}):
        more = [f"and {len(commits) - 3} more"] * (len(commits) > 3)
        parts.append(" ".join([_many("commit", commits[:3]), *more]))
    elif runs:
        parts.append(f"measuring code {min(run['digest'] for run in runs.values())[:SHORT]}")
    elif chapters:
        files = {name.partition(":")[0] for one in found for name in one.page["files"]}
        parts += [text for kind, text in EVIDENCE.items() if kind in files]
        drawn = sorted({one.page["commit"][:SHORT] for one in found if one.page.get("commit")})
        parts.append(", ".join(["no run", *([f"drawn at {', '.join(drawn)}"] if drawn else [])]))
    return ", ".join(parts)


def _many(word: str, names: list[str]) -> str:
    return f"{word}{'s' * (len(names) > 1)} {', '.join(names)}"


@dataclass(frozen=True)
class ResultSet:
    """One set, read once for all documents. `checked`: whether what is cited must be current."""

    alias: str
    folder: Path
    exported: exports.Exports
    checked: bool = True
    _faults: dict[str, str] = field(default_factory=dict)

    @functools.cached_property
    def records(self) -> records.Records:
        """Its runs."""
        return records.load(self.folder)

    def fault(self, page: str) -> str:
        """What is wrong with the page first, and the remedy; "" if it is current."""
        if self.checked and page not in self._faults:
            self._faults[page] = next(staleness.page_faults(self.exported, page, self.records), "")
        return self._faults.get(page, "")


class Sets:
    """The sets of one document; names are looked up in all of them.

    `stale`: {(alias, fault)} of the pages that it draws on. `lacking`: {citation: why} of what the `planned` sets do not have.
    """

    def __init__(self, sets: Iterable[ResultSet], planned: Iterable[str] = ()) -> None:
        self.by_alias = {one.alias: one for one in sets}
        self.planned = frozenset(planned)
        self.stale: set[tuple[str, str]] = set()
        self.lacking: dict[str, str] = {}

    def is_planned(self, written: str, error: Exception) -> bool:
        """Whether `error`, of looking up `written`, only says that a planned set lacks it; `lacking` then has it."""
        if (
            written.partition(":")[0] not in self.planned
            or isinstance(error, Stale)
            or not isinstance(error, UnknownCell)
        ):
            return False
        try:
            cells.parse(written)
        except UnknownCell:  # it is no citation
            return False
        self.lacking[written] = str(error)
        return True

    def value(self, written: str) -> Found:
        """The cell cited as `written`, which `cells` explains."""
        cited = cells.parse(written)
        found = self._one("tables", f"{cited.alias}:{cited.table}".removeprefix(":"))
        exported = self.by_alias[found.alias].exported
        return Found(found.alias, cells.cell(exported, replace(cited, alias="")), found.page)

    def check_spelling(self, written: str) -> None:
        """Check the names of a cell that is not measured yet against the tables that the sets have.

        Raises:
            UnknownCell: not a citation, a table whose name differs little from an exported one, or an unknown column or key.
        """
        cited = cells.parse(written)
        exported = [one.exported for one in self.by_alias.values()]
        known = {name for one in exported for name in one.tables}
        if cited.table not in known:
            if near := toml_config.nearest(cited.table, known, cutoff=SIMILAR):
                raise UnknownName(f"no table {cited.table}: did you mean {near}?")
            return
        columns = {name for one in exported if cited.table in one.tables for name in one.frame(cited.table)}
        for name in (cited.column, *(key for key, _ in cited.keys)):
            if name and name not in columns:
                raise UnknownName(f"{cited.table} has no column {name!r}: {toml_config.hint(name, columns)}")

    def figure(self, name: str) -> Found:
        return self._one("figures", name)

    def table(self, name: str) -> Found:
        return self._one("tables", name)

    def _one(self, kind: str, name: str) -> Found:
        alias, _, own = name.rpartition(":")
        word, sets = kind[:-1], [one for one in self.by_alias.values() if alias in ("", one.alias)]
        if not sets:
            raise UnknownName(f"no set {alias!r} in this document: it draws on {', '.join(self.by_alias)}")
        having = [one for one in sets if own in getattr(one.exported, kind)]
        if len(having) > 1:
            names = " or ".join(f"{one.alias}:{own}" for one in having)
            raise UnknownName(f"several sets have the {word} {own}: write {names}")
        if not having:
            known = {full for one in sets for full in getattr(one.exported, kind)}
            raise UnknownName(f"no {word} {name}: {toml_config.hint(own, known)}")
        (one,) = having
        what = getattr(one.exported, kind)[own]
        if fault := one.fault(what.page):
            self.stale.add((one.alias, fault))
            raise Stale
        return Found(one.alias, what, one.exported.pages[what.page])

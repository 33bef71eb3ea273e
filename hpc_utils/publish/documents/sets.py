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
    """The page of the item is stale and listed in `Sets.stale`. The message is empty, so that it adds no fault."""


@dataclass(frozen=True)
class SetItem:
    """An exported thing and its set. `content`: a `Value` or an `exports.Item`; `page`: the exports of its chapter."""

    alias: str
    content: Any
    page: dict[str, Any]

    @property
    def full(self) -> str:
        """`rehearsal:scaling-efficiency[kind=strong, ...]`: its name in every document."""
        return f"{self.alias}:{self.content.name}"

    @property
    def chapter(self) -> str:
        """`03_scaling`."""
        return self.page["notebook"]

    def source(self) -> str:
        """`chapter 03_scaling, 78 runs, commit 45ae163`."""
        return source_line([self])


def source_line(values: list[SetItem]) -> str:
    """The sources of several values: `chapters 03_scaling, 05_optimization, 117 runs, commits 34526e8, 45ae163`."""
    chapters = sorted({value.chapter for value in values})
    runs = {(value.alias, run): value.page["runs"][run] for value in values for run in value.content.runs}
    parts = [_many("chapter", chapters)] if chapters else []
    parts += [counted(len(runs), "run")] if runs else []
    if commits := sorted({run["commit"][:SHORT] for run in runs.values() if run.get("commit")}):
        remainder = [f"and {len(commits) - 3} more"] * (len(commits) > 3)
        parts.append(" ".join([_many("commit", commits[:3]), *remainder]))
    elif runs:
        parts.append(f"measuring code {min(run['digest'] for run in runs.values())[:SHORT]}")
    elif chapters:
        files = {name.partition(":")[0] for value in values for name in value.page["files"]}
        parts += [text for kind, text in EVIDENCE.items() if kind in files]
        drawn = sorted({value.page["commit"][:SHORT] for value in values if value.page.get("commit")})
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
        self.by_alias = {result_set.alias: result_set for result_set in sets}
        self.planned = frozenset(planned)
        self.stale: set[tuple[str, str]] = set()
        self.lacking: dict[str, str] = {}

    def is_planned(self, written: str, error: Exception) -> bool:
        """Whether `error`, raised by looking up `written`, means that a planned set lacks it; `lacking` then lists it."""
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

    def value(self, written: str) -> SetItem:
        """The cell cited as `written`, which `cells` explains."""
        cited = cells.parse(written)
        item = self._item("tables", f"{cited.alias}:{cited.table}".removeprefix(":"))
        exported = self.by_alias[item.alias].exported
        return SetItem(item.alias, cells.cell(exported, replace(cited, alias="")), item.page)

    def check_spelling(self, written: str) -> None:
        """Check the names of a cell that is not measured yet against the tables that the sets have.

        Raises:
            UnknownCell: not a citation, a table whose name differs little from an exported one, or an unknown column or key.
        """
        cited = cells.parse(written)
        exported = [result_set.exported for result_set in self.by_alias.values()]
        table_names = {name for pages in exported for name in pages.tables}
        if cited.table not in table_names:
            if nearest_name := toml_config.nearest(cited.table, table_names, cutoff=SIMILAR):
                raise UnknownName(f"no table {cited.table}: did you mean {nearest_name}?")
            return
        columns = {name for pages in exported if cited.table in pages.tables for name in pages.frame(cited.table)}
        for name in (cited.column, *(key for key, _ in cited.keys)):
            if name and name not in columns:
                raise UnknownName(f"{cited.table} has no column {name!r}: {toml_config.hint(name, columns)}")

    def figure(self, name: str) -> SetItem:
        return self._item("figures", name)

    def table(self, name: str) -> SetItem:
        return self._item("tables", name)

    def _item(self, kind: str, name: str) -> SetItem:
        alias, _, item_name = name.rpartition(":")
        word = kind[:-1]
        sets = [result_set for result_set in self.by_alias.values() if alias in ("", result_set.alias)]
        if not sets:
            raise UnknownName(f"no set {alias!r} in this document: it draws on {', '.join(self.by_alias)}")
        having = [result_set for result_set in sets if item_name in getattr(result_set.exported, kind)]
        if len(having) > 1:
            names = " or ".join(f"{result_set.alias}:{item_name}" for result_set in having)
            raise UnknownName(f"several sets have the {word} {item_name}: write {names}")
        if not having:
            item_names = {full for result_set in sets for full in getattr(result_set.exported, kind)}
            raise UnknownName(f"no {word} {name}: {toml_config.hint(item_name, item_names)}")
        (result_set,) = having
        item = getattr(result_set.exported, kind)[item_name]
        if fault := result_set.fault(item.page):
            self.stale.add((result_set.alias, fault))
            raise Stale
        return SetItem(result_set.alias, item, result_set.exported.pages[item.page])

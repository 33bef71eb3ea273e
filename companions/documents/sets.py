"""The result sets of the documents, each read once: their exports, found by name, and whether they are current."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hpc_utils import records, toml_config
from hpc_utils.plural import counted
from hpc_utils.publish import cells, exports, staleness
from hpc_utils.publish.cells import UnknownCell
from hpc_utils.publish.formatting import first_names
from hpc_utils.records import identity

from .project import DocumentEntry, Project, ProjectError, read_project

FOLDER = "paper"  # of the documents, with paper.toml
NOT_MEASURED = "not measured"  # in place of what a planned set lacks
EVIDENCE = {"profile": "profiles of others", "project": "files of the project"}  # of exports without runs
SHORT = 7  # digits of a commit, as git shows it
SIMILAR = 0.8  # of names: a table that is not exported yet, but is so similar to an exported one, is misspelt


class Stale(UnknownCell):
    """The page of the item is stale and listed in `Sets.stale`. The message is empty, so that it adds no fault."""


@dataclass(frozen=True)
class SetItem:
    """An exported thing and its set. `content`: a `Value` or an `exports.Item`; `page`: the exports of its chapter."""

    alias: str
    content: Any
    page: dict[str, Any]

    @property
    def is_imported(self) -> bool:
        """Whether a run behind it is imported."""
        return bool(identity.imported_sets(self.page["runs"][run]["hardware_id"] for run in self.content.runs))

    @property
    def full(self) -> str:
        """`rehearsal:scaling-efficiency[kind=strong, ...]`: its name in every document."""
        return f"{self.alias}:{self.content.name}"


def source_line(values: Collection[SetItem]) -> str:
    """The sources of values: `chapters 03_scaling, 05_optimization, 117 runs, commits 34526e8, 45ae163`; "" without values."""
    if not values:
        return ""
    chapters = sorted({value.page["notebook"] for value in values})
    parts = [f"{_noun('chapter', chapters)} {', '.join(chapters)}"]
    runs = {(value.alias, run): value.page["runs"][run] for value in values for run in value.content.runs}
    if runs:
        parts.append(counted(len(runs), "run"))
        if imported_sets := identity.imported_sets(run["hardware_id"] for run in runs.values()):
            parts.append(f"imported, not measured here: {', '.join(imported_sets)}")
        elif commits := sorted({run["commit"][:SHORT] for run in runs.values() if run["commit"]}):
            parts.append(f"{_noun('commit', commits)} {first_names(commits)}")
        else:
            parts.append(f"measuring code {min(run['digest'] for run in runs.values())[:SHORT]}")
    else:
        files = {name.partition(":")[0] for value in values for name in value.page["files"]}
        parts += [text for kind, text in EVIDENCE.items() if kind in files]
        parts.append("no run")
        if drawn := sorted({value.page["commit"][:SHORT] for value in values if value.page["commit"]}):
            parts.append(f"drawn at {', '.join(drawn)}")
    return ", ".join(parts)


def _noun(word: str, names: Collection[str]) -> str:
    return word + "s" * (len(names) > 1)


@dataclass(frozen=True)
class ResultSet:
    """One set, read once for all documents. `checked`: whether what is cited must be current."""

    alias: str
    folder: Path
    exported: exports.Exports
    checked: bool = True
    _faults: dict[tuple[str, ...], str] = field(default_factory=dict)

    @functools.cached_property
    def records(self) -> records.Records:
        """Its runs."""
        return records.load(self.folder)

    def fault(self, page: str, runs: Collection[str] = ()) -> str:
        """What is wrong with the page first, or with the code of these `runs` of it, and the remedy; "" if they are current."""
        key = (page, *runs)
        if self.checked and key not in self._faults:
            self._faults[key] = next(staleness.page_faults(self.exported, page, self.records, runs), "")
        return self._faults.get(key, "")

    def absent(self, runs: Collection[str]) -> list[str]:
        """The workloads of these runs that are not found from here, a line each."""
        return records.by_absent_code(self.records.only(runs), self.folder)


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
        lacks = isinstance(error, UnknownCell) and not isinstance(error, Stale)
        if not lacks or written.partition(":")[0] not in self.planned:
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
        return self.item("tables", f"{cited.alias}:{cited.table}".removeprefix(":"), replace(cited, alias=""))

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
                raise UnknownCell(f"no table {cited.table}: did you mean {nearest_name}?")
            return
        columns = {
            name
            for pages in exported
            if cited.table in pages.tables
            for name in cells.with_settings(pages.frame(cited.table))
        }
        for name in (cited.column, *(key for key, _ in cited.keys)):
            if name and name not in columns:
                raise UnknownCell(f"{cited.table} has no column {name!r}: {toml_config.hint(name, columns)}")

    def item(self, kind: str, name: str, cited: cells.Citation | None = None) -> SetItem:
        """The table or figure (`kind`: "tables" or "figures") cited as `name`; with `cited` that cell of the table."""
        sets = {alias: result_set.exported for alias, result_set in self.by_alias.items()}
        alias, item = cells.find_item(kind, name, sets)
        self._require_current(alias, item.page)
        content = cells.cell(sets[alias], cited) if cited else item
        self._require_current(alias, item.page, content.runs)
        return SetItem(alias, content, sets[alias].pages[item.page])

    def _require_current(self, alias: str, page: str, runs: Collection[str] = ()) -> None:
        if fault := self.by_alias[alias].fault(page, runs):
            self.stale.add((alias, fault))
            raise Stale


@dataclass
class BuildContext:
    """What all documents of a checkout share.

    `root`: the folder that the sets' paths are relative to; `log` prints a line of progress.
    """

    root: Path
    project: Project
    log: Callable[[str], None]
    result_sets: dict[str, ResultSet] = field(default_factory=dict)
    failing: list[str] = field(default_factory=list)  # claims that do not hold, each logged once

    @property
    def folder(self) -> Path:
        return self.root / FOLDER

    @property
    def target(self) -> Path:
        return self.folder / "build"

    def shown(self, name: str) -> str:
        """A file of the folder, as messages name it."""
        return f"{FOLDER}/{name}"

    def sets(self, aliases: Iterable[str], planned: Iterable[str] = ()) -> Sets:
        """Those result sets; each is read once. `planned`: those that may lack what is cited.

        Raises:
            ProjectError: a folder is missing.
            ExportError: the exports of a set cannot be read.
        """
        for alias in aliases:
            if alias not in self.result_sets:
                folder = self.root / self.project.sets[alias]
                if not folder.is_dir() and alias not in self.project.planned:
                    raise ProjectError(f"{self.shown('paper.toml')}: sets.{alias}: there is no folder {folder}")
                self.log(f"checking the results {alias} ({self.project.sets[alias]})")
                result_set = self.result_sets[alias] = ResultSet(alias, folder, exports.read_exports(folder))
                for warning in staleness.computed_otherwise(result_set.exported):
                    self.log(f"  {warning}")
        return Sets((self.result_sets[alias] for alias in aliases), planned)

    def bibliography(self, entry: DocumentEntry) -> list[Path]:
        """The document's BibTeX files that exist."""
        return [file for name in entry.bibliography if (file := self.folder / name).is_file()]


def read_context(root: Path, log: Callable[[str], None] = lambda line: None) -> BuildContext:
    """The documents of a checkout.

    Raises:
        ProjectError: paper.toml is wrong.
    """
    return BuildContext(root, read_project(root / FOLDER / "paper.toml"), log)

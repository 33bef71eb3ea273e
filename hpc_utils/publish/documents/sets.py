"""The exports of a document's result sets, found by name, and whether they are current."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_utils import toml_config
from hpc_utils.publish import cells, exports
from hpc_utils.publish.cells import UnknownCell

if TYPE_CHECKING:
    import pandas as pd

EVIDENCE = {"profile": "profiles of others", "project": "files of the project"}  # of exports without runs
SHORT = 7  # digits of a commit, as git shows it


class UnknownName(UnknownCell):
    """No such name, or several things have it; the message lists near names."""


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

    def recorded(self, key: str) -> list[str]:
        """The different values of `digest`, `commit` or `hardware_id` in its runs' records."""
        return sorted({self.page["runs"][run][key] for run in self.what.runs if self.page["runs"][run].get(key)})

    def source(self) -> str:
        """`chapter 03_scaling, 78 runs, commit 45ae163`."""
        return source_line([self])


def source_line(found: list[Found]) -> str:
    """The sources of several values: `chapters 03_scaling, 05_optimization, 117 runs, commits 34526e8, 45ae163`."""
    chapters = sorted({one.chapter for one in found})
    runs = len({(one.alias, run) for one in found for run in one.what.runs})
    commits = sorted({commit[:SHORT] for one in found for commit in one.recorded("commit")})
    parts = [f"chapter{_s(chapters)} {', '.join(chapters)}"] if chapters else []
    parts += [f"{runs} run{'s' * (runs != 1)}"] if runs else []
    if commits:
        shown = ", ".join(commits[:3]) + (f" and {len(commits) - 3} more" if len(commits) > 3 else "")
        parts.append(f"commit{_s(commits)} {shown}")
    elif not runs and chapters:
        files = {name.partition(":")[0] for one in found for name in one.page["files"]}
        parts += [text for kind, text in EVIDENCE.items() if kind in files]
        drawn = sorted({one.page["commit"][:SHORT] for one in found if one.page.get("commit")})
        parts += [f"no run, drawn at {', '.join(drawn)}"] if drawn else ["no run"]
    elif digests := sorted({digest for one in found for digest in one.recorded("digest")}):
        parts.append(f"measuring code {digests[0][:SHORT]}")
    return ", ".join(parts)


def _s(many: list[str]) -> str:
    return "s" * (len(many) != 1)


@dataclass
class ResultSet:
    """One set, read once for all documents."""

    alias: str
    folder: Path
    exported: exports.Exports
    faults: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    readable: bool = True
    _records: Any = None

    def records(self) -> Any:
        """Its runs, as `records.load`."""
        if self._records is None:
            from hpc_utils import records

            self._records = records.load(self.folder)
        return self._records


def read(alias: str, folder: Path) -> ResultSet:
    """The set in `folder`; `faults` lists stale or damaged parts, `warnings` possible ones."""
    from hpc_utils.publish import staleness

    if not folder.is_dir():
        return ResultSet(alias, folder, exports.Exports(), [f"there is no folder {folder.name}"], readable=False)
    try:
        exported = exports.read(folder)
    except exports.ExportError as error:
        return ResultSet(alias, folder, exports.Exports(), [str(error)], readable=False)
    return ResultSet(alias, folder, exported, staleness.faults(exported), staleness.computed_otherwise(exported))


class Sets:
    """The sets of one document; names are looked up in all of them."""

    def __init__(self, sets: Iterable[ResultSet]) -> None:
        self.by_alias = {one.alias: one for one in sets}

    @property
    def readable(self) -> bool:
        """Whether all of them could be read."""
        return all(one.readable for one in self.by_alias.values())

    @property
    def table_names(self) -> set[str]:
        """Names of the tables of all sets."""
        return {name for one in self.by_alias.values() for name in one.exported.tables}

    def value(self, written: str) -> Found:
        """The cell cited as `written`, which `cells` explains."""
        cited = cells.parse(written)
        found = self._one("tables", "table", f"{cited.alias}:{cited.table}".removeprefix(":"))
        exported = self.by_alias[found.alias].exported
        return Found(found.alias, cells.cell(exported, replace(cited, alias="")), found.page)

    def figure(self, name: str) -> Found:
        return self._one("figures", "figure", name)

    def table(self, name: str) -> Found:
        return self._one("tables", "table", name)

    def _one(self, kind: str, word: str, name: str) -> Found:
        alias, colon, own = name.rpartition(":")
        if colon and alias not in self.by_alias:
            raise UnknownName(f"no set {alias!r} in this document: it draws on {', '.join(self.by_alias)}")
        where = [alias] if colon else list(self.by_alias)
        having = [one for one in where if own in getattr(self.by_alias[one].exported, kind)]
        if len(having) == 1:
            exported = self.by_alias[having[0]].exported
            what = getattr(exported, kind)[own]
            return Found(having[0], what, exported.pages[what.page])
        if having:
            raise UnknownName(
                f"several sets have the {word} {own}: write {' or '.join(f'{one}:{own}' for one in having)}"
            )
        known = {full for one in where for full in getattr(self.by_alias[one].exported, kind)}
        hint = toml_config.hint(own, known) if known else "the sets export none (`hpc chapter` does)"
        raise UnknownName(f"no {word} {name}: {hint}")

    def runs(self, used: Iterable[Found]) -> dict[str, pd.DataFrame]:
        """{alias: its runs behind `used`}."""
        wanted: dict[str, set[str]] = {}
        for one in used:
            wanted.setdefault(one.alias, set()).update(one.what.runs)
        found = {}
        for alias, names in wanted.items():
            runs = self.by_alias[alias].records().runs
            found[alias] = runs[runs.run_id.isin(names)]
        return found

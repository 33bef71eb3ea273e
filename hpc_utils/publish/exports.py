"""The exports of a result set's chapters: tables and figures, with the runs and files behind them.

`tables/<name>.csv` has a row for each configuration, with intervals, repeats and run ids; texts cite its cells (`cells.py`).
`figures/<name>.pdf` is a figure; the page has the data that it shows.
`exports/<chapter>.json`, a *page*, lists a chapter's tables and figures with fingerprints of all that they rest on, so that
`staleness` can find what has changed.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_utils import paths
from hpc_utils.records import atomic, fingerprint
from hpc_utils.records.folder import read_json

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = 3
FOLDER = "exports"
# Evidence that is outside the set: another group's profile, which may be absent later; a file of this project.
PROFILE, PROJECT = "profile:", "project:"
EXECUTED = "executed_sha256"  # of the notebook, which quotes the seal and so is not covered by it
LISTS = ("runs", "files", "tables", "figures")
KINDS = ("tables", "figures")  # folders of the set, too
BEHIND = ("runs", "runs_base")  # columns of a table that hold run ids, a tuple each


class ExportError(ValueError):
    """A chapter exports one name twice or runs that it did not read, or an export cannot be read."""

    exit_code = 2


@dataclass(frozen=True)
class Item:
    """A table or figure that a chapter exported.

    Attributes:
        files: {path in the set: SHA-256}: the CSV of a table, the PDF of a figure. page: the file in `exports/` that lists it.
        measure: of a table, the column that is cited where no column is named, and that `low` and `high` belong to.
        units: of a table, {column: unit}. span: what its intervals are, where they are no 95 % intervals.
        evidence: of a table, files behind it, besides runs.
        data: of a figure, the rows that it shows, as CSV.
    """

    name: str
    caption: str
    runs: tuple[str, ...]
    files: Mapping[str, str]
    page: str
    measure: str = ""
    units: Mapping[str, str] = field(default_factory=dict)
    span: str = ""
    evidence: tuple[str, ...] = ()
    data: str = ""

    @property
    def quantities(self) -> dict[str, str]:
        """{column: unit}, without the ends of intervals."""
        return {name: unit for name, unit in self.units.items() if not name.endswith(("_low", "_high"))}

    @property
    def file(self) -> str:
        """The path of its table or drawing in the set."""
        return next(iter(self.files))


@dataclass(frozen=True)
class Exports:
    """All that the chapters of a result set exported; `pages`: {stem: the content of `exports/<stem>.json`}."""

    folder: Path = Path()
    tables: dict[str, Item] = field(default_factory=dict)
    figures: dict[str, Item] = field(default_factory=dict)
    pages: dict[str, dict[str, Any]] = field(default_factory=dict)
    _fingerprints: dict[str, str] = field(default_factory=dict)

    def fingerprint(self, run: str) -> str:
        """The fingerprint of a run of the set, as it was when first asked for."""
        if run not in self._fingerprints:
            self._fingerprints[run] = fingerprint.of_run(self.folder / "runs" / run)
        return self._fingerprints[run]

    def frame(self, table: str) -> pd.DataFrame:
        """The content of `tables/<table>.csv`; an empty field is NaN."""
        return _frame(self.folder / f"tables/{table}.csv")


def read_exports(results: Path) -> Exports:
    """The exports of the set.

    Raises:
        ExportError: a page is damaged, was changed by hand, or is of another version; two pages export one name.
    """
    exported = Exports(results)
    for path in sorted((exported.folder / FOLDER).glob("*.json")):
        page = read_json(path)
        if not isinstance(page, dict) or page.get("schema") != SCHEMA or page.get("fingerprint") != seal(page):
            raise ExportError(
                f"{path} is damaged, changed by hand, or of another version: execute its chapter again (`hpc chapter`)"
            )
        exported.pages[path.stem] = page
        runs = list(page["runs"])
        for kind in KINDS:
            items = getattr(exported, kind)
            for name, item in page[kind].items():
                if name in items:
                    raise ExportError(
                        f"{kind[:-1]} {name} is exported by {items[name].page} and {path.stem}: rename it in a chapter"
                    )
                details = {
                    "runs": tuple(runs[place] for place in item["runs"]),
                    "evidence": tuple(item.get("evidence", ())),
                }
                items[name] = Item(name, page=path.stem, **item | details)
    return exported


def beside_runs(results: Path, study: str) -> list[str]:
    """What a chapter reads besides runs: the index of its study; or, of the whole set, all indices, probes and benches."""
    places = [f"studies/{study}.json"] if study else ["studies/*.json", "probes/*/*.json", "bench/*.csv"]
    return sorted(path.relative_to(results).as_posix() for place in places for path in results.glob(place))


def note_execution(results: Path, notebook: Path) -> None:
    """Add the fingerprint of `notebook`, just executed, to the page that it wrote."""
    name = notebook.relative_to(results).as_posix()
    for path in sorted((results / FOLDER).glob("*.json")):
        page = json.loads(path.read_text())
        if page["executed"] == name:
            atomic.write_text(path, text(page | {EXECUTED: fingerprint.of_file(notebook)}))


def place(name: str, results: Path) -> Path:
    """The path of a piece of evidence: in the set, or (`project:`) in the clone."""
    return paths.root() / name.removeprefix(PROJECT) if name.startswith(PROJECT) else results / name


def seal(page: Mapping[str, Any]) -> str:
    """SHA-256 over a page without its own fingerprint and the execution's: a page changed by hand does not match it."""
    content = {name: part for name, part in page.items() if name not in ("fingerprint", EXECUTED)}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def text(page: Mapping[str, Any]) -> str:
    """The page as JSON with one line per entry, so that a diff shows what changed."""
    lines = []
    for name, part in page.items():
        if name in LISTS and part:
            rows = ",\n".join(
                f"  {json.dumps(key)}: {json.dumps(entry, allow_nan=False)}" for key, entry in part.items()
            )
            lines.append(f" {json.dumps(name)}: {{\n{rows}\n }}")
        else:
            lines.append(f" {json.dumps(name)}: {json.dumps(part, allow_nan=False)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


@functools.lru_cache(maxsize=64)
def _frame(path: Path) -> pd.DataFrame:
    import pandas as pd

    return pd.read_csv(path, keep_default_na=False, na_values=[""])

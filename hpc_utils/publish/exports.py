"""The exports of a result set's chapters: tables and figures, with the runs and files behind them.

`tables/<name>.csv` has a row for each configuration, with intervals, repeats and run ids; texts cite its cells (`cells.py`).
`exports/<chapter>.json` lists a chapter's tables and figures with fingerprints of all that they rest on, so that `staleness` can
find what has changed.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, Field

from hpc_utils import paths
from hpc_utils.records import atomic, fingerprint

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = 2
FOLDER = "exports"
# Evidence that is outside the set: another group's profile, which may be absent later; a file of this project.
PROFILE, PROJECT = "profile:", "project:"
EXECUTED = "executed_sha256"  # of the notebook, which quotes the seal and so is not covered by it
LISTS = ("runs", "files", "tables", "figures")
KINDS = ("tables", "figures")  # folders of the set, too
BEHIND = ("runs", "runs_one")  # columns of a table that hold run ids, a tuple each


class ExportError(ValueError):
    """A chapter exports one name twice or runs that it did not read, or an export cannot be read."""

    exit_code = 2


@dataclass(frozen=True)
class Item:
    """A table or figure that a chapter exported.

    Attributes:
        files: {path in the set: SHA-256}. page: the file in `exports/` that lists it.
        measure: of a table, the column that is cited where no column is named, and that `low` and `high` belong to.
        units: of a table, {column: unit}. span: what its intervals are, where they are no 95 % intervals.
        evidence: of a table, files behind it, besides runs.
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

    def file(self, kind: str) -> str | None:
        """The path of its `pdf`, `png`, `svg` or `csv`."""
        return next((path for path in self.files if path.endswith(f".{kind}")), None)


@dataclass(frozen=True)
class Exports:
    """All that the chapters of a result set exported; `pages`: {stem: the content of `exports/<stem>.json`}."""

    folder: Path = Path()
    tables: dict[str, Item] = field(default_factory=dict)
    figures: dict[str, Item] = field(default_factory=dict)
    pages: dict[str, dict[str, Any]] = field(default_factory=dict)

    def frame(self, table: str) -> pd.DataFrame:
        """The content of `tables/<table>.csv`; an empty field is NaN."""
        return _frame(self.folder / f"tables/{table}.csv")


def read(results: Path) -> Exports:
    """The exports of the set. If two chapters use one name, it refers to the first; `staleness` reports it.

    Raises:
        ExportError: a file in `exports/` is not whole, or of another version.
    """
    found = Exports(Path(results))
    for path in sorted((Path(results) / FOLDER).glob("*.json")):
        try:
            page = json.loads(path.read_text())
            _Page.model_validate(page)
            runs = list(page["runs"])
            for kind in KINDS:
                for name, item in page[kind].items():
                    own = item | {"runs": tuple(runs[place] for place in item["runs"])}
                    own["evidence"] = tuple(item.get("evidence", ()))
                    getattr(found, kind).setdefault(name, Item(name, page=path.stem, **own))
        except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise ExportError(
                f"{path} cannot be read ({type(error).__name__}: {error}): execute its chapter again (`hpc chapter`)"
            ) from error
        found.pages[path.stem] = page
    return found


def beside_runs(results: Path, study: str) -> list[str]:
    """What a chapter reads besides runs: the index of its study; or, of the whole set, all indices, probes and benches."""
    if study:
        return [f"studies/{study}.json"] if (Path(results) / f"studies/{study}.json").is_file() else []
    places = ("studies/*.json", "probes/*/*.json", "bench/*.csv")
    return sorted(path.relative_to(results).as_posix() for place in places for path in Path(results).glob(place))


def note_execution(results: Path, notebook: Path) -> None:
    """Add the fingerprint of `notebook`, just executed, to the page that it wrote."""
    name = notebook.relative_to(results).as_posix()
    for path in sorted((results / FOLDER).glob("*.json")):
        page = json.loads(path.read_text())
        if page["executed"] == name:
            atomic.write_text(path, text(page | {EXECUTED: fingerprint.of_file(notebook)}))


def of_project(path: str | Path) -> str:
    """The name of a file of the clone as evidence; `path`: absolute, or from the clone's root."""
    return f"{PROJECT}{(paths.root() / path).relative_to(paths.root()).as_posix()}"


def place(name: str, results: Path) -> Path:
    """The path of a piece of evidence: in the set, or (`project:`) in the clone."""
    return paths.root() / name.removeprefix(PROJECT) if name.startswith(PROJECT) else Path(results) / name


def seal(page: Mapping[str, Any]) -> str:
    """SHA-256 over a page without its own fingerprint and the execution's: a page changed by hand does not match it."""
    content = {name: part for name, part in page.items() if name not in ("fingerprint", EXECUTED)}
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def text(page: Mapping[str, Any]) -> str:
    """The page as JSON with one line per entry, so that a diff shows what changed."""
    lines = []
    for name, part in page.items():
        if name in LISTS and part:
            rows = ",\n".join(f"  {json.dumps(key)}: {json.dumps(own, allow_nan=False)}" for key, own in part.items())
            lines.append(f" {json.dumps(name)}: {{\n{rows}\n }}")
        else:
            lines.append(f" {json.dumps(name)}: {json.dumps(part, allow_nan=False)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


@functools.lru_cache(maxsize=64)
def _frame(path: Path) -> pd.DataFrame:
    import pandas as pd

    return pd.read_csv(path, keep_default_na=False, na_values=[""])


class _Part(BaseModel, extra="allow", strict=True):
    """The fields of a page that other code relies on."""


class _Run(_Part):
    fingerprint: str


class _Item(_Part):
    runs: list[int]
    files: dict[str, str]


class _Page(_Part):
    version: Literal[2] = Field(alias="schema")
    notebook: str
    study: str
    executed: str
    fingerprint: str
    commit: str | None = None
    runs: dict[str, _Run]
    files: dict[str, str]
    tables: dict[str, _Item]
    figures: dict[str, _Item]

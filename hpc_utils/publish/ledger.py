"""What a chapter hands on: named values, figures and tables, each with the runs that it rests on.

`values/<chapter>.json` in a result set is the only way from a chapter into a text. It holds fingerprints of all that it
rests on and of what it describes, so `freshness` can tell when any of them changed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc_utils import paths, provenance
from hpc_utils.analyze.value import Value
from hpc_utils.records import atomic, fingerprint

from . import amounts, style
from .shown import show

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SCHEMA = 1
# Evidence that lies outside the set: somebody else's profile, which need not be at hand later; a file of this project.
PROFILE, PROJECT = "profile:", "project:"
EXECUTED = "executed_sha256"  # of the notebook, which quotes the seal and so cannot be under it
LISTS = ("runs", "files", "values", "figures", "tables")
KINDS = ("values", "figures", "tables")  # what a chapter hands on; folders of the set, too
BEHIND = ("runs", "runs_one")  # columns of a frame that hold run ids, a tuple each


class LedgerError(ValueError):
    """A chapter hands on what cannot be: one name twice, runs that it did not read, a file that nobody can read."""

    exit_code = 2


@dataclass(frozen=True)
class Drawn:
    """A figure or table that a chapter handed on: its sentence, its runs, its files (relative to the set)."""

    name: str
    says: str
    runs: tuple[str, ...]
    files: Mapping[str, str]  # path: SHA-256
    page: str  # the values file that lists it

    def file(self, kind: str) -> str | None:
        """The path of its `pdf`, `png`, `svg` or `csv`."""
        return next((path for path in self.files if path.endswith(f".{kind}")), None)


@dataclass(frozen=True)
class Handed:
    """All that the chapters of a result set handed on; pages as they stand in `values/`."""

    values: dict[str, Value] = field(default_factory=dict)
    figures: dict[str, Drawn] = field(default_factory=dict)
    tables: dict[str, Drawn] = field(default_factory=dict)
    pages: dict[str, dict[str, Any]] = field(default_factory=dict)
    of: dict[str, str] = field(default_factory=dict)  # a value's name: the page that it stands on


class Ledger:
    """Collects what a chapter hands on; `write()` ends it.

    `runs`: rows as of `records.load`, all that the chapter read. `study`: "" for a chapter about the whole set.
    `outside`: {`profile:NAME`: its file} of evidence that does not lie in the set. `files`: what the whole chapter rests
    on beside runs, as in `Value.files`.
    """

    def __init__(
        self,
        notebook: str,
        runs: pd.DataFrame,
        *,
        study: str = "",
        results: Path | None = None,
        outside: Mapping[str, Path] | None = None,
        files: Iterable[str] = (),
    ) -> None:
        self.files = tuple(files)
        self.notebook, self.study, self.outside = notebook, study, dict(outside or {})
        self.results = Path(results or paths.results())
        self.runs = {
            run.run_id: {"digest": run.digest, "commit": _known(run.commit), "hardware_id": _known(run.hardware_id)}
            for run in runs.itertuples()
        }
        self.values: dict[str, Value] = {}
        self.figures: dict[str, Drawn] = {}
        self.tables: dict[str, Drawn] = {}
        from hpc_utils.analyze.named.naming import slug  # with pandas, which readers of a ledger do not need

        several = len(list((self.results / "studies").glob("*.json"))) > 1
        self._of = f".{slug(study)}" if study and several else ""

    @property
    def stem(self) -> str:
        """Name of the file in `values/`, without its ending."""
        return f"{self.study}-{self.notebook}" if self.study else self.notebook

    def add(self, values: Iterable[Value]) -> None:
        """Hand on `values`; where the set holds several studies, those of one study's chapter end in its name.

        Raises:
            LedgerError: a name stands there already, its unit is not declared, or a run was not read.
        """
        for value in values:
            value = replace(value, name=value.name + self._of)
            if value.name in self.values:
                raise LedgerError(f"{self.notebook} hands on two values of the name {value.name}")
            if not amounts.is_known(value.unit):
                raise LedgerError(
                    f"{value.name} has the unit {value.unit!r}, which nobody can print: declare it in publish/amounts.py, one of "
                    f"{', '.join(amounts.UNITS)}"
                )
            self._check_runs(value.name, value.runs)
            self.values[value.name] = value

    def figure(
        self, figure: Figure, name: str, *, data: pd.DataFrame, says: str, runs: Iterable[str] | None = None
    ) -> None:
        """Save `figure` as `figures/<name>.pdf` and `.png`, and what it shows as `.csv`; a notebook shows it.

        `says`: one sentence, what there is to see. `runs`: ids; by default those in the columns `BEHIND` of `data`, or without
        such columns all that the chapter read.
        """
        runs = _behind(data) if runs is None else runs
        written = style.save(figure, name, self.results / "figures")
        self.figures[name] = self._drawn(self.figures, name, says, runs, [*written, self._csv("figures", name, data)])
        show(figure, name, says)

    def table(self, data: pd.DataFrame, name: str, *, says: str, runs: Iterable[str] | None = None) -> None:
        """Save a table that texts may show as `tables/<name>.csv`, without its index; `runs` as of `figure`."""
        runs = _behind(data) if runs is None else runs
        self.tables[name] = self._drawn(self.tables, name, says, runs, [self._csv("tables", name, data)])

    def write(self) -> str:
        """Write `values/<stem>.json`; returns a line for the chapter, by which the two are known to belong together."""
        own = (file for value in self.values.values() for file in value.files)
        files = sorted({*self.files, *own, *beside_runs(self.results, self.study)})
        order = {run: number for number, run in enumerate(self.runs)}
        page = {
            "schema": SCHEMA,
            "notebook": self.notebook,
            "study": self.study,
            "executed": "/".join(filter(None, ("notebooks", self.study, f"{self.notebook}.ipynb"))),
            "commit": provenance.commit(),
            "dirty": provenance.dirty(),
            "analysis": provenance.analysis_digest(self.notebook)[: provenance.SHORT],
            "runs": {
                run: told | {"fingerprint": fingerprint.of_run(self.results / "runs" / run)}
                for run, told in self.runs.items()
            },
            "files": {name: self._fingerprint(name) for name in files},
            "values": {name: _plain(value, order) for name, value in sorted(self.values.items())},
            **{
                kind: {
                    name: {"says": one.says, "runs": _places(one.runs, order), "files": dict(one.files)}
                    for name, one in sorted(getattr(self, kind).items())
                }
                for kind in ("figures", "tables")
            },
        }
        page["fingerprint"] = seal(page)
        atomic.write_text(self.results / "values" / f"{self.stem}.json", _text(page))
        return (
            f"Handed on: {len(self.values)} values, {len(self.figures)} figures, {len(self.tables)} tables "
            f"(values/{self.stem}.json, {page['fingerprint'][: provenance.SHORT]})."
        )

    def _csv(self, folder: str, name: str, data: pd.DataFrame) -> Path:
        path = self.results / folder / f"{name}.csv"
        data = data.assign(**{column: data[column].map(" ".join) for column in BEHIND if column in data})
        atomic.write_text(path, data.to_csv(index=False, lineterminator="\n"))
        return path

    def _drawn(
        self, others: Mapping[str, Drawn], name: str, says: str, runs: Iterable[str] | None, written: list[Path]
    ) -> Drawn:
        if name in others:
            raise LedgerError(f"{self.notebook} draws two of the name {name}")
        own = tuple(self.runs if runs is None else dict.fromkeys(runs))
        self._check_runs(name, own)
        files = {path.relative_to(self.results).as_posix(): fingerprint.of_file(path) for path in written}
        return Drawn(name, says, own, files, self.stem)

    def _check_runs(self, name: str, runs: Iterable[str]) -> None:
        if foreign := [run for run in runs if run not in self.runs]:
            raise LedgerError(f"{name} rests on runs that {self.notebook} did not read: {', '.join(foreign)}")

    def _fingerprint(self, name: str) -> str:
        try:
            return fingerprint.of_file(
                self.outside.get(name) if name.startswith(PROFILE) else place(name, self.results)
            )
        except (OSError, AttributeError) as error:
            raise LedgerError(f"the evidence {name} cannot be read ({error or 'its file was not said'})") from error


def read(results: Path) -> Handed:
    """What the chapters of the set handed on. A name that two chapters use stands for the first; `freshness` says so.

    Raises:
        LedgerError: a file in `values/` is not whole, or of another version.
    """
    found = Handed()
    for path in sorted((Path(results) / "values").glob("*.json")):
        try:
            page = _checked(json.loads(path.read_text()))
            runs = list(page["runs"])
            for name, told in page["values"].items():
                found.values.setdefault(name, _value(name, told, runs))
                found.of.setdefault(name, path.stem)
            for kind in ("figures", "tables"):
                for name, told in page[kind].items():
                    own = tuple(runs[place] for place in told["runs"])
                    getattr(found, kind).setdefault(name, Drawn(name, told["says"], own, told["files"], path.stem))
        except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise LedgerError(
                f"{path} cannot be read ({type(error).__name__}: {error}): execute its chapter anew (`hpc chapter`)"
            ) from error
        found.pages[path.stem] = page
    return found


def beside_runs(results: Path, study: str) -> list[str]:
    """What a chapter reads beside runs: its study's index, which says what they are asked; or of the set all indices, and all that
    was probed and measured side by side."""
    if study:
        return [f"studies/{study}.json"] if (Path(results) / f"studies/{study}.json").is_file() else []
    places = ("studies/*.json", "probes/*/*.json", "bench/*.csv")
    return sorted(path.relative_to(results).as_posix() for place in places for path in Path(results).glob(place))


def executed(results: Path, notebook: Path) -> None:
    """Note in the page that `notebook`, just executed, wrote, what the notebook then said."""
    name = notebook.relative_to(results).as_posix()
    for path in sorted((results / "values").glob("*.json")):
        page = json.loads(path.read_text())
        if page["executed"] == name:
            atomic.write_text(path, _text(page | {EXECUTED: fingerprint.of_file(notebook)}))


def of_project(path: str | Path) -> str:
    """How a file of the clone is called as evidence; `path`: whole, or from the clone's root."""
    return f"{PROJECT}{(paths.root() / path).relative_to(paths.root()).as_posix()}"


def place(name: str, results: Path) -> Path:
    """Where a piece of evidence lies: in the set, or (`project:`) in the clone."""
    return paths.root() / name.removeprefix(PROJECT) if name.startswith(PROJECT) else Path(results) / name


def seal(page: Mapping[str, Any]) -> str:
    """SHA-256 over a page without its own fingerprint, and its execution's: what was changed by hand does not fit it."""
    told = {name: part for name, part in page.items() if name not in ("fingerprint", EXECUTED)}
    return hashlib.sha256(json.dumps(told, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _checked(page: dict[str, Any]) -> dict[str, Any]:
    if page["schema"] != SCHEMA:
        raise ValueError(f"its version is {page['schema']}, ours {SCHEMA}")
    if wrong := [
        name for name in ("notebook", "study", "executed", "fingerprint") if not isinstance(page[name], str)
    ]:
        raise TypeError(f"{wrong[0]} is no text")
    for run, told in page["runs"].items():
        if not isinstance(told, dict) or not isinstance(told.get("fingerprint"), str):
            raise TypeError(f"what it tells of the run {run} is no table with a fingerprint")
    if not isinstance(page.get("commit"), str | None):
        raise TypeError("commit is no text")
    prints = [page["files"], *(told["files"] for kind in ("figures", "tables") for told in page[kind].values())]
    if not all(isinstance(own, str) for files in prints for own in files.values()):
        raise TypeError("the fingerprint of a file is no text")
    return page


def _plain(value: Value, order: Mapping[str, int]) -> dict[str, Any]:
    told = {name: part for name, part in asdict(value).items() if name != "name" and (part or name != "span")}
    told |= {end: told[end] if value.has_interval else None for end in ("low", "high")}
    if not isinstance(value.value, str):  # NumPy's numbers are none to JSON
        told["value"] = value.value if isinstance(value.value, int) else float(value.value)
        told |= {end: None if told[end] is None else float(told[end]) for end in ("low", "high")}
    return told | {"repeats": int(value.repeats), "runs": _places(value.runs, order), "files": list(value.files)}


def _places(runs: Iterable[str], order: Mapping[str, int]) -> list[int]:
    return sorted(order[run] for run in runs)


def _value(name: str, told: Mapping[str, Any], runs: list[str]) -> Value:
    ends = {end: math.nan if told[end] is None else told[end] for end in ("low", "high")}
    own = tuple(runs[place] for place in told["runs"])
    return Value(
        name,
        told["value"],
        told["unit"],
        told["says"],
        repeats=told["repeats"],
        runs=own,
        files=tuple(told["files"]),
        span=told.get("span", ""),
        **ends,
    )


def _text(page: Mapping[str, Any]) -> str:
    """JSON with a line an entry, so that a difference shows what changed."""
    lines = []
    for name, part in page.items():
        if name in LISTS and part:
            rows = ",\n".join(f"  {json.dumps(key)}: {json.dumps(own, allow_nan=False)}" for key, own in part.items())
            lines.append(f" {json.dumps(name)}: {{\n{rows}\n }}")
        else:
            lines.append(f" {json.dumps(name)}: {json.dumps(part, allow_nan=False)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _behind(data: pd.DataFrame) -> list[str] | None:
    columns = [column for column in BEHIND if column in data]
    return list(dict.fromkeys(run for column in columns for own in data[column] for run in own)) if columns else None


def _known(value: Any) -> str | None:
    return value if isinstance(value, str) else None

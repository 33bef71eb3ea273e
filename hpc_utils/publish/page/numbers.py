"""The page's named values, figures and tables: by chapter, as rows, each with what it rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpc_utils.provenance import SHORT
from hpc_utils.publish import exports
from hpc_utils.publish.exports import Exports, Item

from .runs import link, link_to

FEW = 3  # so many runs are named where they are behind something; of more there is the way to the table of runs


@dataclass(frozen=True)
class Origin:
    """The chapter behind a value or picture: its name, its place in the page ("" if it is not bound), files, code."""

    name: str
    anchor: str
    notebook: str  # link
    values: str  # link
    commit: str


@dataclass(frozen=True)
class Number:
    """A row: a named value, or (without `text`) a figure or table."""

    name: str
    says: str
    runs: int
    few: list[tuple[str, str]]  # (run id, link to its folder), where they are few
    files: list[tuple[str, str]]  # (what it is called, link); no link for what does not lie in the set
    text: str = ""
    repeats: str = ""
    unit: str = ""
    size: str = ""  # what it is sorted by
    origin: Origin | None = None


def origins(exported: Exports, results: Path, page: Path, chapters: Mapping[Path, str]) -> dict[str, Origin]:
    """{page of values: its chapter}; `chapters` are the anchors of those that are bound, by their files."""
    found = {}
    for stem, told in exported.pages.items():
        executed = results / told["executed"]
        commit = told.get("commit") or ""
        found[stem] = Origin(
            stem,
            chapters.get(executed.resolve(), ""),
            link(executed, page) if executed.is_file() else "",
            link(results / exports.FOLDER / f"{stem}.json", page),
            f"{commit[:SHORT]}{' (modified)' if commit and told.get('dirty') else ''}" or "not known",
        )
    return found


def drawn_of(drawn: Mapping[str, Item], results: Path, page: Path, by: Mapping[str, Origin]) -> list[Number]:
    """Figures or tables, with their files."""
    return [
        Number(
            one.name,
            one.caption,
            len(one.runs),
            _few(one.runs, results, page),
            [(Path(file).suffix[1:].upper(), link(results / file, page)) for file in one.files],
            origin=by.get(one.page),
        )
        for one in drawn.values()
    ]


def _few(runs: Sequence[str], results: Path, page: Path) -> list[tuple[str, str]]:
    return [(run, link_to(results / "runs" / run, page)) for run in runs] if len(runs) <= FEW else []

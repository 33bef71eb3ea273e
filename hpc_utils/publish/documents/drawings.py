"""Figures and tables as documents show them, each with the source that stands below it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpc_utils import toml_config

from .sets import Found, Sets, UnknownName, UnreadableSet
from .tree import Node, pairs, plain, words

ATTRIBUTES = {"figure": ("wide", "width"), "table": ("wide", "columns", "rows"), "own": ("wide", "width", "source")}
TYPED = ("wide",)  # of a table that stands in the source
PICTURES = (".pdf", ".png", ".jpg", ".jpeg")


@dataclass
class Drawing:
    """A figure (`file`) or a table (`heads`, `rows`: cells as inlines), and its caption.

    `source`: where it comes from, in words; `width`: of the column, such as `80%`; `wide`: over both columns.
    """

    kind: str
    name: str = ""
    label: str = ""
    wide: bool = False
    width: str = "100%"
    file: Path | None = None
    found: Found | None = None
    heads: list[list[Node]] = field(default_factory=list)
    rows: list[list[list[Node]]] = field(default_factory=list)
    left: list[bool] = field(default_factory=list)  # a column of words, not of numbers
    caption: list[Node] = field(default_factory=list)
    source: str = ""
    typed: bool = False
    line: int = 0


def drawn(image: Node, sets: Sets, folder: Path, fault: Callable[[int, str], None]) -> Drawing:
    """`![Caption.](figure:NAME)`, `(table:NAME)`, or a picture of one's own with `source="..."`; what is wrong is a fault."""
    kind, colon, name = image["c"][2][0].partition(":")
    said, line = pairs(image), image["line"]
    check(said, ATTRIBUTES.get(kind if colon else "own", ()), line, fault)
    drawing = Drawing("table" if colon and kind == "table" else "figure", name)
    drawing.label = image["c"][0][0]
    drawing.wide = said.get("wide") == "true"
    drawing.width = said.get("width", "100%")
    if not plain(image["c"][1]).strip():
        fault(line, "a figure or table needs a caption: write it between the brackets")
    if not re.fullmatch(r"([1-9]\d?|100)%", drawing.width):
        fault(line, f"width={drawing.width!r}: a share of the column, such as 80%")
        drawing.width = "100%"
    try:
        if not colon:
            _own(drawing, folder / kind, said, line, fault)
        elif kind == "figure":
            _figure(drawing, sets.figure(_unquoted(name)), sets)
        elif kind == "table":
            _table(drawing, sets.table(_unquoted(name)), sets, said, line, fault)
        else:
            fault(line, f"{kind}:{name}: write figure:NAME or table:NAME; `hpc paper --values` lists them")
    except UnreadableSet:
        pass  # the set's own fault is told
    except UnknownName as error:
        fault(line, str(error))
    return drawing


def check(said: dict[str, str], known: Iterable[str], line: int, fault: Callable[[int, str], None]) -> None:
    """Attributes that are unknown, or have a value that means nothing, are faults."""
    for key in said:
        if known and key not in known:
            fault(line, f"unknown attribute {key!r}: {toml_config.hint(key, known)}")
    if said.get("wide", "true") not in ("true", "false"):
        fault(line, f"wide={said['wide']!r}: write wide=true, or leave it out")


def too_wide(drawing: Drawing, letters: int) -> str:
    """What is wrong with a table whose longest words, side by side, are wider than so many letters; empty if nothing is."""
    if drawing.kind != "table" or not drawing.rows:
        return ""
    longest = [0] * max(map(len, drawing.rows))
    for row in drawing.rows:
        for place, cell in enumerate(row):
            longest[place] = max([longest[place], *(len(word) for word in re.split(r"[ \n/-]", plain(cell)))])
    if sum(longest) + len(longest) <= letters:
        return ""
    where = "the page" if drawing.wide else "one column"
    advice = 'columns="..." shows some of them' + ("" if drawing.wide else ", wide=true takes both columns")
    return f"{len(longest)} columns do not fit {where}: {advice}"


def table(block: Node, caption: Node | None) -> Drawing:
    """A table typed in the source: its cells as inlines."""
    _, _, columns, head, bodies, _ = block["c"]
    drawing = Drawing("table", typed=True)
    drawing.left = [align["t"] not in ("AlignRight", "AlignCenter") for align, _ in columns]
    drawing.heads = [_cell(cell) for row in head[1] for cell in row[1]]
    drawing.rows = [[_cell(cell) for cell in row[1]] for body in bodies for row in body[3]]
    drawing.rows.insert(0, drawing.heads)  # filled with the others
    return drawing


def _cell(cell: Any) -> list[Node]:
    return [inline for block in cell[4] for inline in block["c"]]


def _unquoted(name: str) -> str:
    from urllib.parse import unquote

    return unquote(name)


def _figure(drawing: Drawing, found: Found, sets: Sets) -> None:
    file = found.what.file("pdf") or found.what.file("png")
    drawing.found, drawing.source = found, found.source()
    drawing.file = sets.by_alias[found.alias].folder / file if file else None


def _own(drawing: Drawing, path: Path, said: dict[str, str], line: int, fault: Callable[[int, str], None]) -> None:
    if path.suffix not in PICTURES or not path.is_file():
        fault(
            line,
            f"no picture {path.name}: figure:NAME is one of the results', a file of your own is {', '.join(PICTURES)}",
        )
        return
    if not said.get("source"):
        fault(line, f'{path.name} says no source: add source="drawn by the authors" or where it is from')
    drawing.file, drawing.source = path, said.get("source", "")


def _table(
    drawing: Drawing, found: Found, sets: Sets, said: dict[str, str], line: int, fault: Callable[[int, str], None]
) -> None:
    import pandas as pd

    file = found.what.file("csv")
    if file is None:
        fault(line, f"the table {found.what.name} has no CSV: execute its chapter anew (`hpc chapter`)")
        return
    frame = pd.read_csv(sets.by_alias[found.alias].folder / file)
    if "columns" in said and not said["columns"].strip(" ,"):
        fault(line, f"columns={said['columns']!r} names none: write names with commas between them")
    if wanted := [name.strip() for name in said.get("columns", "").split(",") if name.strip()]:
        for name in wanted:
            if name not in frame:
                fault(
                    line,
                    f"the table {found.what.name} has no column {name!r}: {toml_config.hint(name, map(str, frame))}",
                )
        frame = frame[[name for name in wanted if name in frame]]
    rows = said.get("rows", "")
    if "rows" in said and not re.fullmatch("[1-9][0-9]*", rows):
        fault(line, f"rows={rows!r}: the number of rows to show, from the first, is 1 or more")
    elif rows:
        frame = frame.head(int(rows))
    drawing.found, drawing.source = found, found.source()
    drawing.heads = [words(str(name).replace("_", " ")) for name in frame]
    drawing.left = [not pd.api.types.is_numeric_dtype(frame[name]) for name in frame]
    drawing.rows = [drawing.heads, *([words(_shown(cell)) for cell in row] for row in frame.itertuples(index=False))]


def _shown(cell: Any) -> str:
    import pandas as pd

    from hpc_utils.publish import formatting

    if isinstance(cell, str):
        return cell
    if pd.isna(cell):
        return "–"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return formatting.number(cell).replace("-", "\u2212") if isinstance(cell, float) else str(cell)

"""Tables of outputs: in a box that scrolls, with aligned numbers, and headers that can sort."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bs4 import BeautifulSoup, Tag

NUMBER = re.compile(r"[-+−]?(\d[\d,]*\.?\d*|\.\d+|inf)(e[-+]?\d+)?\s*%?|nan|<na>|nat|none|\.\.\.|", re.IGNORECASE)


def set_table(soup: BeautifulSoup, table: Tag) -> None:
    """Put `table` into a box that scrolls; align its numbers; mark the header row that can sort it."""
    table.wrap(soup.new_tag("div", attrs={"class": "box"}))
    del table["border"]
    header = _one_header(table.thead.find_all("tr") if table.thead else [])
    body = [row.find_all(["th", "td"]) for row in (table.tbody.find_all("tr") if table.tbody else [])]
    for cell in table.find_all("th"):
        cell["scope"] = "row" if cell.find_parent("tbody") else "col"
    for row in table.find_all("tr"):
        del row["style"]
    # Counted from the right: on the left pandas leaves out the cells of an index that repeats.
    for place in range(-1, -1 - min(map(len, body), default=0), -1):
        column = [row[place] for row in body]
        if all(NUMBER.fullmatch(cell.get_text().strip()) for cell in column):
            heads = [row[place] for row in header if len(row) >= -place and not _spans(row)]
            for cell in column + heads:
                cell["class"] = [*cell.get("class", []), "number"]
    names = header[-1] if header else []
    regular = not any(len(row) != len(names) or _spans(row) for row in [names, *body])
    if names and regular and len(body) > 1 and table.find_parent(class_="output"):
        names[0].parent["class"] = "sorts"


def _one_header(rows: list[Tag]) -> list[list[Tag]]:
    """The header's cells. pandas gives an index's name a row of its own: move it up into the gap above."""
    cells = [row.find_all("th") for row in rows]
    if len(rows) != 2 or len(cells[0]) != len(cells[1]):
        return cells
    pairs = list(zip(*cells, strict=True))
    if any(upper.get_text(strip=True) and lower.get_text(strip=True) for upper, lower in pairs):
        return cells
    for upper, lower in pairs:
        upper.extend(lower.extract().contents)
    rows[1].extract()
    return cells[:1]


def _spans(cells: list[Tag]) -> bool:
    return any(cell.get(span, "1") != "1" for cell in cells for span in ("rowspan", "colspan"))

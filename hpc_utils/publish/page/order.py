"""Order in a chapter's HTML: headings, anchors, links, and nothing that would be loaded from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from .anchors import slug, unique

if TYPE_CHECKING:
    from bs4 import BeautifulSoup, Tag

    from .chapter import Chapter

EVIDENCE = ("number-", "figure-", "table-", "run-")  # how anchors of what chapters rest on begin
HEADINGS = ["h1", "h2", "h3", "h4", "h5", "h6"]


def no_network(soup: BeautifulSoup) -> None:
    """Whatever would be loaded from elsewhere becomes a line that says so."""
    drop(soup.find_all("link"))
    drop(soup.select("style[scoped]"))  # pandas: the page has its own look for tables
    for element in soup.find_all(src=True):
        source = element["src"]
        if source.startswith("data:"):
            continue
        note = soup.new_tag("span", attrs={"class": "absent"})
        note.string = f"{element.get('alt') or element.name} (not in this page: {source})"
        element.replace_with(note)
    for element in soup.find_all(srcset=True):
        del element["srcset"]


def order_headings(soup: BeautifulSoup, chapter: Chapter, taken: set[str]) -> None:
    """Headings below the chapter's own, with anchors that are the page's only ones; collects the sections."""
    headings = soup.find_all(HEADINGS)
    places = unique((f"{chapter.anchor}--{slug(heading.get_text())}" for heading in headings), taken)
    for heading, place in zip(headings, places, strict=True):
        section = heading.name in ("h1", "h2") and not heading.find_parent(class_="output")
        heading.name = f"h{min(6, max(3, int(heading.name[1]) + 1))}"
        heading["id"] = place
        if section:
            chapter.sections.append((place, heading.get_text().strip()))
    for element in soup.find_all(id=True):  # an output's own, which may come twice
        if element.name in HEADINGS:
            continue
        if element["id"] in taken:
            del element["id"]
        else:
            taken.add(element["id"])


def mark_errors(soup: BeautifulSoup, chapter: Chapter) -> None:
    """Anchors for errors, so that the chapter's head can point at them; collects them."""
    for number, error in enumerate(soup.select("div.error"), 1):
        error["id"] = f"{chapter.anchor}.error-{number}"
        chapter.errors.append((error["id"], error.strong.get_text()))


def point_links(soup: BeautifulSoup, anchor: str, anchors: Mapping[str, str], places: Collection[str]) -> None:
    """Links between chapters, and to the `places` of numbers, figures and runs, lead there.

    Those to files beside the notebook, or to numbers that the page does not have, would lead nowhere: they become text.
    """
    ids = {element["id"] for element in soup.find_all(id=True)}.union(places)
    for link in soup.find_all("a", href=True):
        target, _, place = link["href"].partition("#")
        if not target and place in ids:
            continue
        if not target and place.startswith(EVIDENCE):
            link.unwrap()
            continue
        if re.match(r"(https?|mailto|data):", target):
            continue
        chapter = anchor if not target else anchors.get(Path(target).stem) if target.endswith(".ipynb") else None
        if chapter:
            link["href"] = f"#{chapter}--{slug(place)}" if place else f"#{chapter}"
        else:
            link.unwrap()


def drop(elements: Iterable[Tag]) -> None:
    """Take the elements out."""
    for element in list(elements):
        element.decompose()

"""Pictures of outputs: buttons that enlarge them, with words for who cannot see them, and where they come from."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING

from .order import HEADINGS

if TYPE_CHECKING:
    from bs4 import BeautifulSoup

    from .numbers import Number

NO_WORDS = "No description has been provided"  # nbconvert's


def frame_figures(soup: BeautifulSoup, title: str) -> None:
    """Every picture of an output is a button that enlarges it, and has words for who cannot see it."""
    heading, number = title, 0
    for element in soup.find_all([*HEADINGS, "img"]):
        if element.name != "img":
            heading, number = element.get_text().strip(), 0
            continue
        if not element.find_parent(class_="output") or element.find_parent(["a", "button", "table"]):
            continue
        number += 1
        if element.get("alt", "").startswith(NO_WORDS) or not element.get("alt"):
            element["alt"] = f"Figure {number} of “{heading}”"
        if not element.get("width") and (size := _pixels(element.get("src", ""))):
            element["width"], element["height"] = size
        element.wrap(soup.new_tag("button", attrs={"class": "figure", "type": "button", "title": "Enlarge"}))


def _pixels(source: str) -> tuple[int, int] | None:
    """Size of a bitmap in a data URI. Told beforehand, the text below does not jump while the page loads."""
    from PIL import Image

    try:
        return Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2]))).size
    except (ValueError, OSError):  # an SVG
        return None


def caption_figures(soup: BeautifulSoup, figures: Mapping[str, Number]) -> None:
    """Under a picture that its chapter exported by name: what it shows, its runs, commit and files."""
    from bs4 import BeautifulSoup

    for image in soup.select("img[data-figure]"):
        told = figures.get(image["data-figure"])
        del image["data-figure"]
        if told is None or image.parent.name != "button":
            continue
        figure = image.parent.wrap(soup.new_tag("figure"))
        figure.append(BeautifulSoup(_caption(told), "html.parser"))


def _caption(told: Number) -> str:
    name, says = escape(told.name), escape(told.says)
    files = ", ".join(f'<a href="{escape(link)}">{kind}</a>' for kind, link in told.files)
    said = f"{told.runs} run{'s' * (told.runs != 1)}"
    runs = f', from <a href="#runs" data-rests="figures" data-name="{name}">{said}</a>' if told.runs else ""
    commit = escape(told.origin.commit) if told.origin else "not known"
    source = f'Figure <a href="#figure-{name}">{name}</a>{runs}, commit {commit}. {files}'
    return f'<figcaption>{says} <span class="origin">{source}</span></figcaption>'

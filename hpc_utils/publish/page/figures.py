"""Pictures of outputs: buttons that enlarge them, with words for who cannot see them."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING

from .order import HEADINGS

if TYPE_CHECKING:
    from bs4 import BeautifulSoup

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

"""No text of a document is too small to read: at least 7 points in print, and 12 on a slide, whose page is 720 points wide."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pypdf
import pytest
from pypdf.generic import ContentStream

from .conftest import ROOT
from .test_committed import SHOWN

LEAST = {"slides": 12.0}  # points; others have 7
TOLERANCE = 0.05
SHOWS = (b"Tj", b"TJ", b"'", b'"')


def matrix(numbers: Any) -> np.ndarray:
    a, b, c, d, e, f = map(float, numbers)
    return np.array([[a, b, 0], [c, d, 0], [e, f, 1]])


def sizes(content: Any, reader: pypdf.PdfReader, place: np.ndarray, in_figure: bool = False) -> Iterator[float]:
    """The size in points on the page of each operator that shows text, in figures (Form XObjects) too, formulas left out."""
    stack = [place]
    size, line, formula = 0.0, np.eye(3), False
    resources = content.get("/Resources", {})
    for operands, operator in ContentStream(content if in_figure else content.get_contents(), reader).operations:
        if operator == b"q":
            stack.append(stack[-1])
        elif operator == b"Q":
            stack.pop()
        elif operator == b"cm":
            stack[-1] = matrix(operands) @ stack[-1]
        elif operator == b"Tf":
            size = float(operands[1])
            formula = "Math" in resources["/Font"][operands[0]]["/BaseFont"]
        elif operator == b"BT":
            line = np.eye(3)
        elif operator == b"Tm":
            line = matrix(operands)
        elif operator in SHOWS and not formula:
            yield size * float(np.linalg.norm((line @ stack[-1])[1, :2]))
        elif operator == b"Do" and (form := resources["/XObject"][operands[0]])["/Subtype"] == "/Form":
            inner = matrix(form.get("/Matrix", (1, 0, 0, 1, 0, 0)))
            yield from sizes(form, reader, inner @ stack[-1], in_figure=True)


@pytest.mark.parametrize("name", SHOWN)
def test_text_is_legible(name: str) -> None:
    reader = pypdf.PdfReader(ROOT / f"docs/pdf/{name}.pdf")
    least = LEAST.get(name, 7.0)
    for number, page in enumerate(reader.pages, 1):
        small = [size for size in sizes(page, reader, np.eye(3)) if size < least - TOLERANCE]
        assert not small, f"{name}.pdf, page {number}: {min(small):.1f} points, at least {least:g}"

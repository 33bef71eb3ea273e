"""Characters that the documents' fonts lack: Typst would draw boxes for them without a word."""

from __future__ import annotations

import re
import tempfile
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from .typst import fonts, quoted

FAMILY = "Libertinus Serif"  # what it lacks is taken from any other


def missing(letters: Iterable[str]) -> list[str]:
    """Those of `letters` for which no font at hand has a glyph; asked of the compiler itself, a page a letter."""
    import io

    import pypdf
    import typst

    doubtful = sorted({letter for letter in letters if not letter.isascii() and unicodedata.category(letter) != "Zs"})
    if not doubtful:
        return []
    pages = "\n#pagebreak()\n".join(f"#text({quoted(letter)})" for letter in doubtful)
    text = f"#set page(width: 4cm, height: 2cm)\n#set text(font: {quoted(FAMILY)})\n{pages}\n"
    with tempfile.TemporaryDirectory() as folder:
        pdf = typst.compile(text.encode(), font_paths=fonts(Path(folder)), ignore_system_fonts=True)
    drawn = pypdf.PdfReader(io.BytesIO(pdf)).pages
    return [letter for letter, page in zip(doubtful, drawn, strict=True) if not _has_glyph(page)]


def _has_glyph(page: object) -> bool:
    """Glyph 0 is a font's box for what it lacks."""
    shown = page.get_contents().get_data()
    codes = re.findall(rb"<([0-9A-Fa-f]+)>|\(((?:\\.|[^\\)])*)\)", shown)
    return not any(re.match(rb"0000", code) or raw.startswith((b"\x00\x00", rb"\000\000")) for code, raw in codes)


def named(letter: str) -> str:
    """`U+1F600 GRINNING FACE`."""
    return f"U+{ord(letter):04X} {unicodedata.name(letter, 'without a name')}"

"""pandoc and Typst: Markdown to a tree, a tree to Typst, LaTeX or PDF. The same sources give the same bytes."""

from __future__ import annotations

import io
import json
import re
import shutil
import tempfile
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Any

import panflute as pf
import pypandoc
import typst

# Pandoc's Markdown without what a paper rarely means: lists by letters, tables drawn with spaces, TeX macros.
READER = (
    "markdown-fancy_lists-example_lists-simple_tables-multiline_tables-latex_macros+lists_without_preceding_blankline"
)
TEMPLATES = resources.files(__package__) / "templates"
# pandoc's Typst with quotation marks as they are: Typst would set a prime for an apostrophe after a digit.
WRITERS = {"typst": "typst-smart", "latex": "latex"}
pf.elements.RAW_FORMATS.add("typst")  # unknown to panflute 2.3


class PandocError(ValueError):
    """pandoc or Typst refuses a document; the message is theirs."""

    exit_code = 2


def parse(text: str, form: str = READER) -> pf.Doc:
    """A source as pandoc's tree, its front matter as the metadata; `form`: as pandoc calls it.

    Raises:
        PandocError: pandoc cannot read it.
    """
    tree = _convert(text, form, "json", "--columns=10000")
    try:
        return pf.load(io.StringIO(tree))
    except TypeError as error:  # of a raw passage in a format that panflute does not know
        raise PandocError(" ".join(str(error).split())) from None


def render_tree(tree: pf.Doc, target: str, template: str, **metadata: Any) -> str:
    """A tree as Typst or LaTeX, in a template; `metadata`: text, and lists and dictionaries of it, in addition to the front matter."""
    for key, value in metadata.items():
        tree.metadata[key] = value
    content = io.StringIO()
    pf.dump(tree, content)
    with resources.as_file(TEMPLATES / template) as file:
        options = [f"--template={file}", "--wrap=none", "--natbib", "--syntax-highlighting=none"]
        return _convert(content.getvalue(), "json", WRITERS[target], *options)


def compile_typst(source: str, folder: Path) -> bytes:
    """The PDF of Typst's `source`, whose files are in `folder`.

    Raises:
        PandocError: Typst refuses it.
    """
    for file in TEMPLATES.iterdir():
        if file.name.endswith(".typ"):
            (folder / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "main.typ").write_text(source, encoding="utf-8")
    try:
        return typst.compile(
            str(folder / "main.typ"), root=str(folder), font_paths=_fonts(folder), ignore_system_fonts=True
        )
    except typst.TypstError as error:
        raise PandocError(f"Typst: {error}") from None


def missing_letters(letters: Iterable[str]) -> str:
    """The first of `letters` that no available font has; empty if all can be printed.

    Typst draws boxes for them, except in PDF/A, which refuses them.
    """
    doubtful = sorted(letter for letter in set(letters) if not (letter.isascii() or letter.isspace()))
    with tempfile.TemporaryDirectory() as folder:
        try:
            typst.compile(
                f'#set text(font: "Libertinus Serif")\n#{quoted("".join(doubtful))}'.encode(),
                font_paths=_fonts(Path(folder)), ignore_system_fonts=True, pdf_standards=["a-2b"],
            )  # fmt: skip
        except typst.TypstError as error:
            match = re.search(r'the text `"(.+?)"`', str(error))
            if match is None:
                raise
            return match[1][0]
    return ""


def unknown_to_tex(text: str) -> str:
    """The letters beyond Latin ones in a TeX file that neither pdflatex nor the file's preamble knows."""
    declared = {chr(int(code, 16)) for code in re.findall(r"\\DeclareUnicodeCharacter\{(\w+)\}", text)}
    return "".join(sorted({letter for letter in text if letter >= "\u0180"} - declared - set("–—‘’“”")))


def verbatim(text: str, target: str) -> pf.MetaInlines:
    """A value of `render_tree`'s metadata that the writer of `target` does not escape."""
    return pf.MetaInlines(pf.RawInline(text, format=target))


def quoted(text: str) -> str:
    """A string literal of Typst."""
    return json.dumps(text, ensure_ascii=False)


def _convert(text: str, source: str, target: str, *options: str) -> str:
    try:
        return pypandoc.convert_text(text, target, source, extra_args=options, verify_format=False)
    except (OSError, RuntimeError) as error:
        raise PandocError(" ".join(str(error).split())) from None


def _fonts(folder: Path) -> list[str]:
    """Matplotlib's sans serif in addition to Typst's own fonts, so that slides look like figures.

    Its folder also contains a font that draws a box for every character, so the files are copied one by one.
    """
    import matplotlib

    target = folder / "fonts"
    target.mkdir(exist_ok=True)
    for file in (Path(matplotlib.get_data_path()) / "fonts/ttf").glob("DejaVuSans*.ttf"):
        if "Display" not in file.name:
            shutil.copy(file, target)
    return [str(target)]

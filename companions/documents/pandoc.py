"""pandoc and Typst: Markdown to a tree, a tree to Typst, LaTeX or PDF. The same sources give the same bytes."""

from __future__ import annotations

import copy
import io
import json
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import panflute as pf
import pypandoc
import typst

# Pandoc's Markdown without what a paper rarely means: lists by letters, tables drawn with spaces, TeX macros.
READER = (
    "markdown-fancy_lists-example_lists-simple_tables-multiline_tables-latex_macros+lists_without_preceding_blankline"
)
TEMPLATES = Path(__file__).parent / "templates"
# pandoc's Typst with quotation marks as they are: Typst would set a prime for an apostrophe after a digit.
WRITERS = {"typst": "typst-smart", "latex": "latex"}
COLUMN = 56  # letters of a table's row that fit into a column in TeX
WRAPPED = 18  # letters of a column's share of a wider row
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
    tree = copy.deepcopy(tree)
    if metadata.get("kind") == "slides":
        _slides(tree)
    tree = tree.walk(_for_typst if target == "typst" else _for_latex)
    for key, value in metadata.items():
        tree.metadata[key] = value
    content = io.StringIO()
    pf.dump(tree, content)
    options = [f"--template={TEMPLATES / template}", "--wrap=none", "--natbib", "--syntax-highlighting=none"]
    return _convert(content.getvalue(), "json", WRITERS[target], *options)


def compile_typst(source: str, folder: Path) -> bytes:
    """The PDF of Typst's `source`, whose files are in `folder`.

    Raises:
        PandocError: Typst refuses it.
    """
    for file in TEMPLATES.glob("*.typ"):
        shutil.copy(file, folder)
    (folder / "main.typ").write_text(source, encoding="utf-8")
    try:
        return typst.compile(
            str(folder / "main.typ"), root=str(folder), font_paths=_fonts(folder), ignore_system_fonts=True
        )
    except typst.TypstError as error:
        raise PandocError(f"Typst: {error}") from None


def drawing_pdf(svg: Path) -> bytes:
    """The drawing as a PDF of its size, because pdflatex reads no SVG."""
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copy(svg, Path(scratch) / "drawing.svg")
        page = '#set page(width: auto, height: auto, margin: 0pt)\n#image("drawing.svg")'
        return compile_typst(page, Path(scratch))


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


def table_rows(table: pf.Table) -> list[pf.TableRow]:
    """The rows of a table, its head included."""
    return [*table.head.content, *(row for body in table.content for row in body.content)]


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


def _slides(tree: pf.Doc) -> None:
    """`#slide[title][text][figure]...` for each heading of the first level, so that the template can place its parts."""
    parts: list[list[pf.Element]] = []
    for block in tree.content:
        if isinstance(block, pf.Header) and block.level == 1:
            parts.append([block])
        elif parts:
            parts[-1].append(block)
    tree.content = []
    for title, *blocks in parts:
        figures = [block for block in blocks if isinstance(block, pf.Figure)]
        for image in (figure.content[0].content[0] for figure in figures):
            if isinstance(image, pf.Image):
                image.attributes.pop("width", "")  # the template fits it into its room
        begin = pf.Plain(pf.RawInline("#slide[", "typst"), *title.content, pf.RawInline("][", "typst"))
        tree.content.extend([begin, *(block for block in blocks if block not in figures)])
        for figure in figures:
            tree.content.extend([pf.RawBlock("][", "typst"), figure])
        tree.content.append(pf.RawBlock("]", "typst"))


def _for_typst(image: pf.Element, doc: pf.Doc) -> pf.Element | None:
    """Images with their alternative texts, which pandoc's writer omits."""
    if not isinstance(image, pf.Image):
        return None
    width = f", width: {image.attributes['width']}" if "width" in image.attributes else ""
    alt = quoted(image.attributes["alt"])
    return pf.RawInline(f"#image({quoted(image.url)}{width}, alt: {alt})", "typst")


def _for_latex(element: pf.Element, doc: pf.Doc) -> Any:
    """Tables as floats, with their captions above; text instead of links to the list of numbers; drawings as PDF."""
    if isinstance(element, pf.Image):
        element.url = re.sub(r"\.svg$", ".pdf", element.url)
    if isinstance(element, pf.Link) and "number" in element.classes:
        return list(element.content)
    return _latex_table(element) if isinstance(element, pf.Table) else None


def _latex_table(table: pf.Table) -> list[pf.Element]:
    columns = zip(*([pf.stringify(cell).strip() for cell in row.content] for row in table_rows(table)), strict=True)
    lengths = [max(map(len, column)) for column in columns]
    if sum(lengths) + 2 * len(lengths) > COLUMN * (1 + ("wide" in table.attributes)):  # its columns wrap
        shares = [min(length, WRAPPED) + 1 for length in lengths]
        pairs = zip(table.colspec, shares, strict=True)
        table.colspec = [(side, share / sum(shares)) for (side, _), share in pairs]
    label = rf"}}\label{{{table.identifier}}}" if table.identifier else "}"
    inlines = [inline for block in table.caption.content for inline in block.content]
    begin = pf.RawInline(r"\begin{table}[tbp]\centering\caption{", "latex")
    end = pf.RawInline(label + r"\footnotesize\setlength{\tabcolsep}{3pt}", "latex")
    table.caption, table.identifier = pf.Caption(), ""
    return [pf.Plain(begin, *inlines, end), table, pf.RawBlock(r"\end{table}", "latex")]

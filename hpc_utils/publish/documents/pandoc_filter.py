"""The filter between pandoc's reader and its writers.

`Resolver` fills a document in, whatever it is written as: cells, figures, tables, references, citations. `typeset` then adds what
pandoc's Typst and LaTeX writers have no notation for: links of numbers, sources, floats over both columns.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import panflute as pf

from hpc_utils import toml_config
from hpc_utils.publish import formatting

from .number_lint import CLASSES
from .pandoc import quoted
from .sets import Found, Sets, UnknownName, source_line
from .source import Source
from .substitute import Cited

REFERENCES = ("fig", "tbl", "tab", "sec", "eq")
# Attributes of figures and tables: an example, the form of the value, and the kinds that have it.
ATTRIBUTES = {
    "wide": ("wide=true", r"true|false", ("figure", "table", "own", "typed")),
    "width": ("width=80%", r"([1-9]\d?|100)%", ("figure", "own")),
    "columns": ('columns="a,b"', r".*[^\s,].*", ("table",)),
    "rows": ("rows=6", r"[1-9]\d*", ("table",)),
    "source": ('source="drawn by us"', r".+", ("own",)),
}
PICTURES = (".pdf", ".png", ".jpg", ".jpeg")
# Letters of a table's row, side by side, that fit into a column and onto a page; in a conference's TeX, into a column.
COLUMN, PAGE, TEX_COLUMN = 72, 150, 56
SHORT = 25  # characters of a setting that stay on one line
WRAPPED = 18  # letters of a column's share where a table's row does not fit into TeX's column
LONG = 18  # rows of a table that may break over pages, in one column


class Resolver:
    """Completes the tree of a document; faults are reported at lines of its `source`.

    `values`, `drawn`, `pictures`: the cells, the results' figures and tables, and the authors' own pictures that it shows.
    """

    def __init__(
        self,
        source: Source,
        cells: Sequence[Cited],
        sets: Sets,
        citations: frozenset[str],
        folder: Path,
        template: str,
    ) -> None:
        self.source, self.fault = source, source.fault
        self.cells, self.sets, self.citations, self.folder, self.template = cells, sets, citations, folder, template
        self.values: dict[str, Found] = {}
        self.drawn: list[Found] = []
        self.pictures: list[Path] = []
        self.cites = False
        self._labels: set[str] = set()
        self._references: list[str] = []
        self._seen: set[int] = set()

    def run(self, tree: pf.Doc) -> pf.Doc:
        tree = tree.walk(self._visit)
        for place, cell in enumerate(self.cells):
            if place not in self._seen and cell.found:
                self.fault(cell.line, f"{{{{{cell.written}}}}} cannot stand in a formula, an attribute or an address")
        for key in self._references:
            if key not in self._labels:
                self.fault(f"@{key}", f"nothing is labelled #{key}: {toml_config.hint(key, self._labels)}")
        return tree

    def _visit(self, element: pf.Element, doc: pf.Doc) -> Any:
        visit = getattr(self, f"_{type(element).__name__.lower()}", None)
        return visit(element) if visit else None

    def _span(self, span: pf.Span) -> pf.Element | None:
        if "cell" in span.classes:
            number = int(span.attributes["n"])
            self._seen.add(number)
            cell = self.cells[number]
            if cell.found is None:
                return pf.Span()
            self.values.setdefault(cell.found.full, cell.found)
            return pf.Span(pf.Str(cell.text), classes=["number"], attributes={"cell": cell.found.full})
        if set(CLASSES) & set(span.classes) and len(pf.stringify(span)) < SHORT:
            return pf.Span(pf.Str(pf.stringify(span).replace(" ", "\u00a0")), classes=span.classes)
        return None

    def _rawinline(self, raw: pf.RawInline) -> list:
        if not (raw.format == "html" and raw.text.lstrip().startswith("<!--")):
            self.fault(raw.text, f"raw {raw.format} {raw.text[:40]!r}: a source is Markdown alone")
        return []

    _rawblock = _rawinline

    def _header(self, header: pf.Header) -> list | None:
        if pf.stringify(header).strip().lower() in ("references", "bibliography"):
            return []  # the template writes it
        return self._label(header.identifier)

    def _label(self, label: str) -> None:
        line = self.source.next_line(f"#{label}") if label else 0
        if label in self._labels:
            self.fault(line, f"the label #{label} is given twice")
        if label:
            self._labels.add(label)

    def _cite(self, cite: pf.Cite) -> list[pf.Element] | None:
        keys = [citation.id for citation in cite.citations]
        if keys[0].partition(":")[0] in REFERENCES:
            self._references += keys
            return [pf.Span(classes=["reference"], attributes={"key": key}) for key in keys]
        self.cites = True
        for citation in cite.citations:
            if citation.id not in self.citations:
                hint = toml_config.hint(citation.id, self.citations)
                self.fault(f"@{citation.id}", f"no entry {citation.id!r} in the bibliography: {hint}")
            if before := pf.stringify(citation.prefix) if citation.prefix else "":
                self.fault(f"{before} @{citation.id}", f"{before!r} is not printed: write it before the bracket")
        return None

    def _image(self, image: pf.Image) -> list | None:
        if isinstance(image.parent, pf.Plain) and isinstance(image.parent.parent, pf.Figure):
            return None
        self.fault(
            self.source.next_line(f"]({image.url}"),
            "a figure needs a paragraph of its own, and a caption between its brackets",
        )
        return []

    def _figure(self, figure: pf.Figure) -> pf.Element | list:
        image = figure.content[0].content[0]
        kind, colon, name = image.url.partition(":")
        line = self.source.next_line(f"]({image.url}")
        self._label(figure.identifier)
        self._check(image.attributes, kind if colon else "own", line)
        try:
            if not colon:
                path, source = self._own_picture(image)
            elif kind == "figure":
                found = self.sets.figure(name)
                file = found.what.file("pdf") or found.what.file("png")
                path, source = self.sets.by_alias[found.alias].folder / file, found.source()
                self.drawn.append(found)
            elif kind == "table":
                return self._result_table(figure, image, self.sets.table(name), line)
            else:
                self.fault(line, f"{image.url}: write figure:NAME or table:NAME; `hpc paper --values` lists them")
                return []
        except UnknownName as error:
            self.fault(line, str(error))
            return []
        figure.attributes = {"wide": image.attributes.get("wide", ""), "source": source}
        image.attributes = {
            "width": image.attributes.get("width", "100%"),
            "alt": pf.stringify(figure.caption).strip(),
        }
        image.url = str(path)
        return figure

    def _own_picture(self, image: pf.Image) -> tuple[Path, str]:
        path = self.folder / unquote(image.url)
        if path.suffix not in PICTURES or not path.is_file():
            raise UnknownName(
                f"no picture {image.url}: it is figure:NAME of the results, or a file {', '.join(PICTURES)}"
            )
        if not image.attributes.get("source"):
            raise UnknownName(f'{image.url} has no source: add source="drawn by the authors", or where it is from')
        self.pictures.append(path)
        return path, image.attributes["source"]

    def _result_table(self, figure: pf.Figure, image: pf.Image, found: Found, line: int) -> pf.Element | list:
        import pandas as pd

        frame = pd.read_csv(self.sets.by_alias[found.alias].folder / found.what.file("csv"))
        wanted = [name.strip() for name in image.attributes.get("columns", "").split(",") if name.strip()]
        for name in wanted:
            if name not in frame:
                hint = toml_config.hint(name, map(str, frame))
                self.fault(line, f"the table {found.what.name} has no column {name!r}: {hint}")
                return []
        rows = image.attributes.get("rows", "")
        frame = frame[wanted or list(frame)].head(int(rows) if rows.isdigit() else len(frame))
        heads = _row([str(name).replace("_", " ") for name in frame])
        body = [_row([_shown(cell) for cell in row]) for row in frame.itertuples(index=False)]
        columns = ["AlignRight" if pd.api.types.is_numeric_dtype(frame[name]) else "AlignLeft" for name in frame]
        table = pf.Table(
            pf.TableBody(*body), head=pf.TableHead(heads), caption=figure.caption, identifier=figure.identifier,
            colspec=[(align, "ColWidthDefault") for align in columns],
        )  # fmt: skip
        table.attributes = {"wide": image.attributes.get("wide", ""), "source": found.source()}
        self.drawn.append(found)
        self._check_width(table, line)
        return table

    def _table(self, table: pf.Table) -> None:
        """A table that is typed in the source; the cells cited in it are its source."""
        self._label(table.identifier)
        line = self.source.next_line(f"#{table.identifier}" if table.identifier else _columns(table)[0][0])
        self._check(table.attributes, "typed", line)
        cited: dict[str, Found] = {}

        def collect(element: pf.Element, doc: pf.Doc) -> None:
            if isinstance(element, pf.Span) and "number" in element.classes:
                cited[element.attributes["cell"]] = self.values[element.attributes["cell"]]

        for part in (table.head, *table.content):
            part.walk(collect)
        table.colspec = [("AlignLeft" if align == "AlignDefault" else align, width) for align, width in table.colspec]
        source = source_line([cited[name] for name in sorted(cited)])
        table.attributes = {"wide": table.attributes.get("wide", ""), "source": source}
        self._check_width(table, line)

    def _check(self, attributes: dict[str, str], kind: str, line: int) -> None:
        for name, value in attributes.items():
            _, form, kinds = ATTRIBUTES.get(name, ("", "", ()))
            if kind not in kinds or not re.fullmatch(form, value):
                examples = ", ".join(example for example, _, having in ATTRIBUTES.values() if kind in having)
                self.fault(line, f"{name}={value!r} is no attribute here; those there are: {examples}")

    def _check_width(self, table: pf.Table, line: int) -> None:
        wide = table.attributes["wide"] == "true"
        words = [
            max(len(word) for cell in column for word in re.split(r"[ \n/-]", cell)) for column in _columns(table)
        ]
        if sum(words) + len(words) > (COLUMN if self.template == "paper" and not wide else PAGE):
            advice = "show fewer columns" + ("" if wide else ", or add wide=true")
            self.fault(line, f"the table's {len(words)} columns do not fit: {advice}")


def typeset(tree: pf.Doc, target: str, folder: Path, template: str) -> pf.Doc:
    """Prepare a resolved tree for pandoc's writer of `target` ("typst" or "latex"), and copy its pictures into `folder`."""
    if template == "slides":
        tree.content = _slides(list(tree.content))

    def raw(text: str) -> pf.RawInline:
        return pf.RawInline(text, format=target)

    def visit(element: pf.Element, doc: pf.Doc) -> Any:
        if isinstance(element, pf.Span) and "number" in element.classes:
            link = f"#number({quoted(element.attributes['cell'])})["
            return [raw(link), *element.content, raw("];")] if target == "typst" else list(element.content)
        if isinstance(element, pf.Span) and "reference" in element.classes:
            key = element.attributes["key"]
            return raw(f"#refer({quoted(key)});" if target == "typst" else rf"\ref{{{key}}}")
        if isinstance(element, pf.Image):
            file, figures = Path(element.url), folder / "figures"
            figures.mkdir(exist_ok=True)
            stem = re.sub(r"[^A-Za-z0-9-]+", "-", file.stem)  # TeX reads no others
            element.url = f"figures/{len(list(figures.iterdir())) + 1}-{stem}{file.suffix}"
            shutil.copy(file, folder / element.url)
        if isinstance(element, pf.Figure | pf.Table):
            wide, source = element.attributes.pop("wide") == "true", element.attributes.pop("source")
            return (_typst_figure if target == "typst" else _latex_float)(element, wide, source, template)
        return None

    return tree.walk(visit)


def _typst_figure(element: pf.Figure | pf.Table, wide: bool, source: str, template: str) -> list[pf.Element]:
    rules = []
    if isinstance(element, pf.Figure):
        (image,) = element.content[0].content
        rules.append(f"image(alt: {quoted(image.attributes.pop('alt'))})")
        if template == "slides":
            image.attributes = {}  # the template fits it into its room
    if template == "paper" and wide:
        rules.append('figure(scope: "parent")')
    elif template != "paper" and isinstance(element, pf.Table) and len(_rows(element)) > LONG:
        rules.append("block(breakable: true)")
    if source:
        if not element.caption.content:
            element.caption.content = [pf.Plain()]
        element.caption.content[-1].content.append(pf.RawInline(f"#source({quoted(source)})", format="typst"))
    begin = f"#[{' '.join(f'#set {rule};' for rule in rules)}"
    return [pf.RawBlock(begin, "typst"), element, pf.RawBlock("]", "typst")]


def _latex_float(element: pf.Figure | pf.Table, wide: bool, source: str, template: str) -> list[pf.Element]:
    """A float of a conference's class: the source is below, a table's caption above."""
    kind = ("figure" if isinstance(element, pf.Figure) else "table") + "*" * wide
    label = rf"\label{{{element.identifier}}}" if element.identifier else ""
    inlines = [inline for block in element.caption.content for inline in block.content]
    caption = pf.Plain(_latex(r"\caption{"), *inlines, _latex(f"}}{label}"))
    origin = [_latex(r"\footnotesize Source: "), pf.Str(f"{source}.")] if source else []
    if isinstance(element, pf.Figure):
        body = [*element.content, caption]
    else:
        lengths = [max(map(len, column)) for column in _columns(element)]
        if sum(lengths) + 2 * len(lengths) > TEX_COLUMN * (1 + wide):  # its columns wrap
            shares = [min(length, WRAPPED) + 1 for length in lengths]
            aligned = zip(element.colspec, shares, strict=True)
            element.colspec = [(align, share / sum(shares)) for (align, _), share in aligned]
        element.caption, element.identifier = pf.Caption(), ""
        body = [
            caption,
            pf.Plain(_latex(r"\footnotesize\setlength{\tabcolsep}{3pt}")),
            element,
            pf.Plain(_latex(r"\smallskip")),
        ]
    begin = pf.RawBlock(rf"\begin{{{kind}}}[tbp]\centering", "latex")
    return [begin, *body, pf.Plain(*origin), pf.RawBlock(rf"\end{{{kind}}}", "latex")]


def _latex(text: str) -> pf.RawInline:
    return pf.RawInline(text, format="latex")


def _slides(blocks: list[pf.Element]) -> list[pf.Element]:
    """`#slide[title][text][figure]...` for each heading of the first level, so that the template can place its parts."""
    slides: list[list[pf.Element]] = []
    for block in blocks:
        if isinstance(block, pf.Header) and block.level == 1:
            slides.append([block])
        elif slides:
            slides[-1].append(block)
    written = []
    for title, *rest in slides:
        raw = [pf.RawInline("#slide[", format="typst"), *title.content, pf.RawInline("][", format="typst")]
        figures = [block for block in rest if isinstance(block, pf.Figure)]
        written += [pf.Plain(*raw), *(block for block in rest if block not in figures)]
        for figure in figures:
            written += [pf.RawBlock("][", "typst"), figure]
        written.append(pf.RawBlock("]", "typst"))
    return written


def _row(cells: Sequence[str]) -> pf.TableRow:
    return pf.TableRow(*(pf.TableCell(pf.Plain(pf.Str(cell))) for cell in cells))


def _rows(table: pf.Table) -> list[pf.TableRow]:
    return [*table.head.content, *(row for body in table.content for row in body.content)]


def _columns(table: pf.Table) -> list[tuple[str, ...]]:
    """The texts of each column."""
    rows = [[pf.stringify(cell).strip() for cell in row.content] for row in _rows(table)]
    return list(zip(*rows, strict=True))


def _shown(cell: Any) -> str:
    import pandas as pd

    if isinstance(cell, str):
        return cell
    if pd.isna(cell):
        return formatting.ABSENT
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return formatting.number(cell).replace("-", formatting.MINUS) if isinstance(cell, float) else str(cell)

"""What a source cites: cells, claims, figures, tables, references, literature.

Before pandoc reads the text, `substitute` replaces each `{{set:table[key=value]|form}}` by an empty span with a number, which pandoc
parses as text. `Resolver` then completes pandoc's tree. Where pandoc's writers have no notation, it adds raw Typst and raw LaTeX side
by side, of which a writer keeps its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pandas as pd
import panflute as pf

from hpc_utils import toml_config
from hpc_utils.publish import cells, formatting
from hpc_utils.publish.cells import UnknownCell

from . import pandoc
from .claim_texts import ClaimTexts
from .faults import Faults, Source
from .number_lint import CLASSES
from .sets import NOT_MEASURED, SetItem, Sets, source_line

REFERENCES = ("fig", "tbl", "tab", "sec", "eq")
# Attributes of figures and tables, and their forms.
OPTIONS = {"wide": "true|false", "width": r"\d+%", "columns": ".+", "rows": r"[1-9]\d*", "source": ".+"}
PICTURES = (".pdf", ".png", ".jpg", ".jpeg", ".svg")
SHORT = 25  # characters of a setting that stay on one line
_CITATION = re.compile(
    r"^(?P<fence>```+|~~~+).*?^(?P=fence)|(?<!`)(?P<ticks>`+)(?!`)(?:(?!\n\n).)*?(?<!`)(?P=ticks)(?!`)"
    r"|\{\{(?P<cited>[^{}\n]*)\}\}|(?P<open>\{\{)",
    re.M | re.S,
)
# A unit typed behind a cell, which prints its own.
_UNIT = re.compile(
    r"[\s\u00a0\u202f]*(%|‰|per\s?cent\b|(?:node|core|device|[GC]PU)[\s-]hours?\b|(?:ms|µs|us|ns|s|min|h|[kMGTP]?(?:i?B|bit|flop)(?:/s)?|[km]?Wh?|EUR)(?![\w-]))"
)


@dataclass(frozen=True)
class Cited:
    """A citation as printed. `item` is None where the citation is wrong, or a planned set lacks the cell."""

    line: int
    written: str
    item: SetItem | None = None
    text: str = ""


def substitute(text: str, file: str, sets: Sets, claims: ClaimTexts, faults: Faults) -> tuple[str, dict[str, Cited]]:
    """The text with a placeholder for each cited cell and with the claims' sentences; code is unchanged.

    A cell or claim that does not exist is a fault, except a cell that a planned set lacks.
    """
    cited: dict[str, Cited] = {}

    def replace(match: re.Match[str]) -> str:
        line = text.count("\n", 0, match.start()) + 1
        if match["open"]:
            faults.add(file, line, "the braces of a cited cell are open, or more than one line apart")
        if match["cited"] is None:
            return match[0]
        written, _, form = (part.strip() for part in match["cited"].partition("|"))
        try:
            if written == "claims":
                return "\n".join(f"- {_sentence(claims, name)}" for name in claims.sentences)
            if written.startswith("claim:"):
                return _sentence(claims, written.removeprefix("claim:"))
            value = sets.value(written)
            citation = Cited(line, written, value, formatting.text(value.content, form or "value"))
            unit_text = formatting.text(value.content).partition(formatting.FIXED)[2]
            if (unit := _UNIT.match(text, match.end())) and (form != "bare" or unit[1] != unit_text):
                faults.add(
                    file, line, f"the unit {unit[1]!r} stands behind {written}, which prints {citation.text!r}"
                )
        except (UnknownCell, formatting.FormatError) as error:
            if not (planned := sets.is_planned(written, error)):
                faults.add(file, line, str(error))
            citation = Cited(line, written, text=f"[{NOT_MEASURED}]" if planned else "")
        number = str(len(cited))
        cited[number] = citation
        return f"[]{{.cell n={number}}}"

    return _CITATION.sub(replace, text), cited


def _sentence(claims: ClaimTexts, name: str) -> str:
    if name not in claims.sentences:
        raise UnknownCell(f"no claim {name!r}: {toml_config.hint(name, claims.sentences)}")
    claims.printed.add(name)
    return f"[{claims.sentences[name]}]{{.claim}}"


class Resolver:
    """Completes the tree of a document; faults are reported at lines of its `source`.

    `values`, `drawn`: the cells, and the results' figures and tables, that it shows; `pictures`: {address in the output: file};
    `keys`: of the bibliography; `numbers`: the PDF that the cells lead to.
    """

    def __init__(
        self, source: Source, cells: dict[str, Cited], sets: Sets, keys: set[str], folder: Path, numbers: str
    ) -> None:
        self.source = source
        self.fault = source.fault
        self.cells = cells
        self.sets = sets
        self.keys = keys
        self.folder = folder
        self.numbers = numbers
        self.values: dict[str, SetItem] = {}
        self.drawn: list[SetItem] = []
        self.pictures: dict[str, Path] = {}
        self.cites = False
        self._printed: set[str] = set()
        self._labels: set[str] = set()
        self._references: list[str] = []

    def run(self, tree: pf.Doc) -> pf.Doc:
        tree = tree.walk(lambda element, doc: getattr(self, f"_{element.tag.lower()}", lambda element: None)(element))
        for number, cell in self.cells.items():
            if cell.text and number not in self._printed:
                self.fault(cell.line, f"{{{{{cell.written}}}}} cannot stand in a formula, an attribute or an address")
        for key in self._references:
            if key not in self._labels:
                self.fault(f"@{key}", f"nothing is labelled #{key}")
        return tree

    def _span(self, span: pf.Span) -> pf.Element | list | None:
        if "cell" in span.classes:
            number = span.attributes.get("n", "")
            self._printed.add(number)
            cell = self.cells.get(number)
            if not cell or not cell.text:
                return []
            if not cell.item:
                return pf.Str(cell.text)
            name = cell.item.full
            self.values.setdefault(name, cell.item)
            address = f"{self.numbers}#nameddest=number:{name}"
            text = cell.text
            if cell.item.is_imported and cell.item.content.unit not in ("text", "count") and not _in_table(span):
                text += "\u00a0(imported)"  # of a table its source says so
            return pf.Link(pf.Str(text), url=address, classes=["number"], title=name)
        text = pf.stringify(span)
        if set(CLASSES) & set(span.classes) and len(text) < SHORT:
            return pf.Span(pf.Str(text.replace(" ", "\u00a0")), classes=span.classes)
        return None

    def _rawinline(self, raw: pf.RawInline | pf.RawBlock) -> list:
        if not raw.text.lstrip().startswith("<!--"):
            self.fault(raw.text, f"raw {raw.format} {raw.text[:40]!r}: a source is Markdown alone")
        return []

    _rawblock = _rawinline

    def _div(self, div: pf.Div) -> list[pf.Element] | None:
        """What a template asks its writer for, in a box as high as the text that replaces it."""
        if "guide" not in div.classes:
            return None
        height = div.attributes.get("height", "auto")
        if not re.fullmatch(r"auto|\d+%", height):
            self.fault(f"height={height}", f"height={height!r}: a guide's height is a share of the page, such as 20%")
        return [pf.RawBlock(f"#guide({height})[", "typst"), *div.content, pf.RawBlock("]", "typst")]

    def _header(self, header: pf.Header) -> None:
        self._label(header.identifier, self.source.next_line(f"#{header.identifier}"))
        if self.cites and pf.stringify(header) == "References":
            self.fault("# References", "the bibliography has this heading already: remove it")

    def _label(self, label: str, line: int) -> None:
        if label and label in self._labels:
            self.fault(line, f"the label #{label} is given twice")
        self._labels.add(label)

    def _cite(self, cite: pf.Cite) -> list[pf.Element] | None:
        keys = [citation.id for citation in cite.citations]
        if keys[0].partition(":")[0] in REFERENCES:
            self._references += keys
            return [raw for key in keys for raw in _raw(f"#refer({pandoc.quoted(key)});", rf"\ref{{{key}}}")]
        self.cites = True
        for citation in cite.citations:
            if citation.id not in self.keys:
                self.fault(f"@{citation.id}", f"no entry {citation.id!r} in the bibliography")
            if citation.prefix:
                passage = f"{pf.stringify(citation.prefix)} @{citation.id}"
                self.fault(passage, f"text before a key is not printed: write it before the bracket, not {passage!r}")
        return None

    def _image(self, image: pf.Image) -> list | None:
        if isinstance(image.parent.parent, pf.Figure):
            return None
        self.fault(f"]({image.url}", "a figure needs a paragraph of its own, and a caption between its brackets")
        return []

    def _figure(self, figure: pf.Figure) -> list[pf.Element]:
        image = figure.content[0].content[0]
        line = self.source.next_line(f"]({image.url}")
        options = image.attributes
        kind, _, name = image.url.partition(":")
        try:
            if kind == "table":
                return self._result_table(figure, options, self.sets.item("tables", name), line)
            if kind == "figure":
                item = self.sets.item("figures", name)
                self.drawn.append(item)
                path = self.sets.by_alias[item.alias].folder / item.content.file
                source = source_line([item])
                usual_width = {}  # as it was drawn
            else:
                path = self.folder / unquote(image.url)
                source = options.get("source", "")
                usual_width = {"width": "100%"}
                if not path.is_file() or path.suffix not in PICTURES or not source:
                    raise UnknownCell(
                        f"{image.url}: write figure:NAME, table:NAME or a file ({', '.join(PICTURES)}) and "
                        'source="drawn by the authors"'
                    )
        except (UnknownCell, ValueError, OSError) as error:
            if self.sets.is_planned(name, error):
                return self._float(_placeholder(figure, kind), options, "", line)
            self.fault(line, str(error))
            self._label(figure.identifier, line)
            return []
        stem = re.sub(r"[^A-Za-z0-9-]+", "-", path.stem)  # TeX reads no others
        image.url = f"figures/{len(self.pictures) + 1}-{stem}{path.suffix}"
        self.pictures[image.url] = path
        width = {"width": options["width"]} if "width" in options else usual_width
        image.attributes = width | {"alt": pf.stringify(figure.caption).strip()}
        return self._float(figure, options, source, line)

    def _result_table(self, figure: pf.Figure, options: dict[str, str], item: SetItem, line: int) -> list[pf.Element]:
        exported_frame = self.sets.by_alias[item.alias].exported.frame(item.content.name)
        frame = cells.with_settings(exported_frame)
        wanted = [name.strip() for name in options.get("columns", ",".join(exported_frame)).split(",")]
        if unknown := [name for name in wanted if name not in frame]:
            raise UnknownCell(f"the table {item.content.name} has no column {', '.join(unknown)}")
        frame = frame[wanted].head(int(options.get("rows", len(frame))))
        self.drawn.append(item)
        texts = frame.rename(columns=lambda name: name.replace("_", " ")).map(_text)
        table = pandoc.parse(texts.to_csv(index=False), "csv").content[0]
        sides = ["AlignRight" if pd.api.types.is_numeric_dtype(frame[name]) else "AlignLeft" for name in frame]
        table.colspec = [(side, "ColWidthDefault") for side in sides]
        table.caption, table.identifier = figure.caption, figure.identifier
        return self._float(table, options, source_line([item]), line)

    def _table(self, table: pf.Table) -> list[pf.Element]:
        """A table that is typed in the source; the cells cited in it are its source."""
        line = self.source.next_line(f"#{table.identifier}") if table.identifier else 0
        cited: dict[str, SetItem] = {}

        def collect(element: pf.Element, doc: pf.Doc) -> None:
            if isinstance(element, pf.Link) and "number" in element.classes:
                cited[element.title] = self.values[element.title]

        for part in (table.head, *table.content):
            part.walk(collect)
        table.colspec = [("AlignLeft" if side == "AlignDefault" else side, width) for side, width in table.colspec]
        return self._float(table, dict(table.attributes), source_line([cited[name] for name in sorted(cited)]), line)

    def _float(
        self, element: pf.Figure | pf.Table, options: dict[str, str], source: str, line: int
    ) -> list[pf.Element]:
        """The figure or table with its source at the end of the caption, over both columns if it is wide."""
        for name, value in options.items():
            if not re.fullmatch(OPTIONS.get(name, "(?!)"), value):
                attributes = ", ".join(f"{option} ({form})" for option, form in OPTIONS.items())
                self.fault(line, f"{name}={value!r} is no attribute of a figure or table: {attributes}")
        self._label(element.identifier, line)
        if source:
            words = [*_raw("#source[", r" {\normalfont\footnotesize Source: "), pf.Str(source), *_raw("];", ".}")]
            blocks = element.caption.content or [pf.Plain()]
            blocks[-1].content.extend(words)
            element.caption.content = blocks
        if isinstance(element, pf.Table):
            for cell in (cell for row in pandoc.table_rows(element) for cell in row.content):
                if re.match(r"[-+=/] ", pf.stringify(cell)):  # Typst would begin a list
                    cell.content[0].content.insert(0, pf.RawInline("\\", "typst"))
        element.attributes = {}
        if options.get("wide") != "true":
            return [element]
        element.attributes = {"wide": "true"}
        begin, end = (pf.RawBlock(text, "latex") for text in (r"\begin{wide}", r"\end{wide}"))
        return [pf.RawBlock("#wide[", "typst"), begin, element, end, pf.RawBlock("]", "typst")]


def _in_table(element: pf.Element) -> bool:
    while (element := element.parent) is not None:
        if isinstance(element, pf.Table):
            return True
    return False


def _placeholder(figure: pf.Figure, kind: str) -> pf.Figure | pf.Table:
    """The figure, or instead of it the table, with nothing but "not measured" above its caption."""
    if kind == "table":
        table = pandoc.parse(NOT_MEASURED, "csv").content[0]
        table.caption, table.identifier = figure.caption, figure.identifier
        return table
    figure.content = [pf.Plain(pf.Str(NOT_MEASURED))]
    return figure


def _raw(typst: str, latex: str) -> list[pf.RawInline]:
    return [pf.RawInline(typst, "typst"), pf.RawInline(latex, "latex")]


def _text(cell: Any) -> str:
    """A field of a results' table, as documents print it."""
    if isinstance(cell, float):
        return formatting.ABSENT if cell != cell else formatting.number(cell).replace("-", formatting.MINUS)
    return str(cell)

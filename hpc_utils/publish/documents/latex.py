"""A filled document as TeX for a conference's class: a folder that compiles by itself with pdflatex and bibtex."""

from __future__ import annotations

import re
import shutil
import string
import unicodedata
from importlib import resources
from pathlib import Path
from typing import Any

from hpc_utils.records import atomic

from .drawings import Drawing
from .faults import Faults
from .filled import Filled
from .fonts import named
from .tree import Node, para, plain, raw, replaced
from .writer import around, convert

TARGET = "latex"
LETTERS = 56  # of a table's row that fit in a column
WRAPPED = 12  # columns with longer cells wrap in a table that is too wide
# What pdflatex has no character for, in words of its own.
UNICODE = {
    "\u202f": r"\,", "\u2009": r"\,", "\u00a0": "~", "\u2212": r"\ensuremath{-}", "\u00d7": r"\ensuremath{\times}",
    "\u2192": r"\ensuremath{\rightarrow}", "\u2190": r"\ensuremath{\leftarrow}", "\u2264": r"\ensuremath{\le}",
    "\u2265": r"\ensuremath{\ge}", "\u2248": r"\ensuremath{\approx}", "\u2260": r"\ensuremath{\neq}",
    "\u00b1": r"\ensuremath{\pm}", "\u00b5": r"\textmu{}", "\u03bc": r"\textmu{}", "\u00b7": r"\ensuremath{\cdot}",
    "\u221e": r"\ensuremath{\infty}", "\u2030": r"\textperthousand{}", "\u2026": r"\ldots{}", "\u2022": r"\textbullet{}",
    "\u20ac": "EUR", "\u00b0": r"\textdegree{}", "\u2011": "-", "\u00b2": r"\ensuremath{^2}", "\u00b3": r"\ensuremath{^3}",
    "\u221a": r"\ensuremath{\surd}", "\u2032": r"\ensuremath{'}",
}  # fmt: skip
_SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
}  # fmt: skip


def export(
    filled: Filled,
    folder: Path,
    style: str,
    meta: dict[str, Any],
    bibliography: list[Path],
    faults: Faults,
    name: str,
) -> None:
    """Write `<name>.tex`, its bibliographies and `figures/` into `folder`, emptied before; `style`: ieee or acm."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    writer = _Writer(_pictures(filled.drawings, folder))
    template = resources.files(__package__).joinpath("templates", f"{style}.tex").read_text(encoding="utf-8")
    parts = {key: writer.blocks(blocks) for key, blocks in filled.words.items()}
    text = _Template(template).substitute(
        title=parts.get("title", ""),
        subtitle=parts.get("subtitle", ""),
        short=escaped(meta["short"]),
        authors=_authors(meta["authors"], style),
        abstract=parts.get("abstract", ""),
        keywords=escaped(", ".join(meta["keywords"])),
        body=writer.blocks(filled.body),
        colophon="\n\n".join(
            rf"\textit{{{escaped(what.strip())}:}} {escaped(said)}" for what, said in meta["colophon"]
        ),
        references=rf"\bibliography{{{','.join(file.stem for file in bibliography)}}}"
        if filled.cited and bibliography
        else "",
    )
    for file in bibliography:
        shutil.copy(file, folder / file.name)
    atomic.write_text(folder / f"{name}.tex", _ascii(text, filled, faults))


def escaped(text: str) -> str:
    """Text that TeX prints as it is."""
    return "".join(_SPECIAL.get(letter, letter) for letter in text)


class _Template(string.Template):
    delimiter = "@@"


class _Writer:
    def __init__(self, pictures: dict[int, str]) -> None:
        self.pictures = pictures

    def blocks(self, blocks: list[Node]) -> str:
        return convert(blocks, TARGET, self.change)

    def change(self, node: Node) -> list[Node] | None:
        kind, content = node["t"], node.get("c")
        if kind == "Value":
            return [raw(TARGET, escaped(content["text"]))]
        if kind == "Refer":
            return [raw(TARGET, rf"\ref{{{content}}}")]
        if kind == "Quote":
            return [raw(TARGET, _cite(content["keys"]))]
        if kind == "Drawing":
            return [para(self.drawing(content))]
        return None

    def drawing(self, drawing: Drawing) -> list[Node]:
        kind = drawing.kind + ("*" if drawing.wide else "")
        label = rf"\label{{{drawing.label}}}" if drawing.label else ""
        source = rf"{{\footnotesize Source: {escaped(drawing.source)}.}}" if drawing.source else ""
        width = rf"{int(drawing.width.removesuffix('%')) / 100:g}\linewidth"
        said = replaced(drawing.caption, self.change)
        if drawing.kind == "figure":
            picture = rf"\includegraphics[width={width}]{{{self.pictures.get(id(drawing), '')}}}" + "\n\\caption{"
            body = around(TARGET, picture, said, f" {source}}}{label}\n")
        else:  # its caption stands above, in capitals in some classes; the source below
            below = raw(TARGET, f"\n\n\\smallskip {source}\n")
            body = [*around(TARGET, "\\caption{", said, f"}}{label}\n"), *self._table(drawing), below]
        return around(TARGET, f"\\begin{{{kind}}}[tbp]\\centering\n", body, f"\\end{{{kind}}}")

    def _table(self, drawing: Drawing) -> list[Node]:
        begin, end = _frame(drawing)
        nodes = [raw(TARGET, f"\\footnotesize\\setlength{{\\tabcolsep}}{{3pt}}{begin}\\toprule\n")]
        for place, row in enumerate(drawing.rows):
            for number, cell in enumerate(row):
                nodes += [raw(TARGET, " & ")] if number else []
                nodes += replaced(cell, self.change)
            nodes.append(raw(TARGET, r" \\" + (r" \midrule" if not place else "") + "\n"))
        return [*nodes, raw(TARGET, rf"\bottomrule{end}" + "\n")]


def _frame(drawing: Drawing) -> tuple[str, str]:
    """What a table's rows stand in: columns as wide as they are, or, where that is too wide, long ones that wrap."""
    widths = [max(len(plain(row[number])) for row in drawing.rows) for number in range(len(drawing.left))]
    letters = ["l" if words else "r" for words in drawing.left]
    if sum(widths) + 2 * len(widths) <= (LETTERS * 2 if drawing.wide else LETTERS):
        return rf"\begin{{tabular}}{{@{{}}{''.join(letters)}@{{}}}}", r"\end{tabular}"
    for number, width in enumerate(widths):
        if width > WRAPPED:
            letters[number] = rf">{{\{'raggedright' if drawing.left[number] else 'raggedleft'}\arraybackslash}}X"
    width = r"\textwidth" if drawing.wide else r"\columnwidth"
    if not any("X" in letter for letter in letters):
        return rf"\fitted{{{width}}}{{\begin{{tabular}}{{@{{}}{''.join(letters)}@{{}}}}", r"\end{tabular}}"
    return rf"\begin{{tabularx}}{{{width}}}{{@{{}}{''.join(letters)}@{{}}}}", r"\end{tabularx}"


def _cite(keys: list[tuple[str, str]]) -> str:
    if len(keys) == 1 and keys[0][1]:
        return rf"\cite[{escaped(keys[0][1])}]{{{keys[0][0]}}}"
    return rf"\cite{{{','.join(key for key, _ in keys)}}}"


def _pictures(drawings: list[Drawing], folder: Path) -> dict[int, str]:
    """Figures under names that TeX can read."""
    found = {}
    for drawing in drawings:
        if drawing.file:
            stem = re.sub(r"[^A-Za-z0-9-]+", "-", drawing.file.stem)
            (folder / "figures").mkdir(exist_ok=True)
            found[id(drawing)] = f"figures/{stem}{drawing.file.suffix}"
            shutil.copy(drawing.file, folder / found[id(drawing)])
    return found


def _authors(authors: list[dict[str, Any]], style: str) -> str:
    authors = authors or [{"name": "", "more": []}]
    if style == "acm":
        return "\n".join(
            rf"\author{{{escaped(one['name'])}}}"
            "\n"
            rf"\affiliation{{\institution{{{escaped(', '.join(one['more'][:1]))}}}\country{{}}}}"
            for one in authors
        )
    return "\n\\and\n".join(
        rf"\IEEEauthorblockN{{{escaped(one['name'])}}}"
        "\n"
        rf"\IEEEauthorblockA{{{escaped(', '.join(one['more']))}}}"
        for one in authors
    )


def _ascii(text: str, filled: Filled, faults: Faults) -> str:
    """Characters that pdflatex does not know, in words that it knows."""
    said = []
    for letter in text:
        if letter in UNICODE:
            said.append(UNICODE[letter])
        elif letter.isascii() or unicodedata.category(letter) in ("Pd", "Pi", "Pf") or letter < "\u0180":
            said.append(letter)
        else:
            faults.add(
                filled.source.file, 0, f"TeX has no {named(letter)}: use another character, or no `tex` in paper.toml"
            )
    return "".join(said)

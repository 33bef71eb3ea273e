"""A filled document as Typst, and Typst as PDF: the same bytes from the same sources."""

from __future__ import annotations

import json
import re
import shutil
from importlib import resources
from pathlib import Path
from typing import Any

from .drawings import Drawing
from .faults import Faults
from .filled import Filled
from .number_lint import CLASSES
from .tree import Node, classes, para, plain, raw, replaced, walk
from .writer import around, convert

TARGET = "typst"
MAIN = "main.typ"
LONG = 18  # rows of a table that may break over pages, with its heading repeated
SHORT = 25  # characters of a setting that stay on one line


def write(filled: Filled, folder: Path, template: str, meta: dict[str, Any], bibliography: list[Path]) -> None:
    """Everything that the compiler needs, in an empty `folder`: sources, templates, figures, bibliography."""
    for file in resources.files(__package__).joinpath("templates").iterdir():
        if file.name.endswith(".typ"):
            (folder / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
    pictures = _pictures(filled.drawings, folder)
    writer = _Writer(pictures, columns=2 if template == "paper" else 1)
    lines = [
        f'#import "common.typ": *\n#import "{template}.typ": *',
        '#let meta = json("meta.json")',
        "#show: document.with(meta",
    ]
    lines += [f"  , {name}: [{writer.blocks(blocks)}]" for name, blocks in filled.words.items()]
    lines.append(")\n")
    lines.append(writer.slides(filled.body) if template == "slides" else writer.blocks(filled.body))
    if filled.cited and bibliography:
        for file in bibliography:
            shutil.copy(file, folder / file.name)
        lines.append(f"\n#references(({''.join(f'{quoted(file.name)}, ' for file in bibliography)}))")
    lines.append("\n#colophon(meta)")
    (folder / MAIN).write_text("\n".join(lines) + "\n", encoding="utf-8")


def compile_(folder: Path, file: str, faults: Faults) -> bytes | None:
    """The PDF of `folder`; what the compiler refuses is a fault of `file`."""
    import typst

    try:
        return typst.compile(str(folder / MAIN), root=str(folder), font_paths=fonts(folder), ignore_system_fonts=True)
    except typst.TypstError as error:
        said = " ".join(str(getattr(error, "message", error)).split())
        hints = "; ".join(getattr(error, "hints", None) or [])
        faults.add(file, 0, f"Typst cannot set it: {said}" + (f" ({hints})" if hints else ""))
        return None


def fonts(folder: Path) -> list[str]:
    """Folders of fonts beside those that the compiler brings: matplotlib's sans serif, so that slides look like figures.

    Copied one by one: matplotlib's folder holds a font too that draws a box for every character there is.
    """
    import matplotlib

    target = folder / "fonts"
    target.mkdir(exist_ok=True)
    for file in (Path(matplotlib.get_data_path()) / "fonts/ttf").glob("DejaVuSans*.ttf"):
        if "Display" not in file.name:
            shutil.copy(file, target)
    return [str(target)]


def quoted(text: str) -> str:
    """A string literal."""
    return json.dumps(text, ensure_ascii=False)


def _pictures(drawings: list[Drawing], folder: Path) -> dict[int, str]:
    """Copies of the figures' files, by the drawing's id."""
    found = {}
    (folder / "figures").mkdir()
    for place, drawing in enumerate(drawings):
        if drawing.file:
            name = f"figures/{place}{drawing.file.suffix}"
            shutil.copy(drawing.file, folder / name)
            found[id(drawing)] = name
    return found


class _Writer:
    def __init__(self, pictures: dict[int, str], *, columns: int) -> None:
        self.pictures, self.columns = pictures, columns

    def blocks(self, blocks: list[Node]) -> str:
        return convert(blocks, TARGET, self.change)

    def change(self, node: Node) -> list[Node] | None:
        kind, content = node["t"], node.get("c")
        if kind == "Str" and (
            after := re.search("(?<=[0-9])\u2019", content)
        ):  # pandoc would write ', and Typst set a prime
            rest = {"t": "Str", "c": content[after.end() :]}
            return [{"t": "Str", "c": content[: after.start()]}, raw(TARGET, "\\u{2019}"), *self.inlines([rest])]
        if kind == "Value":
            return [raw(TARGET, f"#number({quoted(content['full'])}, {quoted(content['text'])});")]
        if kind == "Refer":
            return [raw(TARGET, f"#refer({quoted(content)});")]
        if kind == "Quote":
            return [raw(TARGET, "".join(_cite(key, where, content["prose"]) for key, where in content["keys"]))]
        if kind == "Drawing":
            return [para(self.drawing(content))]
        if kind == "Span" and set(CLASSES) & set(classes(node)) and len(plain(content[1])) < SHORT:
            return around(TARGET, "#box[", self.inlines(content[1]), "];")
        if kind == "Div" and (named := {"columns", "column"} & set(classes(node))):
            return self._columns(node) if "columns" in named else None
        return None

    def inlines(self, nodes: list[Node]) -> list[Node]:
        return replaced(nodes, self.change)

    def drawing(self, drawing: Drawing) -> list[Node]:
        options = [f"kind: {'image' if drawing.kind == 'figure' else 'table'}"]
        long = self.columns == 1 and drawing.kind == "table" and len(drawing.rows) > LONG
        if self.columns > 1 or drawing.kind == "figure":
            options.append("placement: auto" + (', scope: "parent"' if drawing.wide and self.columns > 1 else ""))
        label = f" <{drawing.label}>" if re.fullmatch(r"[\w:.-]+", drawing.label) else ""
        nodes = around(
            TARGET, "#figure(caption: [", self.inlines(drawing.caption), f"#source({quoted(drawing.source)})], "
        )
        nodes.append(raw(TARGET, ", ".join(options) + ", "))
        if drawing.kind == "figure":
            file = self.pictures.get(id(drawing), "")
            nodes.append(raw(TARGET, f"image({quoted(file)}, width: {drawing.width}, alt: {quoted(drawing.name)})"))
        else:
            nodes += self._table(drawing)
        nodes.append(raw(TARGET, f"){label}"))
        return around(TARGET, "#[#show figure: set block(breakable: true)\n", nodes, "]") if long else nodes

    def _table(self, drawing: Drawing) -> list[Node]:
        heads, *rows = drawing.rows or [[]]
        left = ", ".join("left" if words else "right" for words in drawing.left)
        nodes = [
            raw(TARGET, f"table(columns: {len(heads)}, align: ({left},), table.hline(stroke: 0.8pt), table.header(")
        ]
        for head in heads:
            nodes += around(TARGET, "[*", self.inlines(head), "*], ") if head else [raw(TARGET, "[], ")]
        nodes.append(raw(TARGET, "), table.hline(stroke: 0.4pt), "))
        for row in rows:
            for cell in row:
                nodes += around(TARGET, "[", self.inlines(cell), "], ")
        return [*nodes, raw(TARGET, "table.hline(stroke: 0.8pt))")]

    def _columns(self, node: Node) -> list[Node]:
        columns = [block for block in node["c"][1] if block["t"] == "Div"]
        blocks = [para([raw(TARGET, f"#grid(columns: (1fr,) * {len(columns)}, gutter: 1.5em, [")])]
        for place, column in enumerate(columns):
            blocks += replaced(column["c"][1], self.change)
            blocks.append(para([raw(TARGET, "], [" if place + 1 < len(columns) else "])")]))
        return blocks

    def slides(self, body: list[Node]) -> str:
        """A slide for each heading: its text and its figures apart, so that the template can place them."""
        said, current = [], []
        for block in [*body, {"t": "Header", "c": [1, ["", [], []], []]}]:
            if block["t"] == "Header" and block["c"][0] == 1:
                if current:
                    said.append(self._slide(current))
                current = [block]
            elif current:
                current.append(block)
        return "\n".join(said)

    def _slide(self, blocks: list[Node]) -> str:
        title = self.blocks([{"t": "Plain", "c": blocks[0]["c"][2]}])
        drawings = [block["c"] for block in blocks[1:] if block["t"] == "Drawing" and block["c"].kind == "figure"]
        text = [block for block in blocks[1:] if not (block["t"] == "Drawing" and block["c"].kind == "figure")]
        figures = "".join(
            f"(file: {quoted(self.pictures.get(id(one), ''))}, alt: {quoted(one.name)}, "
            f"caption: [{self.blocks([para(one.caption)])}#source({quoted(one.source)})]), "
            for one in drawings
        )
        return f"#slide([{title}], [{self.blocks(text)}], ({figures}))"


def _cite(key: str, locator: str, prose: bool) -> str:
    options = ', form: "prose"' if prose else ""
    options += f", supplement: {quoted(locator)}" if locator else ""
    return f"#cite(label({quoted(key)}){options});"


def letters(filled: Filled) -> dict[str, int]:
    """Every character of the text, with the line where it stands first."""
    found: dict[str, int] = {}
    for node in walk([*filled.words.values(), filled.body, [one.caption for one in filled.drawings]]):
        content = node.get("c")
        text = content if isinstance(content, str) else content[1] if node["t"] in ("Code", "CodeBlock") else ""
        for letter in text:
            found.setdefault(letter, node.get("line", 0))
    return found

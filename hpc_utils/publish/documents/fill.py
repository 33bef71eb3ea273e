"""A source with everything in its place: values, claims, references, figures and tables."""

from __future__ import annotations

import json
import re
from itertools import zip_longest

from hpc_utils import toml_config
from hpc_utils.publish import formatting
from hpc_utils.publish.cells import UnknownCell

from . import frontmatter, units
from .drawings import TYPED, Drawing, check, drawn, table
from .faults import Faults
from .filled import Around, Filled
from .marks import MARK, Mark, number, restore
from .number_lint import look, look_at
from .sets import UnknownName, UnreadableSet
from .sets import source as together
from .source import Part, Source, parse
from .tree import Node, para, plain, replaced, walk, words

PARA = para([])
_LOCATOR = re.compile(
    r"(?:\b(?:pp?|pages?|ch|chaps?|chapters?|secs?|sections?|figs?|figures?|tables?|tbl|eqs?|equations?|vols?|no|app|appendix|art|"
    r"lines?|col|columns?|thm|alg|part)\b\.?|§)\s*\d+(?:\.\d+)*(?:\s*[-–]\s*\d+(?:\.\d+)*)?\b(?!\s*%)", re.I,
)  # fmt: skip
_COMMENT = re.compile(r"<!--.*-->\s*$", re.S)
_VERSION = re.compile(r"v?\d+(\.\d+)*([-+. ]?[a-z]+\d*)?")
_APOSTROPHE = re.compile(r"(?<=\w)'(?=\w)")
_TEX = re.compile(r"\\[A-Za-z]+")


def fill(source: Source, around: Around, faults: Faults) -> Filled:
    """Everything filled in; what cannot be is a fault with its line, and a gap."""
    return _Filler(source, around, faults).run()


class _Filler:
    def __init__(self, source: Source, around: Around, faults: Faults) -> None:
        self.around, self.faults = around, faults
        self.filled = Filled(source)
        self.source = source
        self.labels: dict[str, int] = {}

    def fault(self, line: int, message: str) -> None:
        self.faults.add(self.source.file, line, message)

    def run(self) -> Filled:
        for part in self.source.parts:
            typed, said = look(part)
            self.filled.said += said
            for one in typed:
                advice = "cite it there: [@key]" if "cites" in one.why else _advice(one.passage, one.why)
                self.fault(one.line, f"{one.passage!r} {one.why}: {advice}")
        for key, text in frontmatter.plain(self.source.front):
            line = self.source.starts[key]
            if "{{" in text:
                self.fault(line, f"no value can stand in `{key}`: it is printed as it is")
            if not (key == "version" and _VERSION.fullmatch(text)):
                self._no_number(text, line, f"`{key}`")
        for name, part in self.source.words.items():
            self.filled.words[name] = self._part(part)
        self.filled.body = self._part(self.source.body)
        if not self.filled.body:
            self.fault(0, "there is no text below the front matter: write some")
        for name in ("title", "subtitle"):
            if [block["t"] for block in self.filled.words.get(name, [PARA])] != ["Para"]:
                self.fault(
                    self.source.starts.get(name, 1),
                    f"`{name}` is more than a line of text for Markdown: start with a word",
                )
        self._check_references()
        drawn = [[one.caption, one.rows if one.typed else []] for one in self.filled.drawings]
        for line, message in units.twice([*self.filled.words.values(), self.filled.body, drawn]):
            self.fault(line, message)
        return self.filled

    def _no_number(self, text: str, line: int, where: str) -> None:
        for one in look_at(text, line):
            self.fault(line, f"{one.passage!r} in {where} {one.why}: leave it out")

    def _part(self, part: Part) -> list[Node]:
        blocks = self._blocks(part.blocks, part)
        return replaced(blocks, lambda node: self._node(node, part))

    # Blocks: figures, tables with their captions, lists of claims, raw passages.

    def _blocks(self, blocks: list[Node], part: Part) -> list[Node]:
        kept: list[Node] = []
        skip = False
        for block, after in zip_longest(blocks, blocks[1:]):
            if skip:
                skip = False
                continue
            kind = block["t"]
            if kind == "Para" and (image := _only_image(block)):
                kept.append(self._drawing(image, part))
            elif kind == "Table":
                caption = after if after and after["t"] == "Para" and plain(after["c"]).startswith(":") else None
                skip = caption is not None
                kept.append(self._typed_table(block, caption, part))
            elif kind == "Para" and _only_claims(block, part):
                kept += self._all_claims()
            elif kind == "Div":
                kept.append({**block, "c": [block["c"][0], self._blocks(block["c"][1], part)]})
            elif kind == "Header":
                kept += self._heading(block)
            else:
                kept.append(block)
        return kept

    def _heading(self, block: Node) -> list[Node]:
        """`{-}` behind it leaves its number out; one above the references is the template's affair."""
        level, (label, classes, attributes), inlines = block["c"]
        said = plain(inlines).strip()
        if said.endswith("{-}"):
            inlines, classes = words(said.removesuffix("{-}").strip()), [*classes, "unnumbered"]
        if plain(inlines).strip().lower() in ("references", "bibliography"):
            return []
        if MARK.search(label) or re.search("[\ue000-\uf8ff]", label):
            label = ""  # it was made from a heading with a value
        if label:
            self.labels.setdefault(label, block["line"])
        return [{**block, "c": [level, [label, classes, attributes], inlines]}]

    def _drawing(self, image: Node, part: Part) -> Node:
        if MARK.search(json.dumps([image["c"][0], image["c"][2]], ensure_ascii=False)):
            self.fault(
                image["line"], "what stands behind a figure's caption cannot hold a value: write it in the caption"
            )
        drawing = drawn(image, self.around.sets, self.around.folder, self.fault)
        return self._placed(drawing, image["c"][1], part, image["line"])

    def _typed_table(self, block: Node, caption: Node | None, part: Part) -> Node:
        drawing, said = table(block, caption), []
        if caption is not None:
            said = _without_colon(caption["c"])
            for node in said:
                if "label" in node:
                    drawing.label, drawing.wide = node["label"][0], node["label"][1].get("wide") == "true"
                    check(node["label"][1], TYPED, node.get("line", block["line"]), self.fault)
            while said and said[-1]["t"] in ("Space", "SoftBreak"):
                said.pop()
        return self._placed(drawing, said, part, block["line"])

    def _placed(self, drawing: Drawing, caption: list[Node], part: Part, line: int) -> Node:
        drawing.caption = replaced(caption, lambda node: self._node(node, part))
        drawing.rows = replaced(drawing.rows, lambda node: self._node(node, part)) if drawing.typed else drawing.rows
        if drawing.typed:
            own = {node["c"]["full"] for node in walk(drawing.rows) if node["t"] == "Value"}
            drawing.source = together([self.filled.values[full] for full in sorted(own)])
        if drawing.label:
            self._label(drawing.label, line)
        drawing.line = line
        self.filled.drawings.append(drawing)
        return {"t": "Drawing", "c": drawing, "line": line}

    def _label(self, label: str, line: int) -> None:
        if label in self.labels:
            self.fault(line, f"#{label} is given twice, first in line {self.labels[label]}: rename one")
        self.labels[label] = line

    def _all_claims(self) -> list[Node]:
        items = [[para(self._claim(name))] for name in self.around.claims]
        return [{"t": "BulletList", "c": items}] if items else []

    def _claim(self, name: str) -> list[Node]:
        self.filled.claims.add(name)
        for value in self.around.rests_on.get(name, ()):
            found = self.around.sets.value(value)
            self.filled.values.setdefault(found.full, found)
        part = parse(self.around.claims[name])
        return replaced(part.blocks[0]["c"], lambda node: self._node(node, part)) if part.blocks else []

    # Inlines: marks, and what a source may not hold.

    def _node(self, node: Node, part: Part) -> list[Node] | None:
        kind, line = node["t"], node.get("line", 0)
        if kind in ("RawBlock", "RawInline"):
            if not (node["c"][0] == "html" and _COMMENT.match(node["c"][1].strip())):
                self.fault(line, f"raw {node['c'][0]} {node['c'][1][:40]!r}: a source is Markdown alone")
            return []
        if kind == "Str":
            return self._str(node, part)
        if kind in ("Code", "CodeBlock", "Math"):
            return [self._verbatim(node, part)]
        if kind == "Image":
            self.fault(line, "a figure stands in a paragraph of its own: blank lines before and after it")
            return []
        if kind == "Link" and MARK.search("".join(node["c"][2])):
            self.fault(line, "an address or its title cannot hold a value: write it beside the link")
        return None

    def _verbatim(self, node: Node, part: Part) -> Node:
        for match in MARK.finditer(node["c"][1]):
            mark = part.marks[number(match[1])]
            if node["t"] == "Math" and mark.kind == "value" and "." in mark.text:
                self.fault(mark.line, f"{{{{{mark.text}}}}} stands in a formula: write it beside the formula")
        return {**node, "c": [node["c"][0], restore(node["c"][1], part.marks)]}

    def _str(self, node: Node, part: Part) -> list[Node] | None:
        text = _APOSTROPHE.sub("\u2019", node["c"])  # after a digit Typst would set a prime
        if tex := _TEX.search(text):
            self.fault(
                node["line"], f"{tex[0]!r} looks like TeX: a source is Markdown alone; code stands in `backticks`"
            )
        if "{{" in text or "}}" in text:
            self.fault(node["line"], "a value's braces are open, or more than one line apart: {{its.name}}")
        if not MARK.search(text):
            return [{**node, "c": text}] if text != node["c"] else None
        nodes, at = [], 0
        for match in MARK.finditer(text):
            nodes += words(text[at : match.start()]) if match.start() > at else []
            nodes += self._mark(part.marks[number(match[1])])
            at = match.end()
        return nodes + (words(text[at:]) if at < len(text) else [])

    def _mark(self, mark: Mark) -> list[Node]:
        if mark.kind == "value":
            return self._value(mark)
        keys = [key for key, _ in mark.keys]
        if mark.kind == "reference":
            return [{"t": "Refer", "c": key, "line": mark.line} for key in keys]
        for key in keys:
            if key not in self.around.citations:
                near = toml_config.nearest(key, self.around.citations)
                self.fault(
                    mark.line, f"no entry {key!r} in the bibliography" + (f": did you mean {near}?" if near else "")
                )
        for _, locator in mark.keys:
            self._no_number(_LOCATOR.sub("", locator), mark.line, "a citation")
        known = [(key, locator) for key, locator in mark.keys if key in self.around.citations]
        self.filled.cited.update(key for key, _ in known)
        return [{"t": "Quote", "c": {"keys": known, "prose": mark.kind == "prose"}}] if known else []

    def _value(self, mark: Mark) -> list[Node]:
        name, _, form = (piece.strip() for piece in mark.text.partition("|"))
        if name == "claims":
            self.fault(mark.line, "{{claims}} stands in a paragraph of its own; one claim is {{claim:its-name}}")
            return []
        try:
            if name.startswith("claim:"):
                return self._known_claim(name.removeprefix("claim:"))
            found = self.around.sets.value(name)
            text = formatting.text(found.what, form or "value")
        except UnreadableSet:
            return []
        except (UnknownCell, formatting.FormatError) as error:
            self.fault(mark.line, str(error))
            return []
        self.filled.values.setdefault(found.full, found)
        said = {"text": text, "full": found.full, **units.of(found, form or "value")}
        return [{"t": "Value", "c": said, "line": mark.line}]

    def _known_claim(self, name: str) -> list[Node]:
        if name not in self.around.claims:
            known = (
                toml_config.hint(name, self.around.claims)
                if self.around.claims
                else "there are none, `claims` in paper.toml names their file"
            )
            raise UnknownName(f"no claim {name!r}: {known}")
        return self._claim(name)

    def _check_references(self) -> None:
        labels = set(self.labels)
        for node in walk([self.filled.body, *self.filled.words.values(), *(d.caption for d in self.filled.drawings)]):
            if node["t"] == "Refer" and node["c"] not in labels:
                hint = toml_config.hint(node["c"], labels) if labels else "nothing has a label"
                self.fault(node["line"], f"nothing is called #{node['c']}: {hint}")


def _advice(passage: str, why: str) -> str:
    said = f"write {{{{its.name}}}}, or say what it is: [{passage}]{{.setting}}, .cited, .plan, .definition or .name"
    return said if "typed" in why else said.replace("{{its.name}}", "the value's {{its.name}}")


def _only_image(block: Node) -> Node | None:
    solid = [node for node in block["c"] if node["t"] not in ("Space", "SoftBreak")]
    return solid[0] if len(solid) == 1 and solid[0]["t"] == "Image" else None


def _only_claims(block: Node, part: Part) -> bool:
    match = MARK.fullmatch(plain(block["c"]).strip())
    return bool(match) and part.marks[number(match[1])].text == "claims"


def _without_colon(inlines: list[Node]) -> list[Node]:
    first = {**inlines[0], "c": inlines[0]["c"].removeprefix(":")}
    rest = [first, *inlines[1:]] if first["c"] else inlines[1:]
    return rest[1:] if rest and rest[0]["t"] == "Space" else rest

"""The first draft of a mapping file, from a CSV's header and first rows; every guess says that it is one."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from hpc_utils.records import atomic

from . import guess
from .errors import ForeignError
from .mapping import FILL_IN, NAMES, NOT_COMPARABLE, OURS
from .runs import content_of
from .table import text_of

ROWS = 200  # looked at
EXAMPLES = {
    "workload": '"resnet50"', "dataset": '"imagenet"', "precision": '"fp32"', "device_name": '"A100-SXM4-40GB"',
    "samples": "1281167", "global_batch": "256", "batch_per_device": "32",
}  # fmt: skip
ABOUT = {
    "samples": "over all ranks, in the time of one row",
    "global_batch": "strong scaling",
    "batch_per_device": "weak scaling",
}


def write_draft(path: Path) -> Path:
    """Write a mapping for the CSV at `path` beside it, as .toml, and return where.

    Raises:
        ForeignError: the CSV cannot be read, or there is such a file already.
    """
    target, content = path.with_suffix(".toml"), content_of(path)
    if target.exists():
        raise ForeignError(f"{target} is there already: go on with it, or remove it")
    atomic.write_text(target, draft(content, path))
    return target


def draft(content: bytes, path: Path) -> str:
    """The mapping's text; it is refused as long as what says FILL IN is not filled in."""
    text, encoding = _decoded(content, path)
    delimiter = max(",;\t|", key=text.partition("\n")[0].count)
    table = _columns_of(text, delimiter, path)
    guesses = guess.columns(table)
    names = {one.name for one in guesses}
    sections = [
        _head(path.name, names),
        _columns(guesses, table),
        _constants(names),
        *(_values(one.name, table[one.theirs]) for one in guesses if one.name in guess.MEANT),
        _format(delimiter, encoding, [cell for cells in table.values() for cell in cells]),
    ]
    return "\n\n".join("\n".join(lines) for lines in map(list, sections) if lines) + "\n"


def _decoded(content: bytes, path: Path) -> tuple[str, str]:
    marked = content[:2] in (b"\xff\xfe", b"\xfe\xff")
    for encoding in ("utf-16",) if marked else ("utf-8",):
        try:
            return text_of(content, encoding, path), encoding
        except ForeignError:
            continue
    return text_of(content, "latin-1", path), "latin-1"  # any bytes are


def _columns_of(text: str, delimiter: str, path: Path) -> dict[str, list[str]]:
    try:
        rows = [*itertools.islice(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), ROWS)]
    except csv.Error as error:
        raise ForeignError(f"{path}: no CSV ({error})") from None
    names = [name.strip() for name in rows[0]] if rows else []
    if not any(names) or not all(name.isprintable() for name in names):
        raise ForeignError(f"{path}: its first line should name the columns")
    return {name: [row[place].strip() for row in rows[1:] if len(row) > place] for place, name in enumerate(names)}


def _head(file: str, names: set[str]) -> Iterator[str]:
    yield f"# Drafted by `hpc import --draft` for {_toml(file)}."
    yield f"# {FILL_IN} stands where only you know; look at the guesses too, then try: hpc import FILE --map THIS --dry-run"
    yield f'title = "{FILL_IN}"'
    yield f'source = "{FILL_IN}: who, where, address"'
    yield '# licence = "CC BY 4.0"'
    for name in ("throughput", "samples"):
        if name in names:
            yield _with(f'{name}_is = "{FILL_IN}"', '"global" (over all ranks) or "per_rank"')


def _columns(guesses: list[guess.Guess], table: dict[str, list[str]]) -> Iterator[str]:
    yield "[columns]  # our name = theirs"
    for name, theirs, scale, why in guesses:
        value = _toml(theirs) if scale == 1 else f"{{ column = {_toml(theirs)}, scale = {scale:g} }}"
        first = next(filter(None, table[theirs]), "")
        yield _with(f"{name} = {value}", f"guess by {why}; first: {_toml(first)}")
    names = {one.name for one in guesses}
    if "world_size" not in names and not {"nodes", "ranks_per_node"} <= names:
        yield f'world_size = "{FILL_IN}"'
    if not {"throughput", "seconds"} & names:
        yield f'seconds = "{FILL_IN}"'
    unused = [theirs for theirs in table if theirs not in {one.theirs for one in guesses}]
    for theirs in filter(guess.is_batch, unused):
        yield _with(f"# global_batch = {_toml(theirs)}", "or batch_per_device: which it is, nobody else can tell")
    yield from _listed("columns not used", map(_toml, unused))
    yield from _listed("not found", (name for name in NAMES if name not in names))


def _listed(title: str, names: Iterable[str]) -> Iterator[str]:
    if listed := ", ".join(names):
        yield f"# {title}: {listed}"


def _constants(names: set[str]) -> Iterator[str]:
    yield "[constants]  # the same in every row, in our units"
    for name, example in EXAMPLES.items():
        if name not in names:
            line = f"# {name} = {example}"
            yield _with(line, ABOUT[name]) if name in ABOUT else line


def _values(name: str, cells: list[str]) -> list[str]:
    """A translation of every word that is none of ours."""
    words = [word for word in dict.fromkeys(cells) if word and word not in OURS[name]]
    lines = [f"[values.{name}]  # their words in ours: {', '.join(OURS[name])}, or {_toml(NOT_COMPARABLE)}"]
    for word in words:
        ours = guess.word(name, word)
        lines.append(_with(f"{_toml(word)} = {_toml(ours)}", "guess") if ours else f'{_toml(word)} = "{FILL_IN}"')
    return lines if words else []


def _format(delimiter: str, encoding: str, cells: list[str]) -> list[str]:
    def any_like(pattern: str) -> bool:
        return any(re.fullmatch(pattern, cell, re.ASCII) for cell in cells)

    marks = {}
    if any_like(r"\d{1,3}(,\d{3})+(\.\d+)?") and not any_like(r"\d+,(\d{1,2}|\d{4,})"):
        marks = {"thousands": ","}
    elif any_like(r"[\d.]+,\d+"):
        marks = {"decimal": ","} | ({"thousands": "."} if any_like(r"\d{1,3}(\.\d{3})+(,\d+)?") else {})
    lines = [f"delimiter = {_toml(delimiter)}"] if delimiter != "," else []
    lines += [_with(f"{mark} = {_toml(value)}", "guess") for mark, value in marks.items()]
    lines += [_with(f"encoding = {_toml(encoding)}", "guess")] if encoding != "utf-8" else []
    return ["[format]", *lines] if lines else []


def _with(text: str, comment: str) -> str:
    return f"{text:<48}  # {comment}"


def _toml(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # else TOML and JSON write strings alike

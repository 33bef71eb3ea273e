"""From the bytes of a CSV to rows in our names, cell by cell; a row that cannot be read is named by its line."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hpc_utils import toml_config

from .errors import ForeignError, RowFault
from .mapping import COUNTS, LARGEST, NOT_COMPARABLE, OURS, WORDS, Mapping, Source
from .printed import Printed, number

MISSING = {"", "-", "--", "na", "n/a", "nan", "none", "null"}  # of numbers, in any case of letters
FORMULA = ("=", "+", "-", "@")  # a spreadsheet would execute what begins so


@dataclass
class Row:
    """One row in our names: words, whole numbers, and measures as they were printed; what is missing is left out."""

    line: int
    words: dict[str, str]
    counts: dict[str, int]
    measures: dict[str, Printed]
    comparable: bool = True
    said: list[str] = field(default_factory=list)  # what was derived, for the reader


def rows(content: bytes, mapping: Mapping, path: Path) -> tuple[list[Row], dict[int, str]]:
    """The rows of `content`, and {line: why} of those that cannot be read; empty lines count for nothing.

    Raises:
        ForeignError: it is no such text, or lacks a column that the mapping names.
    """
    lines = _lines(content, mapping, path)
    _, header = next(lines, (0, None))
    if header is None:
        raise ForeignError(f"{path}: empty; its first line should name the columns")
    if isinstance(header, str):
        raise ForeignError(f"{path}: {header}")
    places = _places([name.strip() for name in header], mapping, path)
    found, refused = [], {}
    for line, cells in lines:
        try:
            if isinstance(cells, str):
                raise RowFault(cells)
            if len(cells) < len(header) or any(cell.strip() for cell in cells[len(header) :]):
                raise RowFault(f"{len(cells)} fields, but the header has {len(header)}: is the file cut off?")
            found.append(_row(line, cells, places, mapping))
        except RowFault as fault:
            refused[line] = str(fault)
    return found, refused


def text_of(content: bytes, encoding: str, path: Path) -> str:
    """`content` as text without a byte-order mark."""
    try:
        return content.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise ForeignError(
            f"{path}: not {encoding} (byte {error.start}): [format] encoding says which, such as latin-1 or utf-16"
        ) from None
    except LookupError:
        raise ForeignError(f"{path}: format.encoding: {encoding!r} is no encoding of text") from None


def _lines(content: bytes, mapping: Mapping, path: Path) -> Iterator[tuple[int, list[str] | str]]:
    """(line, cells) of every line that is not empty; (line, why) where the file cannot be read on."""
    text = text_of(content, mapping.format.encoding, path)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=mapping.format.delimiter, strict=True)
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            yield reader.line_num, f"no CSV from here on ({error}): is the file cut off?"
            return
        if cells is None:
            return
        if any(cell.strip() for cell in cells):
            yield reader.line_num, cells


def _places(header: list[str], mapping: Mapping, path: Path) -> dict[str, int]:
    """{our name: which field of a row}."""
    for place, name in enumerate(header, 1):
        if not name.isprintable():
            raise ForeignError(f"{path}: the name of column {place}, {name!r}, is not one line of text")
    places = {}
    for name in sorted(mapping.columns.model_fields_set):
        theirs = getattr(mapping.columns, name).column
        if header.count(theirs) > 1:
            raise ForeignError(f"{path}: columns.{name}: two columns are called {theirs!r}")
        if theirs not in header:
            other = next((mark for mark in ";\t|," if len(header) == 1 and mark in header[0]), "")
            why = (
                f"is the delimiter {other!r}? ([format] delimiter)"
                if other
                else toml_config.hint(theirs, set(header))
            )
            raise ForeignError(f"{path}: columns.{name}: there is no column {theirs!r}: {why}")
        places[name] = header.index(theirs)
    return places


def _row(line: int, cells: list[str], places: dict[str, int], mapping: Mapping) -> Row:
    row = Row(line, {}, {}, {})
    for name in mapping.constants.model_fields_set:
        value = getattr(mapping.constants, name)
        if name in WORDS:
            _word(row, name, value, translated=True)
        elif name in COUNTS:
            row.counts[name] = value
        else:
            row.measures[name] = Printed(value)
    for name, place in places.items():
        cell, source = cells[place].strip(), getattr(mapping.columns, name)
        words = getattr(mapping.values, name, None) or {}
        if name in WORDS:
            _word(row, name, str(words.get(cell, cell)), translated=cell in words, own=cell)
        elif words.get(cell) == NOT_COMPARABLE:
            row.comparable = False
        elif str(words.get(cell, cell)).casefold() not in MISSING:
            _number(row, name, str(words.get(cell, cell)), source, mapping)
    return row


def _word(row: Row, name: str, word: str, *, translated: bool, own: str = "") -> None:
    if translated and word == NOT_COMPARABLE:
        row.comparable, word = False, own or word
    elif not translated and word and name in OURS and word not in OURS[name]:
        meant = toml_config.nearest(word, OURS[name])
        example = f'{word!r} = "{meant or NOT_COMPARABLE}"'
        raise RowFault(
            f"{name} is {word!r}, which is none of {', '.join(OURS[name])}: translate it in [values.{name}], "
            f"for instance {example}"
        )
    if not word.isprintable() or word.startswith(FORMULA):
        raise RowFault(f"{name} is {word!r}: a formula or no plain text; [values.{name}] can translate it")
    if word:
        row.words[name] = word


def _number(row: Row, name: str, text: str, source: Source, mapping: Mapping) -> None:
    marks = mapping.format
    try:
        printed = number(text, marks.decimal, marks.thousands)
    except ValueError as error:
        more = f" with the decimal mark {marks.decimal!r}" if any(digit.isdigit() for digit in text) else ""
        raise RowFault(f"column {source.column!r} ({name}): {error}{more}") from None
    scaled = printed.value * source.scale
    if name in COUNTS:
        if not scaled.is_integer() or abs(scaled) > LARGEST:
            raise RowFault(f"column {source.column!r} ({name}): {text!r} is not a whole number, or beyond all bounds")
        row.counts[name] = int(scaled)
    else:
        exact = name == "samples" and scaled.is_integer() and "e" not in text.lower()  # a count, written out
        row.measures[name] = Printed(scaled, 0.0 if exact else printed.slack)

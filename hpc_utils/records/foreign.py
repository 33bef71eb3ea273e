"""Other people's results: a CSV of theirs, read through a mapping file, checked as our own records are, and kept.

    found = foreign.read(Path("theirs.csv"), Path("theirs.toml"), "thesis-2024")
    foreign.keep(found, provenance)        # results/foreign/thesis-2024/
    runs = foreign.load()                  # one frame, column `foreign` names the set

The mapping file says which column is which of ours, and what its numbers mean:

    title = "ResNet-50 on 64 GPUs"
    source = "A. Author, thesis, 2024, table 3, https://..."
    throughput_is = "global"                        # or "per_rank"; likewise samples_is, if it is a column
    tolerance = 0.01                                # relative; only if throughput and time were timed apart
    [columns]                                       # ours = theirs
    world_size = "gpus"
    seconds = { column = "epoch_time_ms", scale = 0.001 }
    throughput = "images_per_sec"
    parallel = "mode"
    [constants]                                     # the same in every row, in our units
    samples = 50000                                 # over all ranks, in the time of one row
    [values.parallel]                               # their words in ours
    DDP = "ddp"
    DataParallel = "not comparable"                 # kept, but in no curve
    [format]                                        # where it is not a plain CSV
    delimiter = ";"
    decimal = ","

A row's throughput must follow from its own samples and seconds, within what the printed digits allow. If it does not, a
known error explains and corrects it (a global count taken once on every rank, one rank's count taken for all), or the
row is refused with its line. Missing numbers are derived only where they follow from others; the column `derived` lists
them.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, create_model, model_validator

from hpc_utils import paths, toml_config
from hpc_utils.config import RunConfig
from hpc_utils.toml_config import Strict

from . import atomic, checks, schema
from .folder import read_json

if TYPE_CHECKING:
    from collections.abc import Mapping as Table

    import pandas as pd

# Our names by what their cells hold.
WORDS = ("workload", "dataset", "parallel", "precision", "device_name")
COUNTS = (
    "world_size", "nodes", "ranks_per_node", "global_batch", "batch_per_device", "steps", "repeat", "epoch",
)  # fmt: skip
MEASURES = ("samples", "seconds", "throughput", "test_accuracy", "peak_allocated_bytes")
NAMES = (*WORDS, *COUNTS, *MEASURES)
LAYOUT = (
    "world_size",
    "nodes",
    "ranks_per_node",
    "global_batch",
    "batch_per_device",
)  # a run has, beside words and repeat

# The words that are allowed here; others need a translation, which may be any word.
OURS = {name: get_args(RunConfig.model_fields[name].annotation) for name in ("parallel", "precision")}
NOT_COMPARABLE = "not comparable"
FILL_IN = "FILL IN"
MISSING = {"", "-", "--", "na", "n/a", "nan", "none", "null"}  # of numbers, in any case of letters
FORMULA = ("=", "+", "-", "@")  # a spreadsheet would execute a cell that begins so
LARGEST = 2**53  # up to here every whole number is a float
LARGEST_TOLERANCE = 0.1  # relative; much beyond it two ranks' throughput could be one's
# Where the slack of the printed digits reaches half the distance from 1 to 2, they cannot tell two ranks from one.
BLURRED = math.log(2) / 2
UNITS = {1e3: ("milliseconds", 1e-3), 1e6: ("microseconds", 1e-6), 1 / 60: ("minutes", 60), 1 / 3600: ("hours", 3600)}
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)
# An integer's trailing zeros may come from rounding (12300 for 12345.6), though hardly before the third digit; and where
# programs write exponents they leave zeros out (1e+03 for 1000.2).
LEAST_DIGITS = 3
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}"
KEPT = ("source.csv", "mapping.toml", "runs.csv")
TEXT = (*WORDS, "run_id", "state", "settings", "device", "backend", "hardware_id", "host", "job_id", "digest", "commit",
        "started", "torch", "path", "foreign", "lines", "verdict", "correction", "derived")  # fmt: skip


class ForeignError(ValueError):
    """A file of foreign results, or its mapping, cannot be used; names the file, the key or line, and what to do."""

    exit_code = 2


class RowFault(ValueError):
    """One row cannot be used; the message says why."""


class Verdict(StrEnum):
    """What a row's own numbers say of its throughput, the gravest first."""

    PER_RANK = "counted once per rank"
    ONE_RANK = "one rank's samples"
    UNCHECKED = "throughput only, unchecked"
    COMPUTED = "computed"
    CONSISTENT = "consistent"


CORRECTIONS = {
    Verdict.PER_RANK: "the global samples were counted once per rank: throughput = samples / seconds instead",
    Verdict.ONE_RANK: "one rank's samples were taken for all: throughput = samples / seconds instead",
}
NOT_OF_A_RANK = "the throughput is global already, not a rank's as throughput_is says: samples / seconds instead"


# The mapping file


def _line(value: str) -> str:
    if not value.strip() or not value.isprintable():
        raise ValueError(f"expected one line of text, not {value!r}")
    if FILL_IN in value:
        raise ValueError("this is still to be filled in")
    return value


def _column(value: Any) -> Any:
    if isinstance(value, str):
        return {"column": value}
    if not isinstance(value, dict):
        raise ValueError(f'expected a column\'s name or {{ column = "...", scale = 0.001 }}, not {value!r}')
    return value


Line = Annotated[str, AfterValidator(_line)]
Count = Annotated[int, Field(ge=0, le=LARGEST, strict=True)]
Measure = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
OfRanks = Literal["global", "per_rank"]


class Source(Strict):
    """A column of theirs; its numbers times `scale` are in our unit."""

    column: Line
    scale: float = Field(1.0, gt=0, allow_inf_nan=False)


class Format(Strict):
    """How the file is written. A byte-order mark is removed in any case."""

    delimiter: str = Field(",", min_length=1, max_length=1)
    decimal: Literal[".", ","] = "."
    thousands: Literal["", ".", ",", " ", "'"] = ""
    encoding: Line = "utf-8"

    @model_validator(mode="after")
    def _apart(self) -> Format:
        if self.decimal == self.thousands:
            raise ValueError(f"decimal and thousands are both {self.decimal!r}")
        return self


def _tables(title: str, kinds: dict[str, Any]) -> type[Strict]:
    return create_model(title, __base__=Strict, **{name: (kind | None, None) for name, kind in kinds.items()})


Columns = _tables("Columns", dict.fromkeys(NAMES, Annotated[Source, BeforeValidator(_column)]))
Constants = _tables("Constants", {n: Line if n in WORDS else Count if n in COUNTS else Measure for n in NAMES})
Values = _tables("Values", dict.fromkeys((*WORDS, *COUNTS), dict[str, Line | Count]))


class Mapping(Strict):
    """A mapping file's content."""

    title: Line
    source: Line
    licence: Line | None = None
    throughput_is: OfRanks | None = None
    samples_is: OfRanks | None = None
    tolerance: float = Field(0.0, ge=0, le=LARGEST_TOLERANCE)
    format: Format = Format()
    columns: Columns
    constants: Constants = Constants()
    values: Values = Values()

    @property
    def names(self) -> set[str]:
        """Those of ours that it gives."""
        return self.columns.model_fields_set | self.constants.model_fields_set

    @model_validator(mode="after")
    def _whole(self) -> Mapping:
        columns = self.columns.model_fields_set
        for name in sorted(columns & self.constants.model_fields_set):
            raise ValueError(f"{name} is in [columns] and in [constants]: it can be one of them")
        for name in sorted(self.values.model_fields_set - columns):
            raise ValueError(f"values.{name}: there is no columns.{name} whose words it could translate")
        for name in sorted(columns & set(WORDS)):
            if getattr(self.columns, name).scale != 1:
                raise ValueError(f"columns.{name}: words have no scale")
        # Samples of [constants] are global by definition.
        for name, given in (("throughput", self.names), ("samples", columns)):
            if name in given and getattr(self, f"{name}_is") is None:
                raise ValueError(f'{name}_is: {name} is read, so say "global" (over all ranks) or "per_rank"')
        if "world_size" not in self.names and not {"nodes", "ranks_per_node"} <= self.names:
            raise ValueError("columns: world_size is needed, or nodes and ranks_per_node")
        if not {"throughput", "seconds"} & self.names:
            raise ValueError("columns: throughput is needed, or seconds with samples (or steps and a batch)")
        return self


def read_mapping(path: Path) -> Mapping:
    """The mapping file at `path`.

    Raises:
        ForeignError: there is none, or it is wrong; names file, key and what is allowed.
    """
    try:
        return toml_config.read(path, Mapping, ForeignError)
    except FileNotFoundError:
        raise ForeignError(
            f"{path}: no such mapping file; `hpc import --draft FILE.csv` writes an empty one"
        ) from None


def draft(path: Path) -> Path:
    """Write an empty mapping for the CSV at `path` beside it, with the names of its columns, and return where.

    Raises:
        ForeignError: the CSV cannot be read, or the mapping exists.
    """
    target, header = path.with_suffix(".toml"), _content(path).split(b"\n", 1)[0].decode(errors="replace").strip()
    if target.exists():
        raise ForeignError(f"{target} exists: edit or remove it")
    lines = [
        "# Fill in, remove what the file does not have, then: hpc import FILE.csv --map THIS --dry-run",
        f'title = "{FILL_IN}"',
        f'source = "{FILL_IN}"  # who, where, address',
        f'throughput_is = "{FILL_IN}"  # "global" (over all ranks) or "per_rank"; likewise samples_is',
        "[columns]  # ours = theirs, or { column = theirs, scale = 0.001 }",
        f"# the header of the file: {''.join(filter(str.isprintable, header))}",
        *(f'{name} = "{FILL_IN}"' for name in NAMES),
        "[constants]  # the same in every row",
        *(f"# {name} = " for name in NAMES),
        *(f"# [values.{name}]  # their word = ours: {', '.join(OURS[name])}, {NOT_COMPARABLE}" for name in OURS),
    ]
    atomic.write_text(target, "\n".join(lines) + "\n")
    return target


# Cells and rows


@dataclass(frozen=True)
class Printed:
    """A positive number as printed, and its `slack`: |log(true / value)| is at most that. Slacks add in products."""

    value: float
    slack: float = 0.0

    def __mul__(self, other: Printed) -> Printed:
        return Printed(self.value * other.value, self.slack + other.slack)

    def __truediv__(self, other: Printed) -> Printed:
        return Printed(self.value / other.value, self.slack + other.slack)


def number(text: str, decimal: str = ".", thousands: str = "") -> Printed:
    """The number that `text` prints, true to half a unit of its last significant digit.

    Raises:
        ValueError: it is none, or not finite.
    """
    plain = _plain(text.strip(), decimal, thousands)
    if not NUMBER.fullmatch(plain) or not math.isfinite(value := float(plain)):
        raise ValueError(f"{text!r} is not a number")
    if not value:
        return Printed(value)
    _, digits, exponent = Decimal(plain).as_tuple()
    if exponent in (0, -1) and value.is_integer():  # .0 is how programs write any whole number
        while len(digits) > LEAST_DIGITS and digits[-1] == 0:
            digits, exponent = digits[:-1], exponent + 1
    elif "e" in plain.lower():
        exponent -= max(0, LEAST_DIGITS - len(digits))
    share = 0.5 * 10.0**exponent / abs(value)
    return Printed(value, -math.log1p(-share) if share < 1 else math.inf)


def _plain(text: str, decimal: str, thousands: str) -> str:
    """`text` as Python writes numbers; no number if it does not keep to the marks."""
    if thousands:
        text = re.sub(r"[\u00a0\u202f]", " ", text) if thousands == " " else text
        whole, mark, rest = text.partition(decimal)
        if thousands in whole and re.fullmatch(rf"[+-]?\d{{1,3}}({re.escape(thousands)}\d{{3}})+", whole, re.ASCII):
            text = whole.replace(thousands, "") + mark + rest
    if decimal != ".":
        return "" if "." in text else text.replace(decimal, ".", 1)
    return text


@dataclass
class Row:
    """One row in our names: words, whole numbers, and measures as printed; what is missing is left out."""

    line: int
    words: dict[str, str]
    counts: dict[str, int]
    measures: dict[str, Printed]
    comparable: bool = True
    derived: list[str] = field(default_factory=list)


def _rows(content: bytes, mapping: Mapping, path: Path) -> tuple[list[Row], dict[int, str]]:
    """The rows of `content`, and {line: why} of those that cannot be read; empty lines do not count.

    Raises:
        ForeignError: it is no such text, or lacks a column that the mapping names.
    """
    lines = _lines(_text(content, mapping.format.encoding, path), mapping.format.delimiter)
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


def _text(content: bytes, encoding: str, path: Path) -> str:
    try:
        return content.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise ForeignError(f"{path}: not {encoding} (byte {error.start}); set [format] encoding") from None
    except LookupError:
        raise ForeignError(f"{path}: format.encoding: {encoding!r} is no encoding of text") from None


def _lines(text: str, delimiter: str) -> Iterator[tuple[int, list[str] | str]]:
    """(line, cells) of every line that is not empty; (line, why) where the file cannot be read on."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield reader.line_num, cells
    except csv.Error as error:
        yield reader.line_num, f"no CSV from here on ({error}): is the file cut off?"


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
            _add_word(row, name, value, value, translated=True)
        elif name in COUNTS:
            row.counts[name] = value
        else:
            row.measures[name] = Printed(value)
    for name, place in places.items():
        cell, words = cells[place].strip(), getattr(mapping.values, name, None) or {}
        text = str(words.get(cell, cell))
        if name in WORDS:
            _add_word(row, name, text, cell, translated=cell in words)
        elif words.get(cell) == NOT_COMPARABLE:
            row.comparable = False
        elif text.casefold() not in MISSING:
            _add_number(row, name, text, getattr(mapping.columns, name), mapping.format)
    return row


def _add_word(row: Row, name: str, word: str, cell: str, *, translated: bool) -> None:
    if translated and word == NOT_COMPARABLE:
        row.comparable, word = False, cell
    elif not translated and word and name in OURS and word not in OURS[name]:
        meant = toml_config.nearest(word, OURS[name]) or NOT_COMPARABLE
        raise RowFault(
            f"{name} is {word!r}, which is none of {', '.join(OURS[name])}: translate it in [values.{name}], "
            f'for instance {word!r} = "{meant}"'
        )
    if not word.isprintable() or word.startswith(FORMULA):
        raise RowFault(f"{name} is {word!r}: a formula or no plain text; [values.{name}] can translate it")
    if word:
        row.words[name] = word


def _add_number(row: Row, name: str, text: str, source: Source, marks: Format) -> None:
    try:
        printed = number(text, marks.decimal, marks.thousands)
    except ValueError as error:
        more = f" with the decimal mark {marks.decimal!r}" if any(digit.isdigit() for digit in text) else ""
        raise RowFault(f"column {source.column!r} ({name}): {error}{more}") from None
    scaled = printed.value * source.scale
    if name in COUNTS:
        if not scaled.is_integer() or abs(scaled) > LARGEST:
            raise RowFault(f"column {source.column!r} ({name}): {text!r} is not a whole number, or too large")
        row.counts[name] = int(scaled)
    else:
        exact = name == "samples" and scaled.is_integer() and "e" not in text.lower()  # a count, written out
        row.measures[name] = Printed(scaled, 0.0 if exact else printed.slack)


# Checks


@dataclass(frozen=True)
class Judged:
    """A row that may be used: `throughput` as far as it can be known, `reported` theirs over all ranks."""

    row: Row
    samples: float | None
    seconds: float | None
    throughput: float
    reported: float | None
    verdict: Verdict
    correction: str


def judge(row: Row, mapping: Mapping) -> Judged:
    """`row`, completed, checked and where necessary corrected.

    Raises:
        RowFault: it contradicts itself in a way that nothing explains, or says too little.
    """
    found = _judge(row, mapping)
    for fault in checks.number_faults({"throughput": found.throughput}, ["throughput"]):
        raise RowFault(fault)
    return found


def _judge(row: Row, mapping: Mapping) -> Judged:
    _complete_layout(row)
    seconds, reported = row.measures.get("seconds"), row.measures.get("throughput")
    samples, corrected = _samples(row, mapping)
    if reported is not None and mapping.throughput_is == "per_rank":
        row.derived.append("throughput = throughput of a rank x world_size")
        reported *= Printed(row.counts["world_size"])
    known = samples and samples.value, seconds and seconds.value
    if reported is None:
        if samples is None or seconds is None:
            raise RowFault("neither a throughput, nor samples and seconds to compute it from")
        row.derived.append("throughput = samples / seconds")
        return Judged(row, *known, samples.value / seconds.value, None, Verdict.COMPUTED, corrected)
    if samples is None or seconds is None:
        row.derived.append(f"no {'seconds' if samples else 'samples'}: the throughput cannot be checked")
        return Judged(row, *known, reported.value, reported.value, Verdict.UNCHECKED, corrected)
    verdict = _verdict(row, reported, seconds, samples, mapping.tolerance)
    ours = verdict == Verdict.PER_RANK and mapping.throughput_is == "per_rank"  # we multiplied, not its authors
    text = "; ".join(filter(None, [corrected, NOT_OF_A_RANK if ours else CORRECTIONS.get(verdict)]))
    right = reported.value if verdict == Verdict.UNCHECKED else samples.value / seconds.value
    return Judged(row, *known, right, reported.value, verdict, text)


def _complete_layout(row: Row) -> None:
    """Check all numbers, and derive ranks, nodes and batches where one follows from two."""
    zero = {"epoch", "repeat"}  # may be counted from 0
    numbers = row.counts | {name: one.value for name, one in row.measures.items()}
    positive = [name for name in numbers if name not in zero and name != "test_accuracy"]
    for fault in checks.number_faults(numbers, positive):
        raise RowFault(fault)
    for name in zero & row.counts.keys():
        if row.counts[name] < 0:
            raise RowFault(f"{name} is {row.counts[name]}, less than 0")
    if not 0 <= numbers.get("test_accuracy", 0) <= 1:
        raise RowFault(f"test_accuracy is {numbers['test_accuracy']:g}, not a share from 0 to 1: scale = 0.01?")
    _product(row, "world_size", "nodes", "ranks_per_node")
    if "world_size" not in row.counts:
        raise RowFault("world_size is missing: how many ranks?")
    _product(row, "global_batch", "batch_per_device", "world_size")
    if row.words.get("parallel") == "none" and row.counts["world_size"] > 1:
        raise RowFault(
            f"parallel is none (no process group), but there are {row.counts['world_size']} ranks: "
            "[values.parallel] says what their word means"
        )


def _product(row: Row, whole: str, one: str, other: str) -> None:
    """`whole` = `one` x `other`: the third from two, or a contradiction named."""
    counts = row.counts
    missing = [name for name in (whole, one, other) if name not in counts]
    if not missing and counts[whole] != (product := counts[one] * counts[other]):
        raise RowFault(
            f"{whole} is {counts[whole]}, but {one} x {other} is {counts[one]} x {counts[other]} = {product}"
        )
    if missing == [whole]:
        counts[whole] = counts[one] * counts[other]
        row.derived.append(f"{whole} = {one} x {other}")
    for third, by in ((one, other), (other, one)):
        if missing == [third] and counts[whole] % counts[by] == 0:
            counts[third] = counts[whole] // counts[by]
            row.derived.append(f"{third} = {whole} / {by}")


def _samples(row: Row, mapping: Mapping) -> tuple[Printed | None, str]:
    """Global samples in the row's time, and how they were corrected: steps x global batch is the better count."""
    given, ranks, batch = row.measures.get("samples"), row.counts["world_size"], row.counts.get("global_batch")
    full = row.counts["steps"] * batch if batch and "steps" in row.counts else None
    if given is None:
        if full is not None:
            row.derived.append("samples = steps x global_batch")
        return (None if full is None else Printed(full)), ""
    if mapping.samples_is == "per_rank" and "samples" in mapping.columns.model_fields_set:
        given *= Printed(ranks)
        row.derived.append("samples = samples of a rank x world_size")
    if full is None:
        if "samples" in mapping.constants.model_fields_set and batch and batch < given.value:
            # A data set's size: its last batch may have been dropped, or filled up.
            given = Printed(given.value, given.slack - math.log1p(-batch / given.value))
        return given, ""
    if abs(given.value - full) < batch:
        if given.value > full:
            row.derived.append("samples = steps x global_batch: a last batch was dropped")
            return Printed(full), ""
        return given, ""  # with the slack of its rounding
    if ranks > 1 and abs(given.value / ranks - full) < batch:
        return Printed(full), f"samples were counted once per rank: {full:g}, not {given.value:g}"
    if ranks > 1 and abs(given.value * ranks - full) < batch:
        return Printed(full), f"samples were one rank's: {full:g}, not {given.value:g}"
    if fault := checks.overcount(given.value, row.counts["steps"], batch):
        raise RowFault(fault)
    return given, ""


def _verdict(row: Row, throughput: Printed, seconds: Printed, samples: Printed, tolerance: float) -> Verdict:
    """Which explanation fits within the printed digits and the mapping's tolerance."""
    factor, ranks = throughput * seconds / samples, row.counts["world_size"]
    slack = factor.slack + math.log1p(tolerance) + checks.RELATIVE_TOLERANCE
    if slack >= BLURRED:
        row.derived.append("too few digits are printed to check the throughput")
        return Verdict.UNCHECKED
    explanations = {Verdict.CONSISTENT: 1, Verdict.PER_RANK: ranks, Verdict.ONE_RANK: 1 / ranks}
    for verdict, expected in explanations.items():
        if _fits(factor.value, expected, slack):
            return verdict
    numbers = {"throughput": throughput.value, "seconds": seconds.value, "samples": samples.value}
    raise RowFault(
        f"{checks.disagreement(numbers)}, which {ranks} {'ranks do' if ranks > 1 else 'rank does'} not explain"
        f"{_hint(row, factor.value, slack, explanations.values())}"
    )


def _hint(row: Row, factor: float, slack: float, explanations: Iterable[float]) -> str:
    """What the factor looks like; only a hint, nothing is corrected by it."""
    for times, (unit, scale) in UNITS.items():
        if _fits(factor, times, slack):
            return f": is the time in {unit}? (scale = {scale:g})"
    for name in ("nodes", "ranks_per_node"):
        if row.counts.get(name, 1) > 1 and _fits(factor, row.counts[name], slack):
            return f": it is {name} times too large"
    off = min((abs(factor / expected - 1) for expected in explanations), default=1)
    if off <= LARGEST_TOLERANCE:
        return f": off by {off:.2%}, more than the printed digits allow; were the two timed apart? (tolerance = 0.01)"
    return ""


def _fits(factor: float, expected: float, slack: float) -> bool:
    return factor > 0 and math.isfinite(factor) and abs(math.log(factor / expected)) <= slack


# Runs


@dataclass(frozen=True)
class Foreign:
    """A foreign result set as it was read.

    Attributes:
        runs: one row a run; columns as in `schema.RUNS` and `schema.FOREIGN`.
        refused: {line of the CSV: why it cannot be used}.
        files: the bytes of {"source.csv", "mapping.toml"}.
    """

    name: str
    mapping: Mapping
    runs: pd.DataFrame
    refused: dict[int, str]
    files: dict[str, bytes]


def read(path: Path, mapping_path: Path, name: str = "") -> Foreign:
    """Read, check and where necessary correct the results in the CSV at `path`; `name` defaults to the file's.

    Raises:
        ForeignError: the file, its mapping or the name cannot be used; or no row can.
    """
    import pandas as pd

    name = _checked(name or path.stem)
    mapping = read_mapping(mapping_path)
    content = _content(path)
    rows, refused = _rows(content, mapping, path)
    judged = []
    for row in rows:
        try:
            judged.append(judge(row, mapping))
        except RowFault as fault:
            refused[row.line] = str(fault)
    runs = [_run(name, group) for group in _grouped(judged, mapping, refused)]
    if not runs:
        first = "".join(f"; line {line}: {why}" for line, why in sorted(refused.items())[:3])
        raise ForeignError(f"{path}: none of its {len(refused)} rows can be used{first}")
    files = {"source.csv": content, "mapping.toml": mapping_path.read_bytes()}
    return Foreign(name, mapping, pd.DataFrame(runs, columns=_columns()), dict(sorted(refused.items())), files)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ForeignError(f"{path}: cannot be read: {error.strerror}") from None


def _checked(name: str) -> str:
    if not re.fullmatch(NAME, name, re.ASCII):
        raise ForeignError(f"{name!r} cannot name a result set: letters, digits and . _ -, at most 61; see --as")
    return name


def _columns() -> list[str]:
    return [*schema.names(schema.RUNS), *schema.names(schema.FOREIGN)]


def _grouped(judged: Iterable[Judged], mapping: Mapping, refused: dict[int, str]) -> Iterable[list[Judged]]:
    """The rows of each run: its epochs, or each row alone; a row that occurs twice is refused."""
    groups: dict[tuple, list[Judged]] = {}
    seen: dict[tuple, int] = {}
    repeats: dict[tuple, int] = defaultdict(int)
    for one in judged:
        row = one.row
        key = (*(row.words.get(n) for n in WORDS), *(row.counts.get(n) for n in LAYOUT), row.comparable)
        if "epoch" not in mapping.names and "repeat" not in row.counts:
            repeats[key] += 1
            row.counts["repeat"] = repeats[key]  # the same configuration again: another measurement of it
        key = (*key, row.counts.get("repeat"))
        exact = (*key, row.counts.get("epoch"))
        if exact in seen:
            what = f"epoch {row.counts['epoch']} of " if "epoch" in row.counts else ""
            refused[row.line] = (
                f"{what}this run is on line {seen[exact]} already; add a repeat column if it is another"
            )
            continue
        seen[exact] = row.line
        groups.setdefault(key, []).append(one)
    return groups.values()


def _run(name: str, group: list[Judged]) -> dict[str, Any]:
    """One run's row. Over epochs, samples and seconds are sums; their throughput is the mean over time."""
    first, lines = group[0].row, [one.row.line for one in group]
    samples, seconds = _sum(one.samples for one in group), _sum(one.seconds for one in group)
    verdicts = {one.verdict for one in group}
    whole = samples and seconds and Verdict.UNCHECKED not in verdicts
    throughput = samples / seconds if whole else _mean(group, "throughput")
    reported = None if any(one.reported is None for one in group) else _mean(group, "reported")
    steps = {one.row.counts.get("steps") for one in group}
    accuracy, memory = (
        [one.row.measures[measure].value for one in group if measure in one.row.measures]
        for measure in ("test_accuracy", "peak_allocated_bytes")
    )
    return {
        **first.words,
        **{name: first.counts.get(name) for name in LAYOUT},
        "run_id": f"{name}:{first.line}",
        "state": "complete",
        "steps_per_epoch": steps.pop() if len(steps) == 1 else None,
        # Rows that must stand in no curve with the others: runs that differ in settings are never pooled.
        "settings": None if first.comparable else NOT_COMPARABLE,
        "oversubscribed": False,
        "repeat": first.counts.get("repeat", 1),
        "epochs": len(group) if "epoch" in first.counts else None,
        "samples": samples,
        "seconds": seconds,
        "throughput": throughput,
        "test_accuracy": accuracy[-1] if accuracy else None,
        "peak_allocated_bytes": max(memory, default=None),
        "hardware_id": f"foreign:{name}",
        "path": f"foreign/{name}",
        "foreign": name,
        "lines": f"{lines[0]}-{lines[-1]}" if len(lines) > 1 else str(lines[0]),
        "comparable": first.comparable,
        "reported_throughput": reported,
        "factor": None if reported is None else reported / throughput,
        "verdict": next(str(verdict) for verdict in Verdict if verdict in verdicts),
        "correction": _joined([one.correction] for one in group),
        "derived": _joined(one.row.derived for one in group),
    }


def _sum(values: Iterable[float | None]) -> float | None:
    every = list(values)
    return None if None in every else sum(every)


def _mean(group: list[Judged], which: str) -> float:
    """Of rates: by time where it is known, else as over equal samples."""
    rates, seconds = [getattr(one, which) for one in group], [one.seconds for one in group]
    if None not in seconds:
        return sum(rate * second for rate, second in zip(rates, seconds, strict=True)) / sum(seconds)
    return len(rates) / sum(1 / rate for rate in rates)


def _joined(remarks: Iterable[Iterable[str]]) -> str | None:
    """Each remark once, with how many epochs it holds of if not of all."""
    every = [list(filter(None, one)) for one in remarks]
    distinct = dict.fromkeys(remark for one in every for remark in one)
    counted = ((remark, sum(remark in one for one in every)) for remark in distinct)
    return "; ".join(r if n == len(every) else f"{r} (in {n} of {len(every)} epochs)" for r, n in counted) or None


# The kept set, results/foreign/<name>/


def keep(found: Foreign, provenance: Table[str, Any]) -> Path:
    """Write `found` to `results/foreign/<name>/` and return the folder; the same source again replaces it.

    `provenance` says by which code it was imported (digest, commit, dirty).

    Raises:
        ForeignError: another file is kept under that name.
    """
    folder = paths.results() / "foreign" / found.name
    before, source = read_json(folder / "provenance.json"), _digest(found.files["source.csv"])
    if before is not None and before.get("sha256", {}).get("source.csv") != source:
        raise ForeignError(f"{folder} holds another file's results: give another name (--as), or remove that folder")
    files = found.files | {"runs.csv": found.runs.to_csv(index=False, lineterminator="\n").encode()}
    for name, content in files.items():
        atomic.write(folder / name, lambda file, content=content: file.write(content))
    record = {
        "foreign": found.name,
        "title": found.mapping.title,
        "source": found.mapping.source,
        "licence": found.mapping.licence,
        "imported_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "imported_by": dict(provenance),
        "sha256": {name: _digest(content) for name, content in files.items()},
        "runs": len(found.runs),
        "refused": {f"line {line}": why for line, why in found.refused.items()},
    }
    atomic.write_json(folder / "provenance.json", record)  # last: with it the set is whole
    return folder


def load(name: str | None = None, results: Path | None = None) -> pd.DataFrame:
    """The runs of the foreign set `name`, by default of all; columns as in `schema.RUNS` and `schema.FOREIGN`.

    Raises:
        ForeignError: there is no such set, or its files are not those that were imported.
    """
    import pandas as pd

    home = (results or paths.results()) / "foreign"
    if name is not None and not (home / _checked(name)).is_dir():
        raise ForeignError(f"no foreign results {name!r} in {home}: `hpc import` makes them")
    found = [home / name] if name else sorted(path for path in home.glob("*") if path.is_dir())
    frames = [_kept(folder).reindex(columns=_columns()) for folder in found]  # today's columns: a set may be older
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=_columns())


def _kept(folder: Path) -> pd.DataFrame:
    import pandas as pd

    wanted = (read_json(folder / "provenance.json") or {}).get("sha256", {})
    for name in KEPT:
        path = folder / name
        if not path.is_file() or wanted.get(name) != _digest(path.read_bytes()):
            raise ForeignError(f"{path} is not as it was imported: import it again, or remove the folder")
    text = dict.fromkeys(TEXT, "str")
    return pd.read_csv(folder / "runs.csv", dtype=text, keep_default_na=False, na_values=[""])


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()

"""Import of other people's results: a CSV file, a TOML file that maps its columns to ours, and checks of every row.

    found = foreign.read(Path("theirs.csv"), Path("theirs.toml"), "thesis-2024")
    foreign.keep(found, provenance)        # writes results/foreign/thesis-2024/
    runs = foreign.load()                  # one frame; its column `foreign` names the set

`results/README.md` explains the mapping file. The throughput of a row must equal its samples / seconds within the precision
of the printed digits. Two common errors are corrected: global samples counted once per rank, and the samples of one rank
taken for all. Any other row is refused. A missing number is derived where it follows from others.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, ValidationError, create_model, model_validator

from hpc_utils import paths, toml_config
from hpc_utils.config import RunConfig
from hpc_utils.toml_config import Strict

from . import atomic, checks, schema
from .folder import read_json

if TYPE_CHECKING:
    import pandas as pd

WORDS = ("workload", "dataset", "parallel", "precision", "device_name")
LAYOUT = ("world_size", "nodes", "ranks_per_node", "global_batch", "batch_per_device")

Line = Annotated[str, Field(min_length=1, pattern=r"^[^\x00-\x1f\x7f]*$")]
# Our names, and what their cells hold.
TYPES = {
    **dict.fromkeys(WORDS, Line),
    **dict.fromkeys((*LAYOUT, "steps"), Annotated[int, Field(gt=0)]),
    **dict.fromkeys(("repeat", "epoch"), Annotated[int, Field(ge=0)]),
    **dict.fromkeys(
        ("samples", "seconds", "throughput", "peak_allocated_bytes"),
        Annotated[float, Field(gt=0, allow_inf_nan=False)],
    ),
    "test_accuracy": Annotated[float, Field(ge=0, le=1)],
}
Values = create_model("Values", __base__=Strict, **{name: (kind | None, None) for name, kind in TYPES.items()})
Name = Literal[tuple(TYPES)]
# The words that are valid here; other words need a translation.
OURS = {name: get_args(RunConfig.model_fields[name].annotation) for name in ("parallel", "precision")}

NOT_COMPARABLE = "not comparable"
MISSING = {"", "-", "--", "na", "n/a", "nan", "none", "null"}  # cells without a number, in lower case
# Beyond half the distance from 1 to 2, rounding errors cannot distinguish one rank's samples from those of two.
COARSE = math.log(2) / 2
# Trailing zeros of an integer may be due to rounding (12300 for 12345.6), but rarely before the third digit.
LEAST_DIGITS = 3
KEPT = ("source.csv", "mapping.toml", "runs.csv")


class ForeignError(ValueError):
    """A file of foreign results, or its mapping, cannot be used."""

    exit_code = 2


class RowFault(ValueError):
    """A row cannot be used."""


class Verdict(StrEnum):
    """The verdict on a row's throughput from its own numbers, the most serious first."""

    PER_RANK = "counted once per rank"
    ONE_RANK = "one rank's samples"
    UNCHECKED = "throughput only, unchecked"
    COMPUTED = "computed"
    CONSISTENT = "consistent"


CORRECTIONS = {
    Verdict.PER_RANK: "the global samples were counted once per rank: throughput = samples / seconds instead",
    Verdict.ONE_RANK: "one rank's samples were taken for all: throughput = samples / seconds instead",
}


class Source(Strict):
    """A column of the file; its numbers times `scale` are in our unit."""

    column: Line
    scale: float = Field(1.0, gt=0, allow_inf_nan=False)


class Format(Strict):
    """How the file is written."""

    delimiter: str = Field(",", min_length=1, max_length=1)
    decimal: Literal[".", ","] = "."
    thousands: Literal["", ".", ",", " ", "'"] = ""
    encoding: Line = "utf-8-sig"


class Meaning(Strict):
    """The content of a mapping file."""

    title: Line
    source: Line
    licence: Line | None = None
    throughput_is: Literal["global", "per_rank"] | None = None
    samples_is: Literal["global", "per_rank"] | None = None
    tolerance: float = Field(0.0, ge=0, le=0.1)
    format: Format = Format()
    columns: dict[
        Name, Annotated[Source, BeforeValidator(lambda given: {"column": given} if isinstance(given, str) else given)]
    ]
    constants: Values = Values()
    values: dict[Name, dict[str, Line | int]] = Field({})

    @model_validator(mode="after")
    def _complete(self) -> Meaning:
        columns, constants = self.columns.keys(), self.constants.model_fields_set
        given = columns | constants
        if both := columns & constants:
            raise ValueError(f"{', '.join(sorted(both))}: in [columns] and in [constants]")
        if unread := self.values.keys() - columns:
            raise ValueError(f"{', '.join(sorted(unread))}: in [values], but not in [columns]")
        for name, among in (("throughput", given), ("samples", columns)):
            if name in among and getattr(self, f"{name}_is") is None:
                raise ValueError(f'{name}_is must be "global" (over all ranks) or "per_rank"')
        if self.format.decimal == self.format.thousands:
            raise ValueError("format: decimal and thousands must differ")
        if "world_size" not in given and not {"nodes", "ranks_per_node"} <= given:
            raise ValueError("columns: world_size is needed, or nodes and ranks_per_node")
        if not {"throughput", "seconds"} & given:
            raise ValueError("columns: throughput is needed, or seconds with samples (or steps and a batch)")
        return self


def draft(path: Path) -> Path:
    """Write a mapping file to be filled in next to the CSV at `path`, and return its path.

    Raises:
        ForeignError: the mapping file exists.
    """
    target, header = path.with_suffix(".toml"), path.read_bytes().split(b"\n", 1)[0].decode(errors="replace").strip()
    if target.exists():
        raise ForeignError(f"{target} exists: edit or remove it")
    columns = "\n".join(f'# {name} = ""' for name in TYPES)
    atomic.write_text(
        target,
        f"""\
title = ""
source = ""  # who, where, address
throughput_is = "global"  # or "per_rank"
# The columns of the file: {header}
[columns]  # our name = their name, or {{ column = their name, scale = 0.001 }}
{columns}
[constants]  # the same in every row
# [values.parallel]  # their word = {" | ".join(OURS["parallel"])} | {NOT_COMPARABLE}
""",
    )
    return target


@dataclass
class Row:
    """One row: `values` by our names, without those that are missing.

    `slack`: bound of the rounding errors in the printed throughput x seconds, as a difference of logarithms.
    """

    line: int
    values: dict[str, Any]
    slack: float = 0.0
    comparable: bool = True
    derived: list[str] = field(default_factory=list)
    reported: float | None = None  # throughput over all ranks, uncorrected
    verdict: Verdict = Verdict.COMPUTED

    def derive(self, name: str, value: float, how: str) -> None:
        self.values[name] = value
        self.derived.append(f"{name} = {how}")


def number(text: str, form: Format = Format()) -> tuple[float, float]:  # noqa: B008
    """(value, slack) of a printed number, which is exact to half a unit of its last significant digit.

    Raises:
        ValueError: `text` is not a number in this format.
    """
    mark, point = re.escape(form.thousands), re.escape(form.decimal)
    whole = rf"(\d{{1,3}}({mark}\d{{3}})+|\d*)" if mark else r"\d*"
    text = re.sub(r"\s", " ", text)
    if not re.fullmatch(rf"[+-]?{whole}({point}\d*)?([eE][+-]?\d{{1,4}})?", text, re.ASCII):
        raise ValueError(f"{text!r} is not a number")
    plain = text.replace(form.thousands, "").replace(form.decimal, ".")
    value = float(plain)
    if not value or not math.isfinite(value):
        return value, 0.0
    _, digits, exponent = Decimal(plain).as_tuple()
    if exponent in (0, -1) and value.is_integer():  # programs write .0 behind any whole number
        while len(digits) > LEAST_DIGITS and digits[-1] == 0:
            digits, exponent = digits[:-1], exponent + 1
    share = 0.5 * 10.0**exponent / abs(value)
    return value, -math.log1p(-share) if share < 1 else math.inf


def _rows(text: str, mapping: Meaning, path: Path, refused: dict[int, str]) -> Iterator[Row]:
    """The rows of a CSV that can be used; the others are added to `refused`."""
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=mapping.format.delimiter, strict=True)
    header = reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
    for name, source in mapping.columns.items():
        if header.count(source.column) != 1:
            raise ForeignError(
                f"{path}: columns.{name}: {header.count(source.column)} columns are called {source.column!r}: "
                f"{', '.join(header)}"
            )
    for cells in reader:
        line, surplus = reader.line_num, cells.pop(None, ())
        try:
            if None in cells.values() or any(surplus):
                raise RowFault(f"more or fewer fields than the header's {len(header)}: is the file cut off?")
            if any(map(str.strip, cells.values())):
                row = _row(line, cells, mapping)
                judge(row, mapping)
                yield row
        except RowFault as fault:
            refused[line] = str(fault)


def _row(line: int, cells: Mapping[str, str], mapping: Meaning) -> Row:
    row = Row(line, {}, comparable=mapping.constants.parallel != NOT_COMPARABLE)
    for name, source in mapping.columns.items():
        cell = cells[source.column].strip()
        text = str(mapping.values.get(name, {}).get(cell, cell))
        if text == NOT_COMPARABLE:
            row.comparable, text = False, cell if name in WORDS else ""
        elif name in OURS and text not in ("", *OURS[name]):
            raise RowFault(
                f"{name} is {text!r}, not one of {', '.join(OURS[name])}: translate it in [values.{name}], "
                f'to "{NOT_COMPARABLE}" if it is another method'
            )
        if name in WORDS:
            row.values |= {name: text} if text else {}
        elif text.lower() not in MISSING:
            try:
                value, slack = number(text, mapping.format)
            except ValueError as error:
                raise RowFault(f"column {source.column!r} ({name}): {error}") from None
            row.values[name] = value * source.scale
            row.slack += slack if name in ("seconds", "throughput") else 0.0
    try:
        checked = Values(**mapping.constants.model_dump(exclude_unset=True) | row.values)
    except ValidationError as error:
        first = error.errors()[0]
        raise RowFault(f"{first['loc'][0]} is {first['input']!r}: {first['msg'].lower()}") from None
    row.values = checked.model_dump(exclude_unset=True)
    return row


def judge(row: Row, mapping: Meaning) -> None:
    """Complete and check `row`, and correct its throughput where an explanation fits.

    Raises:
        RowFault: its numbers contradict each other, or are too few.
    """
    values = row.values
    _multiply(row, "world_size", "nodes", "ranks_per_node")
    if "world_size" not in values:
        raise RowFault("world_size is missing")
    _multiply(row, "global_batch", "batch_per_device", "world_size")
    ranks = values["world_size"]
    if values.get("parallel") == "none" and ranks > 1:
        raise RowFault(f"parallel is none (no process group), but world_size is {ranks}")
    for name in ("samples", "throughput"):
        if name in values and getattr(mapping, f"{name}_is") == "per_rank":
            row.derive(name, values[name] * ranks, f"{name} of a rank x world_size")
    if {"steps", "global_batch"} <= values.keys():
        _check_samples(row)
    elif mapping.constants.samples and values.get("global_batch", math.inf) < values["samples"]:
        # The size of a data set, whose last batch may have been dropped.
        row.slack -= math.log1p(-values["global_batch"] / values["samples"])
    row.reported = values.get("throughput")
    if {"samples", "seconds"} <= values.keys():
        if row.reported is not None:
            row.verdict = _explain(row, mapping.tolerance)
        if row.verdict != Verdict.UNCHECKED:
            values["throughput"] = values["samples"] / values["seconds"]
    elif row.reported is None:
        raise RowFault("neither a throughput, nor samples and seconds to compute it from")
    else:
        row.verdict = Verdict.UNCHECKED
        row.derived.append("no samples or no seconds: the throughput cannot be checked")


def _multiply(row: Row, whole: str, one: str, other: str) -> None:
    """Derive the third of `whole` = `one` x `other` from two; refuse a contradiction."""
    values = row.values
    if whole not in values and {one, other} <= values.keys():
        row.derive(whole, values[one] * values[other], f"{one} x {other}")
    for third, by in ((one, other), (other, one)):
        if third not in values and {whole, by} <= values.keys() and values[whole] % values[by] == 0:
            row.derive(third, values[whole] // values[by], f"{whole} / {by}")
    if {whole, one, other} <= values.keys() and values[whole] != values[one] * values[other]:
        raise RowFault(f"{whole} is {values[whole]}, but {one} x {other} is {values[one]} x {values[other]}")


def _check_samples(row: Row) -> None:
    """Compare the row's samples with steps x global batch, which is the better count of a data set's last, dropped batch."""
    values, batch = row.values, row.values["global_batch"]
    full = values["steps"] * batch
    given = values.get("samples")
    if given is None or full < given < full + batch:
        row.derive("samples", float(full), "steps x global_batch")
    elif wrong := checks.miscount(given, values["steps"], batch):
        raise RowFault(wrong)


def _explain(row: Row, tolerance: float) -> Verdict:
    """The explanation that fits throughput x seconds / samples within rounding and `tolerance`."""
    slack = row.slack + math.log1p(tolerance) + checks.RELATIVE_TOLERANCE
    if slack >= COARSE:
        row.derived.append("too few digits are printed to check the throughput")
        return Verdict.UNCHECKED
    ranks, factor = row.values["world_size"], checks.factor(row.values)
    explanations = {Verdict.CONSISTENT: 1, Verdict.PER_RANK: ranks, Verdict.ONE_RANK: 1 / ranks}
    for verdict, expected in explanations.items():
        if abs(math.log(factor / expected)) <= slack:
            return verdict
    raise RowFault(f"{checks.disagreement(row.values)}, which world_size={ranks} does not explain")


@dataclass(frozen=True)
class Foreign:
    """A foreign result set.

    Attributes:
        runs: one row per run; columns as in `schema.RUNS` and `schema.FOREIGN`.
        refused: {line of the CSV: why it cannot be used}.
        files: {"source.csv", "mapping.toml"}: their bytes.
    """

    name: str
    mapping: Meaning
    runs: pd.DataFrame
    refused: dict[int, str]
    files: dict[str, bytes]


def read(path: Path, mapping_path: Path, name: str = "") -> Foreign:
    """Read, check and correct the results in the CSV at `path`; `name` defaults to the file's.

    Raises:
        OSError: a file cannot be read.
        ForeignError: the file, its mapping or the name cannot be used; or no row can.
    """
    import pandas as pd

    name, refused = name or path.stem, {}
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}", name, re.ASCII):
        raise ForeignError(f"{name!r} cannot name a result set: use at most 61 letters, digits and . _ -")
    files = {"source.csv": path.read_bytes(), "mapping.toml": mapping_path.read_bytes()}
    mapping = toml_config.read(mapping_path, Meaning, ForeignError)
    try:
        text = files["source.csv"].decode(mapping.format.encoding)
        runs = _runs(_rows(text, mapping, path, refused), name, refused)
    except (UnicodeDecodeError, LookupError, csv.Error) as error:
        raise ForeignError(f"{path}: not CSV in this [format], or cut off: {error}") from None
    if not runs:
        first = "".join(f"; line {line}: {why}" for line, why in sorted(refused.items())[:3])
        raise ForeignError(f"{path}: none of its {len(refused)} rows can be used{first}")
    return Foreign(name, mapping, pd.DataFrame(runs, columns=_columns()), dict(sorted(refused.items())), files)


def _columns() -> list[str]:
    return [*schema.names(schema.RUNS), *schema.names(schema.FOREIGN)]


def _runs(rows: Iterable[Row], name: str, refused: dict[int, str]) -> list[dict[str, Any]]:
    """One row per run: of its epochs, or of each row alone; a row that occurs twice is refused."""
    runs: dict[tuple, dict[Any, Row]] = {}
    for row in rows:
        epochs = runs.setdefault((*map(row.values.get, (*WORDS, *LAYOUT, "repeat")), row.comparable), {})
        first = epochs.setdefault(row.values.get("epoch"), row)
        if first is not row:
            refused[row.line] = f"the same run and epoch as line {first.line}; add a repeat column if it is another"
    return [_run(name, list(epochs.values())) for epochs in runs.values()]


def _run(name: str, epochs: list[Row]) -> dict[str, Any]:
    """One run's row. Samples and seconds are sums over epochs; throughputs are harmonic means: epochs are equal work."""
    first, verdicts = epochs[0], {row.verdict for row in epochs}

    def known(column: str) -> list[Any]:
        return [row.values[column] for row in epochs if column in row.values]

    def total(column: str) -> float | None:
        return sum(known(column)) if len(known(column)) == len(epochs) else None

    rates = [row.reported for row in epochs]
    reported = None if None in rates else statistics.harmonic_mean(rates)
    throughput, steps = statistics.harmonic_mean(known("throughput")), set(known("steps"))
    return {
        **{column: first.values.get(column) for column in (*WORDS, *LAYOUT)},
        "run_id": f"{name}:{first.line}",
        "steps_per_epoch": steps.pop() if len(steps) == 1 else None,
        "repeat": first.values.get("repeat", 1),
        "epochs": len(epochs) if "epoch" in first.values else None,
        "samples": total("samples"),
        "seconds": total("seconds"),
        "throughput": throughput,
        "test_accuracy": next(reversed(known("test_accuracy")), None),
        "peak_allocated_bytes": max(known("peak_allocated_bytes"), default=None),
        "hardware_id": f"foreign:{name}",
        "foreign": name,
        "lines": "-".join(dict.fromkeys([str(first.line), str(epochs[-1].line)])),
        "comparable": first.comparable,
        "reported_throughput": reported,
        "factor": None if reported is None else reported / throughput,
        "verdict": next(str(verdict) for verdict in Verdict if verdict in verdicts),
        "correction": "; ".join(text for verdict, text in CORRECTIONS.items() if verdict in verdicts) or None,
        "derived": "; ".join(dict.fromkeys(text for row in epochs for text in row.derived)) or None,
    }


def keep(found: Foreign, provenance: Mapping[str, Any]) -> Path:
    """Write `found` to `results/foreign/<name>/` and return the folder; a new import of the same file replaces it.

    `provenance` is that of the importing code (digest, commit, dirty).

    Raises:
        ForeignError: the folder contains another file's results.
    """
    folder = paths.results() / "foreign" / found.name
    files = found.files | {"runs.csv": found.runs.to_csv(index=False, lineterminator="\n").encode()}
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    before = (read_json(folder / "provenance.json") or {}).get("sha256")
    if before and before["source.csv"] != digests["source.csv"]:
        raise ForeignError(f"{folder} holds another file's results: give another name (--as), or remove that folder")
    for name, content in files.items():
        atomic.write(folder / name, lambda file, content=content: file.write(content))
    record = {
        "foreign": found.name,
        **found.mapping.model_dump(include={"title", "source", "licence"}),
        "imported_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "imported_by": dict(provenance),
        "sha256": digests,
        "runs": len(found.runs),
        "refused": {f"line {line}": why for line, why in found.refused.items()},
    }
    atomic.write_json(folder / "provenance.json", record)  # written last: it marks the set as complete
    return folder


def load(results: Path | None = None) -> pd.DataFrame:
    """The runs of all foreign sets; columns as in `schema.RUNS` and `schema.FOREIGN`.

    Raises:
        ForeignError: a set's files have changed since the import.
    """
    import pandas as pd

    frames = [pd.DataFrame(columns=_columns())]
    for folder in sorted(((results or paths.results()) / "foreign").glob("*/")):
        digests = (read_json(folder / "provenance.json") or {}).get("sha256", {})
        for path in (folder / name for name in KEPT):
            if not path.is_file() or digests.get(path.name) != hashlib.sha256(path.read_bytes()).hexdigest():
                raise ForeignError(f"{path} has changed since the import: import it again, or remove the folder")
        text = {column: "str" for column in (*WORDS, "foreign", "lines", "job_id", "digest", "commit")}
        frames.append(pd.read_csv(folder / "runs.csv", dtype=text, keep_default_na=False, na_values=[""]))
    # An older set may lack columns.
    return pd.concat(frames[1:] or frames, ignore_index=True).reindex(columns=_columns())

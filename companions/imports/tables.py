"""Other people's tables of results: a CSV file, and a TOML file that names its columns in our terms.

    table, refused = tables.read_table(Path("theirs.csv"), Path("theirs.toml"), "thesis-2024")

`results/README.md` explains the mapping file. The throughput of a row must equal its samples / seconds within a tolerance. Two
errors are corrected: global samples counted once per rank, and the samples of one rank taken for all. Any other row is refused.
"""

from __future__ import annotations

import codecs
import csv
import math
import re
import shutil
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, FiniteFloat, NonNegativeInt, PositiveFloat, PositiveInt, ValidationError, create_model

from hpc_utils import paths, toml_config
from hpc_utils.records import checks, schema
from hpc_utils.records.identity import FOREIGN
from hpc_utils.toml_config import Strict

if TYPE_CHECKING:
    import pandas as pd

Line = Annotated[str, Field(min_length=1, pattern=r"^[^\x00-\x1f\x7f]*$")]
WORDS = ("workload", "dataset", "parallel", "precision", "device", "device_name", "software", "date", "variant")
COUNTS = ("world_size", "nodes", "ranks_per_node", "global_batch", "batch_per_device", "steps", "repeat")
AMOUNTS = ("samples", "seconds", "throughput")
ACCURACIES = ("train_accuracy", "test_accuracy")
SHARES = (*ACCURACIES, "utilisation")
LEARNED = ("train_loss", "test_loss", *ACCURACIES)
TYPES = {
    **dict.fromkeys(WORDS, Line),
    **dict.fromkeys(COUNTS, PositiveInt),
    "epoch": NonNegativeInt,
    **dict.fromkeys(AMOUNTS, PositiveFloat),
    **dict.fromkeys(LEARNED, FiniteFloat),
    **dict.fromkeys(SHARES, Annotated[float, Field(ge=0, le=1)]),
    "comm_seconds": Annotated[float, Field(ge=0)],
}
Values = create_model("Values", __base__=Strict, **{name: (kind | None, None) for name, kind in TYPES.items()})


class FileValues(Values):
    """What the rows of one file have in common; `kernels`: a trace, or a table of kernels and their times, beside the mapping."""

    kernels: Line | None = None


# Of a table of runs: `torch` holds their software and `started` their date; `throughput` is the corrected one, samples/s over all ranks,
# `reported_throughput` that of the authors; `line` is that of the file. What it does not state is empty.
COLUMNS = [*schema.names(schema.RUNS), "line", "reported_throughput", "verdict"]
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)

# The unit at the end of a column's name that is not seconds.
_OTHER_TIME = re.compile(r"(?:^|[\s_/\[(])([mµu]s|m|min|mins|minutes?|minuten|h|hrs?|hours?|stunden?)[\])]?$", re.I)


class ForeignError(ValueError):
    """A file of foreign results, its mapping or one of its rows cannot be used."""

    exit_code = 2


class Verdict(StrEnum):
    """The verdict on the throughput of a row from its own samples and seconds."""

    CONSISTENT = "consistent"
    PER_RANK = "counted once per rank"
    ONE_RANK = "one rank's samples"
    COMPUTED = "computed"
    UNCHECKED = "throughput only, unchecked"


class Format(Strict):
    """How the file is written."""

    delimiter: Literal[",", ";", "\t"] = ","
    decimal: Literal[".", ","] = "."
    thousands: Literal["", ".", ",", " ", "'"] = ""
    encoding: Line = "utf-8-sig"


class Meaning(Strict):
    """The content of a mapping file: {our name: their name}, and what every row, or (`runs`) every row of a file, has in common.

    `reference`: the file whose run the others are compared with.
    `tolerance`: the largest relative difference between a throughput and samples / seconds; authors round, and time both separately.
    """

    title: Line
    source: Line
    throughput_is: Literal["global", "per_rank"] = "global"
    tolerance: float = Field(0.01, gt=0, lt=0.5)
    accuracy_is: Literal["share", "percent"] = "share"
    reference: Line = ""
    format: Format = Format()
    columns: dict[Literal[tuple(TYPES)], Line]
    constants: Values = Values()
    runs: dict[Line, FileValues] = Field({})


def number(text: str, style: Format) -> str:
    """A printed number with a decimal point and without thousands marks.

    Raises:
        ForeignError: `text` is not a number in this format.
    """
    thousands, decimal = map(re.escape, (style.thousands, style.decimal))
    digits = rf"-?(\d{{1,3}}({thousands}\d{{3}})+|\d+)({decimal}\d+)?([eE][+-]?\d+)?"
    if not re.fullmatch(digits, text, re.ASCII):
        raise ForeignError(
            f"{text!r} is not a number with decimal {style.decimal!r} and thousands {style.thousands!r}"
        )
    return text.replace(style.thousands, "").replace(style.decimal, ".")


def read_table(path: Path, mapping_path: Path, name: str) -> tuple[pd.DataFrame, dict[int, str]]:
    """The runs in the CSV at `path`, columns `COLUMNS`, and {line: why it is refused}.

    Raises:
        OSError: a file cannot be read.
        ForeignError: the file, its mapping or the name cannot be used; or no row can.
    """
    import pandas as pd

    rows, refused = read_rows(path, read_meaning(mapping_path, name))
    runs = {}
    for line, values in rows.items():
        run = tuple(map(values.get, (*WORDS, *COUNTS)))
        if run in runs:
            refused[line] = f"the same run as line {runs[run]['line']}; add a repeat column if it is another"
        else:
            runs[run] = values | {"line": line, "run_id": f"{name}:{line}"}
    frame = pd.DataFrame(list(runs.values())).rename(columns={"software": "torch", "date": "started"})
    frame = frame.assign(hardware_id=FOREIGN + name)
    return frame.reindex(columns=COLUMNS), refused


def read_meaning(mapping_path: Path, name: str) -> Meaning:
    """The mapping file of the set `name`.

    Raises:
        OSError: it cannot be read.
        ForeignError: it or the name cannot be used.
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,60}", name, re.ASCII):
        raise ForeignError(f"{name!r} cannot name a result set: use --as with at most 61 of a-z, 0-9 and . _ -")
    meaning = toml_config.read_toml(mapping_path, Meaning, ForeignError)
    for ours, theirs in meaning.columns.items():
        if ours.endswith("seconds") and (unit := _OTHER_TIME.search(theirs)):
            raise ForeignError(
                f"{mapping_path}: columns.{ours}: {theirs!r} is in {unit[1]}; expected seconds: convert the column"
            )
    return meaning


def read_rows(path: Path, meaning: Meaning) -> tuple[dict[int, dict[str, Any]], dict[int, str]]:
    """{line: the values of `read_row`} of the CSV at `path`, and {line: why it is refused}.

    Raises:
        OSError: it cannot be read.
        ForeignError: it, or no row of it, can be used.
    """
    try:
        content = path.read_bytes()
        encoding = "utf-16" if content.startswith(_UTF16) else meaning.format.encoding
        text = content.decode(encoding).splitlines(keepends=True)
        excel = re.fullmatch(r"sep=(.)\s*", text[0]) if text else None
        delimiter = excel[1] if excel else meaning.format.delimiter
        table = list(csv.reader(text, delimiter=delimiter, strict=True))
    except (UnicodeDecodeError, LookupError, csv.Error) as error:
        raise ForeignError(f"{path}: not CSV in this [format] (encoding, delimiter), or cut off: {error}") from None
    header_line = 2 if excel else 1
    header, *lines = [[cell.strip() for cell in line] for line in table[header_line - 1 :]] or [[]]
    for ours, theirs in meaning.columns.items():
        if (count := header.count(theirs)) != 1:
            hint = "; set `delimiter` in [format]" if len(header) == 1 else ""
            raise ForeignError(
                f"{path}: columns.{ours}: {count or 'no'} column {theirs!r} in the header {header}{hint}"
            )
    rows = {}
    refused = {}
    for line, cells in enumerate(lines, header_line + 1):
        if not any(cells):
            continue
        try:
            if len(cells) != len(header):
                raise ForeignError(f"{len(cells)} fields, but the header has {len(header)}: is the file cut off?")
            rows[line] = read_row(dict(zip(header, cells, strict=True)), meaning)
        except ForeignError as fault:
            refused[line] = str(fault)
    if not rows:
        fault = next(iter(refused.values()), "there is none")
        raise ForeignError(f"{path}: no row can be used: {fault}")
    accuracies = [row[name] for row in rows.values() for name in ACCURACIES if name in row]
    if meaning.accuracy_is == "percent" and accuracies and max(accuracies) <= 0.01:
        raise ForeignError(
            f'{path}: no accuracy is above 1, so they are no percent: leave out `accuracy_is = "percent"`'
        )
    return rows, refused


def read_row(cells: Mapping[str, str], meaning: Meaning) -> dict[str, Any]:
    """The checked values of one row by our names, with those that follow from them.

    Raises:
        ForeignError: a cell is invalid, or the numbers contradict each other or are too few.
    """
    values = meaning.constants.model_dump(exclude_none=True)
    for ours, theirs in meaning.columns.items():
        if text := cells[theirs]:
            values[ours] = text if ours in WORDS else number(text, meaning.format)
            if ours in ACCURACIES and meaning.accuracy_is == "percent":
                values[ours] = round(float(values[ours]) / 100, 12)
    try:
        values = Values(**values).model_dump(exclude_none=True)
    except ValidationError as error:
        fault = error.errors()[0]
        hint = ' (`accuracy_is = "percent"` in the mapping?)' if fault["loc"][0] in ACCURACIES else ""
        raise ForeignError(f"{fault['loc'][0]} is {fault['input']!r}: {fault['msg'].lower()}{hint}") from None
    _multiply(values, "world_size", "nodes", "ranks_per_node")
    _multiply(values, "global_batch", "batch_per_device", "world_size")
    if missing := {"world_size", "global_batch"} - values.keys():
        raise ForeignError(f"missing: {', '.join(sorted(missing))}")
    ranks = values["world_size"]
    batch = values["global_batch"]
    if batch % ranks == 0:
        values["batch_per_device"] = batch // ranks
    if values.get("parallel") == "none" and ranks > 1:
        raise ForeignError(f"parallel is none (no process group), but world_size is {ranks}")
    steps = values.get("steps")
    if steps and (fault := checks.miscount(values.setdefault("samples", steps * batch), steps, batch)):
        raise ForeignError(fault)
    if "throughput" in values and meaning.throughput_is == "per_rank":
        values["throughput"] *= ranks
    values["reported_throughput"] = values.get("throughput")
    values["verdict"] = _judge(values, meaning.tolerance)
    if values["verdict"] != Verdict.UNCHECKED:
        values["throughput"] = values["samples"] / values["seconds"]
    return values


def _judge(values: Mapping[str, Any], tolerance: float) -> Verdict:
    if not {"samples", "seconds"} <= values.keys():
        if "throughput" not in values:
            raise ForeignError("neither a throughput, nor samples and seconds to compute it from")
        return Verdict.UNCHECKED
    if "throughput" not in values:
        return Verdict.COMPUTED
    ranks = values["world_size"]
    for verdict, factor in ((Verdict.CONSISTENT, 1), (Verdict.PER_RANK, ranks), (Verdict.ONE_RANK, 1 / ranks)):
        if math.isclose(checks.factor(values), factor, rel_tol=tolerance):
            return verdict
    raise ForeignError(
        f"{checks.disagreement(values)}, which world_size={ranks} does not explain (`tolerance` of the mapping: {tolerance:g})"
    )


def _multiply(values: dict[str, Any], product: str, first: str, second: str) -> None:
    """Derive `product` = `first` x `second`; refuse a contradiction."""
    if {first, second} <= values.keys():
        value = values[first] * values[second]
        if values.setdefault(product, value) != value:
            raise ForeignError(f"{product} is {values[product]}, but {first} x {second} is {value}")


def keep(files: Mapping[str, Path], mapping_path: Path, name: str) -> Path:
    """Copy files that were read, by these names, and their mapping to `results/foreign/<name>/`, and return the folder.

    Raises:
        ForeignError: the folder contains other files, or a committed set has this name.
    """
    folder = paths.results() / "foreign" / name
    if (committed := paths.reference() / name).exists():
        raise ForeignError(f"{committed} is a set of that name: give another name (--as), or remove that folder")
    kept = {path.name: path.read_bytes() for path in folder.glob("*.csv")}
    if kept and kept != {file: path.read_bytes() for file, path in files.items()}:
        raise ForeignError(
            f"{folder} holds other files, or these before an edit: remove it to import again, or give another name (--as)"
        )
    folder.mkdir(parents=True, exist_ok=True)
    for file, path in files.items():
        shutil.copyfile(path, folder / file)
    shutil.copyfile(mapping_path, folder / "mapping.toml")
    return folder

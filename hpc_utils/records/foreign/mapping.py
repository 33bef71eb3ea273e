"""The mapping file of a foreign CSV: whose it is, which column is which of ours, and what its numbers mean.

title = "ResNet-50 on 64 GPUs"
source = "A. Author, thesis, 2024, table 3, https://..."
throughput_is = "global"                                   # or "per_rank"; so too samples_is, if it is a column
tolerance = 0.01                                           # relative; only if throughput and time were timed apart

[columns]                                                  # ours = theirs
world_size = "gpus"
seconds = { column = "epoch_time_ms", scale = 0.001 }
throughput = "images_per_sec"
parallel = "mode"

[constants]                                                # the same in every row, in our units
samples = 50000                                            # over all ranks, in the time of one row

[values.parallel]                                          # their words in ours
single = "none"
DDP = "ddp"
DataParallel = "not comparable"                            # kept, but in no curve

[format]                                                   # where it is not a plain CSV
delimiter = ";"
decimal = ","
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, create_model, model_validator

from hpc_utils import toml_config
from hpc_utils.config import RunConfig
from hpc_utils.toml_config import Strict

from .errors import ForeignError

# Our names by what their cells hold.
WORDS = ("workload", "dataset", "parallel", "precision", "device_name")
COUNTS = (
    "world_size", "nodes", "ranks_per_node", "global_batch", "batch_per_device", "steps", "repeat", "epoch",
)  # fmt: skip
MEASURES = ("samples", "seconds", "throughput", "test_accuracy", "peak_allocated_bytes")
NAMES = (*WORDS, *COUNTS, *MEASURES)

# What these words may be; others need a translation, which may be any word.
OURS = {name: get_args(RunConfig.model_fields[name].annotation) for name in ("parallel", "precision")}
NOT_COMPARABLE = "not comparable"
FILL_IN = "FILL IN"
LARGEST_TOLERANCE = 0.1  # relative; much beyond it two ranks' throughput could be one's


def _line(value: str) -> str:
    if not value.strip() or not value.isprintable():
        raise ValueError(f"expected one line of text, not {value!r}")
    if FILL_IN in value:
        raise ValueError("this is still to be filled in")
    return value


def _source(value: Any) -> Any:
    if isinstance(value, str):
        return {"column": value}
    if not isinstance(value, dict):
        raise ValueError(f'expected a column\'s name or {{ column = "...", scale = 0.001 }}, not {value!r}')
    return value


Line = Annotated[str, AfterValidator(_line)]
LARGEST = 2**53  # a count beyond is none; up to here every whole number is a float
Count = Annotated[int, Field(ge=0, le=LARGEST, strict=True)]
Measure = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
OfRanks = Literal["global", "per_rank"]


class Source(Strict):
    """A column of theirs; its numbers times `scale` are in our unit."""

    column: Line
    scale: float = Field(1.0, gt=0, allow_inf_nan=False)


class Format(Strict):
    """How the file is written. A byte-order mark is taken off in any case."""

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


Columns = _tables("Columns", dict.fromkeys(NAMES, Annotated[Source, BeforeValidator(_source)]))
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
        columns, constants = self.columns.model_fields_set, self.constants.model_fields_set
        for name in sorted(columns & constants):
            raise ValueError(f"{name} is in [columns] and in [constants]: it can be one of them")
        for name in sorted(self.values.model_fields_set - columns):
            raise ValueError(f"values.{name}: there is no columns.{name} whose words it could translate")
        for name in sorted(columns & set(WORDS)):
            if getattr(self.columns, name).scale != 1:
                raise ValueError(f"columns.{name}: words have no scale")
        for name, key, needed in (
            ("throughput", "throughput_is", self.names),
            ("samples", "samples_is", columns),  # of [constants] it is global by definition
        ):
            if name in needed and getattr(self, key) is None:
                raise ValueError(
                    f'{key}: this key is needed where {name} is read: "global" (over all ranks) or "per_rank"'
                )
        if "world_size" not in self.names and not {"nodes", "ranks_per_node"} <= self.names:
            raise ValueError("columns: world_size is needed, or nodes and ranks_per_node")
        if not {"throughput"} & self.names and not {"seconds"} & self.names:
            raise ValueError("columns: throughput is needed, or seconds with samples (or steps and a batch)")
        return self


def read(path: Path) -> Mapping:
    """The mapping file at `path`.

    Raises:
        ForeignError: there is none, or it is wrong; names file, key and what is allowed.
    """
    try:
        return toml_config.read(path, Mapping, ForeignError)
    except FileNotFoundError:
        raise ForeignError(
            f"{path}: no such mapping file; `hpc import --draft FILE.csv` writes a first one"
        ) from None

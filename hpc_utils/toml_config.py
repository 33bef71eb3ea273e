"""Strict reading of TOML files: an error names the file, the key and the allowed values."""

from __future__ import annotations

import difflib
import tomllib
import typing
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError


class Strict(BaseModel):
    """A table of such a file: frozen, and without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


Table = TypeVar("Table", bound=Strict)


def read(path: Path, model: type[Table], refuse: type[ValueError]) -> Table:
    """The file at `path` as a `model`.

    Raises:
        FileNotFoundError: there is no such file.
        refuse: it cannot be read, is not TOML, or does not fit `model`; one line per fault.
    """
    try:
        return model(**_content(path, refuse))
    except ValidationError as error:
        raise refuse("\n".join(_explain(path, model, item) for item in error.errors())) from None


def tables(path: Path, model: type[Table], refuse: type[ValueError]) -> dict[str, Table]:
    """The file at `path`, which consists of named tables of one kind: {name: table} in their order.

    Raises:
        As `read`.
    """
    found, faults = {}, []
    for name, content in _content(path, refuse).items():
        if not isinstance(content, dict):
            faults.append(f"{path}: {name}: a table is expected, [{name}] with its keys below")
            continue
        try:
            found[name] = model(**content)
        except ValidationError as error:
            faults += [_explain(path, model, item, name) for item in error.errors()]
    if faults:
        raise refuse("\n".join(faults))
    return found


SHOWN = 6  # of the names that a message lists


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.5) -> str:
    """The known name nearest to `name`; empty if none is near."""
    return next(iter(near(name, known, most=1, cutoff=cutoff)), "")


def near(name: str, known: Iterable[str], *, most: int = 2, cutoff: float = 0.5) -> list[str]:
    """The known names near `name`, the nearest first."""
    return difflib.get_close_matches(name, list(known), most, cutoff)


def hint(name: str, known: Iterable[str]) -> str:
    """A hint for an unknown `name`: the nearest known name, or all of them, the first `SHOWN` if many."""
    known = sorted(known)
    if close := nearest(name, known):
        return f"did you mean {close}?"
    more = f", and {len(known) - SHOWN} more" if len(known) > SHOWN else ""
    return f"known are {', '.join(known[:SHOWN])}{more}"


def _content(path: Path, refuse: type[ValueError]) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise refuse(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise refuse(f"{path}: not TOML: {error}") from None


def _explain(path: Path, model: type[Strict], item: Any, name: str = "") -> str:
    """One of pydantic's errors as a message: file, key (below the table `name`), and the allowed values."""
    at = [part for part in item["loc"] if part != "[key]"]
    below = [name] if name else []
    if item["type"] == "extra_forbidden":
        *table, key = at
        where = f"{_place([*below, *table])}: " if below or table else ""
        names = [field.alias or own for own, field in _table(model, table).model_fields.items()]
        return f"{path}: {where}unknown key {str(key)!r}: {hint(str(key), names)}"
    message = item["msg"].removeprefix("Value error, ")
    if item["type"] == "missing":
        message = "this key is needed"
    elif item["type"] != "value_error" and not isinstance(item["input"], dict | list):
        message = f"{message[0].lower()}{message[1:]}, not {item['input']!r}"
    place = _place([*below, *at])
    return f"{path}: {place}: {message}" if place else f"{path}: {message}"


def _place(loc: Sequence[str | int]) -> str:
    return ".".join(map(str, loc))


def _table(model: type[Strict], loc: Sequence[str | int]) -> type[Strict]:
    """The model of the table at `loc`, through dicts and lists of tables."""
    for part in loc:
        names = model.model_fields.items()
        field = next((field for name, field in names if part in (name, field.alias)), None)
        if field:
            model = _tables_in(field.annotation) or model
    return model


def _tables_in(annotation: Any) -> type[Strict] | None:
    """The model in a type annotation, if any."""
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        return annotation
    return next((table for part in typing.get_args(annotation) if (table := _tables_in(part))), None)

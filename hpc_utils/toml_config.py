"""Strict reading of TOML files: an error names the file, the key and, if it is unknown, the nearest known one."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, model_validator


class Strict(BaseModel):
    """A table of such a file: frozen, and without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _require_known_keys(cls, content: Any) -> Any:
        keys = [field.alias or name for name, field in cls.model_fields.items()]
        if isinstance(content, dict) and (
            unknown := [key for key in content if key not in (*keys, *cls.model_fields)]
        ):
            raise ValueError("; ".join(f"unknown key {key!r}: {hint(key, keys)}" for key in unknown))
        return content


Table = TypeVar("Table", bound=Strict)


def read_toml(path: Path, model: type[Table], refuse: type[ValueError]) -> Table:
    """The file at `path` as a `model`.

    Raises:
        FileNotFoundError: there is no such file.
        refuse: it cannot be read, is not TOML, or does not fit `model`; one line per fault.
    """
    return _validated(path, model, refuse)


def read_tables(path: Path, model: type[Table], refuse: type[ValueError]) -> dict[str, Table]:
    """The file at `path`, which consists of named tables of one kind: {name: table} in their order.

    Raises:
        As `read_toml`.
    """
    return _validated(path, dict[str, model], refuse)


def nearest(name: str, names: Iterable[str], *, cutoff: float = 0.5) -> str:
    """The known name nearest to `name`; empty if none is near."""
    return next(iter(difflib.get_close_matches(name, list(names), 1, cutoff)), "")


def hint(name: str, names: Iterable[str]) -> str:
    """A hint for an unknown `name`: the nearest known name, or all of them; without any, this is no clone."""
    names = sorted(names)
    close = nearest(name, names)
    if not names:
        return "there are none here: run this in a clone of the project"
    return f"did you mean {close}?" if close else f"known are {', '.join(names)}"


def _validated(path: Path, kind: Any, refuse: type[ValueError]) -> Any:
    try:
        return TypeAdapter(kind).validate_python(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise refuse(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise refuse(f"{path}: not TOML: {error}") from None
    except ValidationError as error:
        raise refuse("\n".join(_explain(path, item) for item in error.errors())) from None


def _explain(path: Path, item: Any) -> str:
    """One of pydantic's errors as a message: file, key and fault."""
    place = [str(part) for part in item["loc"] if part != "[key]"]
    message = item["msg"].removeprefix("Value error, ")
    if item["type"] == "missing":
        message = "this key is needed"
    elif item["type"] != "value_error" and not isinstance(item["input"], dict | list):
        message = f"{message[0].lower()}{message[1:]}, not {item['input']!r}"
    return ": ".join(filter(None, [str(path), ".".join(place), message]))

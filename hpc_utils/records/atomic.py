"""Atomic writes: a file has its old content or its new one, never a part."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any


def write_file(path: Path, fill: Callable[[IO[bytes]], Any]) -> None:
    """Let `fill(file)` write a temporary file, and rename it to `path`; on an error `path` keeps its content.

    Errors of the file system name `path`, not the temporary file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644 & ~umask())
        os.replace(temporary, path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno and error.filename in (None, temporary):
            error.filename, error.filename2 = str(path), None
        raise


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8."""
    write_file(path, lambda file: file.write(text.encode()))


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON; ValueError if it contains a NaN."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def umask() -> int:
    """The mask of this process, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask

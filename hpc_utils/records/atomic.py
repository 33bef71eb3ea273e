"""Files written whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any


def write(path: Path, fill: Callable[[IO[bytes]], Any]) -> None:
    """Let `fill(file)` write a temporary file, then rename it to `path`; on any error `path` stays as it was.

    Errors of the file system name `path`, not the temporary file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside, temporary = f".{path.name}.", None
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=beside)
        with os.fdopen(handle, "wb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644 & ~_umask())
        os.replace(temporary, path)
    except BaseException as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno and Path(str(error.filename or beside)).name.startswith(beside):
            error.filename, error.filename2 = str(path), None
        raise


def write_text(path: Path, text: str) -> None:
    """`text` as UTF-8."""
    write(path, lambda file: file.write(text.encode()))


def write_json(path: Path, value: Any) -> None:
    """`value` as indented JSON; a NaN is refused, since JSON has none."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask

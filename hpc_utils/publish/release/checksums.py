"""SHA256SUMS, as `sha256sum --check` reads it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

FILE = "SHA256SUMS"


def write(files: Mapping[str, bytes]) -> bytes:
    """A line a file, by name."""
    lines = (f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in sorted(files.items()))
    return "".join(lines).encode()


def faults(folder: Path) -> list[str]:
    """What in an unpacked release is not as it was packed: changed, gone, or not listed."""
    try:
        lines = (folder / FILE).read_text().splitlines()
    except OSError as error:
        return [f"{folder / FILE} cannot be read: {error.strerror}"]
    listed = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    there = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    found = [f"{name} is listed and not there" for name in sorted(listed.keys() - there.keys())]
    found += [f"{name} is there and not listed" for name in sorted(there.keys() - listed.keys() - {FILE})]
    for name in sorted(listed.keys() & there.keys()):
        if hashlib.sha256(there[name].read_bytes()).hexdigest() != listed[name]:
            found.append(f"{name} has changed since it was packed")
    return found

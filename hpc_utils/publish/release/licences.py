"""Which licence each file stands under: `REUSE.toml`, read as the REUSE specification 3.3 says, and `LICENSES/`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any

from .tree import ReleaseRefused, named

LIST = "REUSE.toml"
TEXTS = "LICENSES/"
CODE = "LICENSE"  # where people and forges look for the code's
THEMSELVES = re.compile(r"LICENSE|REUSE\.toml|LICENSES/.*")  # need none


def of(files: Mapping[str, bytes]) -> dict[str, str]:
    """{path: SPDX identifier} of each file that the list names.

    Raises:
        ReleaseRefused: there is no such list, or it cannot be read.
    """
    rules = [(_pattern(one["path"]), one["SPDX-License-Identifier"]) for one in _read(files)]
    found = {}
    for path in files:
        fitting = [licence for pattern, licence in rules if pattern.fullmatch(path)]
        if fitting and not THEMSELVES.fullmatch(path):
            found[path] = fitting[-1]
    return found


def faults(files: Mapping[str, bytes], project: Mapping[str, Any]) -> list[str]:
    """A sentence for each file without a licence, licence without its text, and text without a file; `project` as in
    pyproject.toml."""
    try:
        licensed = of(files)
    except ReleaseRefused as error:
        return [str(error)]
    found = []
    if bare := [path for path in sorted(files) if path not in licensed and not THEMSELVES.fullmatch(path)]:
        found.append(f"no licence is said for {named(bare)}: add them to {LIST}")
    used = {*licensed.values(), project["license"]}
    there = {path.removeprefix(TEXTS).removesuffix(".txt") for path in files if path.startswith(TEXTS)}
    found += [f"{TEXTS}{name}.txt is missing: {LIST} names the licence" for name in sorted(used - there)]
    found += [f"{TEXTS}{name}.txt is the licence of no file: take it out" for name in sorted(there - used)]
    if files.get(CODE) != files.get(f"{TEXTS}{project['license']}.txt"):
        found.append(
            f"{CODE} is not {TEXTS}{project['license']}.txt, the licence that pyproject.toml names: copy one over"
        )
    return found


def _read(files: Mapping[str, bytes]) -> list[dict[str, Any]]:
    try:
        return tomllib.loads(files[LIST].decode())["annotations"]
    except KeyError:
        raise ReleaseRefused(f"{LIST} is missing, or has no annotations: it says each file's licence") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ReleaseRefused(f"{LIST} is not TOML: {error}") from None


def _pattern(globs: str | list[str]) -> re.Pattern[str]:
    """`*`: anything but a slash, `**`: anything."""
    parts = [globs] if isinstance(globs, str) else globs
    return re.compile("|".join(_one(part) for part in parts))


def _one(glob: str) -> str:
    return "".join({"**": ".*", "*": "[^/]*"}.get(part, re.escape(part)) for part in re.split(r"(\*\*|\*)", glob))

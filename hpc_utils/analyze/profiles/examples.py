"""Other people's profiles that chapter 04 reads: their owners, sources and subjects, from `examples.toml`.

The files stay out of the project, which may read a copy in a folder beside it. Exports record the SHA-256 of each file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from .profiled_runs import Profile
from .readers import gather
from .timeline import ProfileError


class Example(NamedTuple):
    """The profiles of one run.

    Attributes:
        name: in tables and figures. files: relative to the folder of examples. what: completes "a profile of ...".
        whose, source, licence: the source is a public repository and a folder in it.
    """

    name: str
    files: tuple[str, ...]
    what: str
    whose: str
    source: str
    licence: str

    @property
    def evidence(self) -> tuple[str, ...]:
        """Its files, as exports name them."""
        return tuple(f"profile:{file}" for file in self.files)


_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
EXAMPLES = tuple(Example(files=tuple(row.pop("files")), **row) for row in _TABLE["example"])


def read_all(folder: Path, examples: Iterable[Example] = EXAMPLES) -> tuple[dict[str, Profile], dict[str, str]]:
    """The profiles that can be read, by name, and why the others cannot."""
    opened, missing = {}, {}
    for one in examples:
        try:
            opened[one.name] = Profile.of(one.name, one.what, {"": gather(folder / file for file in one.files)})
        except ProfileError as error:
            missing[one.name] = str(error).replace(f"{folder}/", "")
    return opened, missing

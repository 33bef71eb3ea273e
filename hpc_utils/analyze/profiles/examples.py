"""Other people's profiles that chapter 04 reads: their owners, sources and subjects, from `examples.toml`.

The files are not part of the project, which reads a copy in a neighbouring folder if there is one. Exports record the
SHA-256 of each file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from .profiled_runs import Profile

# Of each the profiles of one run: name, files, what, whose, source, licence.
EXAMPLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["example"]


def profiles(folder: Path) -> dict[str, Profile]:
    """The example profiles in `folder`, by name."""
    return {
        example["name"]: Profile(example["name"], example["what"], {"": [folder / file for file in example["files"]]})
        for example in EXAMPLES
    }


def evidence(folder: Path, read_profiles: Mapping[str, Profile]) -> dict[str, Path]:
    """The files of the profiles that were read, by the names that exports give them."""
    return {
        f"profile:{file}": folder / file
        for example in EXAMPLES
        if read_profiles[example["name"]].reports
        for file in example["files"]
    }

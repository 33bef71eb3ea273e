"""What the checks find in the tree and a person has looked at: `allowed.toml`, each entry with its reason."""

from __future__ import annotations

import fnmatch
from pathlib import Path

from pydantic import Field

from hpc_utils.toml_config import Strict, read

from .tree import ReleaseRefused

LIST = Path(__file__).with_name("allowed.toml")


class Place(Strict):
    """Paths that look like a machine's and are none, or tell nothing: patterns of the shell for file and path."""

    files: str
    paths: tuple[str, ...]
    why: str = Field(min_length=10)


class Large(Strict):
    """A file that may be larger than others, and how large."""

    files: str
    mebibytes: float
    why: str = Field(min_length=10)


class Secret(Strict):
    """Files in which something looks like a secret of this kind, and is none."""

    files: str
    kind: str
    why: str = Field(min_length=10)


class Allowed(Strict):
    """The whole list."""

    place: tuple[Place, ...] = ()
    large: tuple[Large, ...] = ()
    secret: tuple[Secret, ...] = ()

    def is_place(self, file: str, path: str) -> bool:
        return any(
            fnmatch.fnmatchcase(file, one.files) and any(fnmatch.fnmatchcase(path, own) for own in one.paths)
            for one in self.place
        )

    def is_secret(self, file: str, kind: str) -> bool:
        return any(
            fnmatch.fnmatchcase(file, one.files) and fnmatch.fnmatchcase(kind, one.kind) for one in self.secret
        )

    def size(self, file: str) -> float:
        """Bytes that `file` may have; 0 where the list does not name it."""
        return max((one.mebibytes * 2**20 for one in self.large if fnmatch.fnmatchcase(file, one.files)), default=0)


def allowed(path: Path = LIST) -> Allowed:
    """The list as it stands.

    Raises:
        ReleaseRefused: it is not what it must be.
    """
    return read(path, Allowed, ReleaseRefused)

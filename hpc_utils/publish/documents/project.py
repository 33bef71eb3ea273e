"""`paper/paper.toml`: which documents there are, what they are built from, and which result sets they draw on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from hpc_utils import toml_config
from hpc_utils.toml_config import Strict

CLASSES = ("ieee", "acm")


class ProjectError(ValueError):
    """paper.toml cannot be read, or contradicts itself: one line a fault."""

    exit_code = 2


class DocumentEntry(Strict):
    """One document.

    `sets`: aliases, in the order in which they are named; all by default. `tex`: conference classes to export it for.
    `numbers`: whether the list of all its numbers ends the document, or stands in numbers.pdf alone.
    """

    source: str
    template: Literal["paper", "proposal", "report", "slides"]
    sets: tuple[str, ...] = ()
    bibliography: tuple[str, ...] = ("references.bib",)
    tex: tuple[Literal["ieee", "acm"], ...] = ()
    numbers: Literal["within", "apart"] = "apart"


class Project(Strict):
    """`sets`: {alias: folder, from the project's root}; `claims`: the file of claims, beside paper.toml."""

    sets: dict[str, str] = Field(min_length=1)
    claims: str = "claims.toml"
    document: dict[str, DocumentEntry] = Field(min_length=1)

    @field_validator("sets")
    @classmethod
    def _aliases(cls, sets: dict[str, str]) -> dict[str, str]:
        for alias in sets:
            if not re.fullmatch(r"[a-z][a-z0-9-]*", alias) or alias in ("claim", "claims"):
                raise ValueError(f"{alias!r} cannot be an alias: small letters, digits and -, and not claim")
        return sets

    @model_validator(mode="after")
    def _known_sets(self) -> Project:
        for name, document in self.document.items():
            if not re.fullmatch(r"[a-z][a-z0-9-]*", name) or name == "numbers":
                raise ValueError(
                    f"document.{name}: a document's name has small letters, digits and -; numbers is ours"
                )
            for alias in document.sets:
                if alias not in self.sets:
                    raise ValueError(f"document.{name}.sets: no set {alias!r}: {toml_config.hint(alias, self.sets)}")
        if len(exported := [name for name, document in self.document.items() if document.tex]) > 1:
            raise ValueError(
                f"document: only one can be exported as TeX, not {' and '.join(exported)}: take `tex` out"
            )
        return self

    def aliases(self, name: str) -> tuple[str, ...]:
        """The sets that a document draws on."""
        return self.document[name].sets or tuple(self.sets)


def read(path: Path) -> Project:
    """The file at `path`.

    Raises:
        ProjectError: there is no such file, or it is wrong.
    """
    try:
        return toml_config.read(path, Project, ProjectError)
    except FileNotFoundError:
        raise ProjectError(f"{path}: there is no such file; paper/README.md says what it holds") from None


def line_of(path: Path, key: str) -> int:
    """The line at which a key or table of the file starts; 0 if none does."""
    pattern = re.compile(rf"\s*\[?(?:document\.)?{re.escape(key)}\]?\s*(?:=|#|$)")
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((number for number, line in enumerate(lines, 1) if pattern.match(line)), 0)

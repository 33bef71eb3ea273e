"""`paper/paper.toml`: the documents, their sources and templates, and the result sets that they draw on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from hpc_utils import toml_config
from hpc_utils.toml_config import Strict


class ProjectError(ValueError):
    """paper.toml cannot be read, or contradicts itself; one line per fault."""

    exit_code = 2


class DocumentEntry(Strict):
    """One document.

    `sets`: aliases, all by default. `planned`: those of which cells, figures and tables that are missing print "not measured"; their
    folders may be missing too. `tex`: the conference classes that it is exported for.
    """

    source: str
    template: Literal["paper", "proposal", "report", "slides"]
    sets: tuple[str, ...] = ()
    planned: tuple[str, ...] = ()
    bibliography: tuple[str, ...] = ("references.bib",)
    tex: tuple[Literal["ieee", "acm"], ...] = ()


class Project(Strict):
    """`sets`: {alias: folder from the project's root}; `claims`: the file of claims next to paper.toml."""

    sets: dict[str, str] = Field(min_length=1)
    claims: str = "claims.toml"
    document: dict[str, DocumentEntry] = Field(min_length=1)

    @field_validator("sets", "document")
    @classmethod
    def _names(cls, named: dict[str, Any]) -> dict[str, Any]:
        if fault := "; ".join(filter(None, map(unfit, named))):
            raise ValueError(fault)
        return named

    @model_validator(mode="after")
    def _known_sets(self) -> Project:
        for name, document in self.document.items():
            for key, aliases in (("sets", self.sets), ("planned", self.aliases(name))):
                for alias in getattr(document, key):
                    if alias not in aliases:
                        raise ValueError(
                            f"document.{name}.{key}: no set {alias!r}: {toml_config.hint(alias, aliases)}"
                        )
        if sum(bool(document.tex) for document in self.document.values()) > 1:
            raise ValueError("document: only one can be exported as TeX")
        return self

    def aliases(self, name: str) -> tuple[str, ...]:
        """The sets that a document draws on."""
        return self.document[name].sets or tuple(self.sets)

    @property
    def planned(self) -> set[str]:
        """The sets that a document plans."""
        return {alias for document in self.document.values() for alias in document.planned}


def read_project(path: Path) -> Project:
    """The file at `path`.

    Raises:
        ProjectError: the file is missing or wrong.
    """
    try:
        return toml_config.read_toml(path, Project, ProjectError)
    except FileNotFoundError:
        raise ProjectError(f"{path}: there is no such file; paper/README.md documents it") from None


def unfit(name: str) -> str:
    """Why `name` cannot be the name of a document or set; "" if it can."""
    fits = re.fullmatch(r"(?!claims?$|.*-numbers$)[a-z][a-z0-9-]*", name)
    return "" if fits else f"{name!r} cannot be a name: small letters, digits and -, not claim, claims or ...-numbers"


def line_of(path: Path, key: str) -> int:
    """The line of the file at which a key or table starts; 0 if there is none."""
    pattern = re.compile(rf"\s*\[?(?:document\.)?{re.escape(key)}\]?\s*(?:=|#|$)")
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((number for number, line in enumerate(lines, 1) if pattern.match(line)), 0)

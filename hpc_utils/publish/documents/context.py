"""What all documents of a checkout share, read once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from . import project, sets
from .project import DocumentEntry, Project


@dataclass
class BuildContext:
    """`root`: the folder that the sets' paths are relative to; `folder`: `paper/`; `log` prints a line of progress."""

    root: Path
    folder: Path
    project: Project
    log: Callable[[str], None] = lambda line: None
    result_sets: dict[str, sets.ResultSet] = field(default_factory=dict)
    failing: list[str] = field(default_factory=list)  # claims that do not hold, each logged once

    @property
    def target(self) -> Path:
        return self.folder / "build"

    def shown(self, name: str) -> str:
        """A file of the folder, as messages name it."""
        path = self.folder / name
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else str(path)

    def line_in_project(self, key: str) -> int:
        """The line of paper.toml at which a key or table starts."""
        return project.line_of(self.folder / "paper.toml", key)

    def sets(self, aliases: Iterable[str]) -> sets.Sets:
        """Those result sets; each is read and checked once."""
        for alias in aliases:
            if alias not in self.result_sets:
                self.log(f"checking the results {alias} ({self.project.sets[alias]})")
                self.result_sets[alias] = sets.read(alias, self.root / self.project.sets[alias])
                for warning in self.result_sets[alias].warnings:
                    self.log(f"  {warning}")
        return sets.Sets(self.result_sets[alias] for alias in aliases)

    def bibliography(self, entry: DocumentEntry) -> list[Path]:
        """The document's BibTeX files that exist."""
        return [file for name in entry.bibliography if (file := self.folder / name).is_file()]

    def sources(self, entry: DocumentEntry) -> list[Path]:
        """The files that a document is written from."""
        rest = [self.folder / "paper.toml", self.folder / self.project.claims]
        return [self.folder / entry.source, *self.bibliography(entry), *(file for file in rest if file.is_file())]


def read(root: Path, folder: Path | None = None, log: Callable[[str], None] = lambda line: None) -> BuildContext:
    """The documents of a checkout; `folder` holds paper.toml, by default `paper/`.

    Raises:
        project.ProjectError: paper.toml is wrong.
    """
    folder = folder or root / "paper"
    return BuildContext(root, folder, project.read(folder / "paper.toml"), log)

"""What all documents of a checkout share, read once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from . import project, sets
from .project import DocumentEntry, Project


@dataclass
class Workshop:
    """What all documents share: read once. `folder`: `paper/`; `root`: what the sets' folders are relative to."""

    root: Path
    folder: Path
    project: Project
    known: dict[str, sets.ResultSet] = field(default_factory=dict)
    failing: list[str] = field(default_factory=list)  # claims that do not hold, as said so far

    @property
    def target(self) -> Path:
        return self.folder / "build"

    def called(self, name: str) -> str:
        """A file of the folder, as it is called in what is said of it."""
        path = self.folder / name
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else str(path)

    def sets(self, aliases: Iterable[str], say: Callable[[str], None]) -> sets.Sets:
        """Those result sets; each is read and checked once."""
        for alias in aliases:
            if alias not in self.known:
                say(f"checking the results {alias} ({self.project.sets[alias]})")
                self.known[alias] = sets.read(alias, self.root / self.project.sets[alias])
                for doubt in self.known[alias].doubts:
                    say(f"  {doubt}")
        return sets.Sets(self.known[alias] for alias in aliases)

    def bibliography(self, entry: DocumentEntry) -> list[Path]:
        """The document's BibTeX files, those that exist."""
        files = [self.folder / name for name in entry.bibliography]
        return [file for file in files if file.is_file()]

    def sources(self, entry: DocumentEntry) -> list[Path]:
        """What it is written from."""
        rest = [self.folder / "paper.toml", self.folder / self.project.claims]
        return [self.folder / entry.source, *self.bibliography(entry), *(file for file in rest if file.is_file())]


def open_(root: Path, folder: Path | None = None) -> Workshop:
    """The documents of a checkout; `folder` holds paper.toml, by default `paper/`.

    Raises:
        project.ProjectError: paper.toml is wrong.
    """
    folder = folder or root / "paper"
    return Workshop(root, folder, project.read(folder / "paper.toml"))

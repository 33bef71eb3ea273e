"""What all documents of a checkout share, read once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from hpc_utils.publish import exports, staleness

from . import project, sets
from .project import DocumentEntry, Project


@dataclass
class BuildContext:
    """`root`: the folder that the sets' paths are relative to; `folder`: `paper/`; `log` prints a line of progress."""

    root: Path
    folder: Path
    project: Project
    log: Callable[[str], None]
    result_sets: dict[str, sets.ResultSet] = field(default_factory=dict)
    failing: list[str] = field(default_factory=list)  # claims that do not hold, each logged once

    @property
    def target(self) -> Path:
        return self.folder / "build"

    def shown(self, name: str) -> str:
        """A file of the folder, as messages name it."""
        path = self.folder / name
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else str(path)

    def sets(self, aliases: Iterable[str], planned: Iterable[str] = ()) -> sets.Sets:
        """Those result sets; each is read once. `planned`: those that may lack what is cited.

        Raises:
            ProjectError: a folder is missing.
            ExportError: the exports of a set cannot be read.
        """
        for alias in aliases:
            if alias not in self.result_sets:
                folder = self.root / self.project.sets[alias]
                if not folder.is_dir() and alias not in self.project.planned:
                    raise project.ProjectError(
                        f"{self.shown('paper.toml')}: sets.{alias}: there is no folder {folder}"
                    )
                self.log(f"checking the results {alias} ({self.project.sets[alias]})")
                self.result_sets[alias] = sets.ResultSet(alias, folder, exports.read_exports(folder))
                for warning in staleness.computed_otherwise(self.result_sets[alias].exported):
                    self.log(f"  {warning}")
        return sets.Sets((self.result_sets[alias] for alias in aliases), planned)

    def bibliography(self, entry: DocumentEntry) -> list[Path]:
        """The document's BibTeX files that exist."""
        return [file for name in entry.bibliography if (file := self.folder / name).is_file()]


def read_context(
    root: Path, folder: Path | None = None, log: Callable[[str], None] = lambda line: None
) -> BuildContext:
    """The documents of a checkout; `folder` holds paper.toml, by default `paper/`.

    Raises:
        ProjectError: paper.toml is wrong.
    """
    folder = folder or root / "paper"
    return BuildContext(root, folder, project.read_project(folder / "paper.toml"), log)

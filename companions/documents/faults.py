"""Faults of documents, collected so that one build reports all of them, and the sources in which their lines are found."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from hpc_utils.plural import counted

from .number_lint import CLASSES


@dataclass(frozen=True, order=True)
class Fault:
    """A fault in `file` (its path from the project's root) at `line`; 0 is the whole file."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}" if self.line else f"{self.file}: {self.message}"


class Faults(list[Fault]):
    """The faults so far, without duplicates; an empty message, as that of `sets.Stale`, is ignored."""

    def add(self, file: str, line: int, message: str) -> None:
        fault = Fault(file, line, message)
        if message and fault not in self:
            self.append(fault)


class DocumentError(ValueError):
    """Documents that cannot be built: one fault a line, first what others may follow from: stale chapters, of paper.toml."""

    exit_code = 2

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = sorted(faults, key=lambda fault: (not fault.file.endswith(".toml"), fault))
        super().__init__(
            "\n  ".join([f"{counted(len(self.faults), 'fault')} in the documents", *map(str, self.faults)])
        )


class Source:
    """The text of `file`, in which lines are looked up: pandoc's tree of Markdown does not have them."""

    def __init__(self, text: str, file: str, faults: Faults) -> None:
        self.text = text
        self.file = file
        self.faults = faults
        self._ends: dict[str, int] = {}

    def fault(self, position: str | int, message: str) -> None:
        """A fault at a line, or where a passage comes next."""
        self.faults.add(self.file, position if isinstance(position, int) else self.next_line(position), message)

    def next_line(self, passage: str) -> int:
        """The line of the next `passage`, after the one that the last such call found; 0 if it is written otherwise.

        A passage may be broken over lines; one that has a class (`[10 s]{.setting}`) is passed over.
        """
        begin, end = r"\b" * passage[:1].isalnum(), r"(?!\w)" * passage.startswith(("@", "#"))
        words = r"\s+(?:>\s+)?".join(map(re.escape, passage.split()))
        pattern = re.compile(rf"{begin}{words}{end}(?!\]\{{\.(?:{'|'.join(CLASSES)})\b)")
        match = pattern.search(self.text, self._ends.get(passage, 0)) or pattern.search(self.text)
        if match is None:
            return 0
        self._ends[passage] = match.end()
        return self.text.count("\n", 0, match.start()) + 1
